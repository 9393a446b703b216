"""Recorded job events: the file, writing it live or from GitHub's history, and sending it again as webhooks.

Belongs here: the event file's format, its redaction and its repair.

Never here: what a policy would have made of the events (`backtest`).
"""
