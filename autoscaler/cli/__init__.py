"""The commands: arguments, tables, progress, exit codes, and the client of a running daemon.

Belongs here: what is printed on a terminal and why a command ends as it does.

Never here: work that a program without a terminal would want; it is called, not written, here.
"""
