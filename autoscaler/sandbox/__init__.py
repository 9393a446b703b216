"""A world for the daemon to live in: a GitHub stand-in, simulated clouds, and machines that run jobs.

Belongs here: what the demo, the tests and the benchmarks put around the unmodified daemon, over real sockets.

Never here: anything that `serve` needs.
"""
