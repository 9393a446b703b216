"""Recorded events through a policy under a simulated clock: what it would have cost, and how long jobs would wait.

Here belong the recording as columns, the world that answers the core's commands, the driver that runs the real
`scheduling` against it, and the reports. Never: decisions of scheduling, sockets, chance without a seed.

Rooms: `recording` (event file -> jobs), `world_model` (boot times, capacity, prices: what is assumed), `hub`
(which runner GitHub gives a job), `machines` (commands and what comes of them), `driver` (time), `tally` (what is
kept of a run), `trial` (one policy tried), `difference` (two policies), `text`, `html` and `charts` (for people),
`command`.
"""
