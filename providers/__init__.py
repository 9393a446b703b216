"""Providers: one file a kind of account that can run machines.

Belongs here: the five verbs for each kind, its settings model, its offers, the machine's bootstrap, and the
mapping of a vendor's errors onto the six that the core understands.

Never here: decisions (which offer, whose money), GitHub, Redis, or another adapter's code. An SDK is imported
only by its own adapter, inside the functions that need it. Constructors do no I/O.
"""
