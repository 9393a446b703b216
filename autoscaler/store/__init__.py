"""All of Redis: the inbox of facts, the records of the world, the lease with its fence, sealed JIT configs.

Belongs here: keys, scripts, encodings, connections, and the server that `embedded:` starts.

Never here: what a record means.
"""
