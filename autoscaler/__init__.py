"""The shell that does the I/O: webhooks, Redis, GitHub, the loop, the pages and the commands.

Belongs here: everything that waits, reads a clock, opens a socket or a file. Decisions are asked of
`scheduling`, machines of `providers`.

Never here: a rule about which offer, whose money or when to reap.
"""
