"""What a dollar of each fund is worth over the coming weeks: a linear programme outside the core (needs SciPy).

Belongs here: the outlook, the programme and when it runs.

Never here: a placement; the bids enter the world as an event.
"""
