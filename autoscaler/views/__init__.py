"""What a person or program is told about a world: lists, sums, and why a job waits or stands where it does.

Belongs here: pure functions from a world and a policy to documents and texts.

Never here: sockets, terminals, and writing to the world.
"""
