"""Deterministic simulation: the real daemon on virtual time, against simulated Redis, GitHub, clouds and machines.

One seed is one schedule: its jobs, its faults and every interleaving. `python -m tests.simulation` runs them;
`checker` holds the promises I1 to I12 (README.md beside it), `faults` the catalogue, `mutants` the safeguards that
the tests take away to see that the checker would notice.

Belongs here: the outside world and its faults. Never here: a second version of anything that the daemon does.
"""
