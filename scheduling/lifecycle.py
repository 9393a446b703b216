"""States of jobs and runners, and both transition tables as data.

`evolve` looks every move up in these tables and nowhere else. A pair that is missing from `RUNNER_MOVES` is
either listed in `RUNNER_IGNORED` (a late or doubled fact, a no-op) or illegal; tests enumerate all pairs.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """What GitHub last said of a job. Ranks only go up, so order and repetition of deliveries do not matter."""

    WAITING = "waiting"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


JOB_RANK: dict[JobState, int] = {
    JobState.WAITING: 0,
    JobState.QUEUED: 1,
    JobState.IN_PROGRESS: 2,
    JobState.COMPLETED: 3,
}


class RunnerState(StrEnum):
    """Where one launch of one machine stands."""

    PLANNED = "planned"  # intent and hold are committed; the create call counts as possibly sent
    UNKNOWN = "unknown"  # the create call was sent and never answered
    STARTING = "starting"  # the provider confirmed the machine; it has not called back
    READY = "ready"  # booted, not registered at GitHub
    REGISTERING = "registering"  # a pool wants it; its JIT config is being made or handed over
    IDLE = "idle"  # registered, no job yet
    BUSY = "busy"  # a job runs on it
    LEAVING = "leaving"  # its registration is being deleted
    STOPPING = "stopping"  # no registration is left; the machine is being terminated
    GONE = "gone"  # proven absent and settled


class RunnerFact(StrEnum):
    """What can be learned about a runner, as the table's column. Events map onto these in `world`."""

    CREATED = "created"  # the provider confirmed the create call, or its inventory shows the machine
    CREATE_REFUSED = "create_refused"  # a definite error: no machine came of this call
    CREATE_UNKNOWN = "create_unknown"  # sent, no answer
    BOOTED = "booted"  # the machine called back
    ASSIGNED = "assigned"  # decision: this machine shall register for a pool
    RELEASED = "released"  # decision: its pool does not need it before it registered
    JIT_CREATED = "jit_created"  # GitHub made the registration
    JIT_LOST = "jit_lost"  # GitHub has no registration for it any more, before it registered
    REGISTERED = "registered"  # the machine or GitHub says that it is online
    JOB_STARTED = "job_started"  # an in_progress names it
    JOB_ENDED = "job_ended"  # a completed names it
    REAP = "reap"  # decision: it shall go
    WITHDRAWN = "withdrawn"  # it goes, or is not there, and was registered before its machine: delete that first
    STILL_BUSY = "still_busy"  # GitHub refused to delete the registration: a job runs
    DEREGISTERED = "deregistered"  # 204 or 404 for its registration
    ABSENT = "absent"  # missing from a complete inventory, the second time
    SETTLED = "settled"  # decision: absent for good, its cost is booked


class GoneReason(StrEnum):
    """Why a runner ended."""

    DONE = "done"
    LAUNCH_FAILED = "launch_failed"
    BOOT_TIMEOUT = "boot_timeout"
    REGISTER_TIMEOUT = "register_timeout"
    IDLE = "idle"
    SURPLUS = "surplus"
    READY_AGE = "ready_age"
    MAX_LIFETIME = "max_lifetime"
    VANISHED = "vanished"
    DRAINED = "drained"
    INTERRUPTED = "interrupted"  # a spot machine that its provider takes, or took, back
    NEVER_CREATED = "never_created"


class RerunState(StrEnum):
    """What becomes of a job under which a spot machine was taken."""

    DUE = "due"  # GitHub shall be asked, perhaps again
    ASKED = "asked"  # a new attempt was made
    REFUSED = "refused"  # it is not run again


_S, _F = RunnerState, RunnerFact

JOB_MOVES: dict[tuple[JobState, JobState], JobState] = {
    (old, new): new for old in JobState for new in JobState if JOB_RANK[new] > JOB_RANK[old]
}

RUNNER_MOVES: dict[tuple[RunnerState, RunnerFact], RunnerState] = {
    (_S.PLANNED, _F.CREATED): _S.STARTING,
    (_S.PLANNED, _F.CREATE_REFUSED): _S.GONE,
    (_S.PLANNED, _F.CREATE_UNKNOWN): _S.UNKNOWN,
    (_S.UNKNOWN, _F.CREATED): _S.STARTING,
    (_S.UNKNOWN, _F.ABSENT): _S.STOPPING,
    (_S.STARTING, _F.ABSENT): _S.STOPPING,
    (_S.PLANNED, _F.JIT_CREATED): _S.PLANNED,
    (_S.READY, _F.ASSIGNED): _S.REGISTERING,
    (_S.READY, _F.ABSENT): _S.STOPPING,
    (_S.REGISTERING, _F.JIT_CREATED): _S.REGISTERING,
    (_S.REGISTERING, _F.JIT_LOST): _S.LEAVING,
    (_S.REGISTERING, _F.REGISTERED): _S.IDLE,
    (_S.IDLE, _F.JIT_LOST): _S.LEAVING,
    (_S.LEAVING, _F.STILL_BUSY): _S.BUSY,
    (_S.LEAVING, _F.JOB_STARTED): _S.BUSY,
    (_S.LEAVING, _F.DEREGISTERED): _S.STOPPING,
    (_S.STOPPING, _F.JOB_STARTED): _S.BUSY,
    (_S.STOPPING, _F.SETTLED): _S.GONE,
    # a machine that is on its way can be kept for another pool, and can be given up
    **{(state, _F.ASSIGNED): state for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING)},
    **{(state, _F.RELEASED): state for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY)},
    **{(state, _F.REAP): _S.STOPPING for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY)},
    **{(state, _F.BOOTED): _S.READY for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING)},
    # news of a later stage may come first, and an adopted machine may be anywhere in its life
    **{(state, _F.REGISTERED): _S.IDLE for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY)},
    **{
        (state, _F.JOB_STARTED): _S.BUSY
        for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY, _S.REGISTERING, _S.IDLE)
    },
    **{
        (state, _F.JOB_ENDED): _S.LEAVING
        for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY, _S.REGISTERING, _S.IDLE, _S.BUSY)
    },
    **{(state, _F.REAP): _S.LEAVING for state in (_S.REGISTERING, _S.IDLE, _S.BUSY)},
    **{(state, _F.ABSENT): _S.LEAVING for state in (_S.REGISTERING, _S.IDLE, _S.BUSY)},
    **{
        (state, _F.WITHDRAWN): _S.LEAVING
        for state in (_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY, _S.REGISTERING, _S.IDLE, _S.BUSY)
    },
}

_LATE_CREATE = {_F.CREATED, _F.CREATE_REFUSED, _F.CREATE_UNKNOWN}
_LATE_JIT = {_F.JIT_CREATED, _F.JIT_LOST, _F.STILL_BUSY, _F.DEREGISTERED}
_DECISIONS = {_F.ASSIGNED, _F.RELEASED, _F.SETTLED}

RUNNER_IGNORED: dict[RunnerState, frozenset[RunnerFact]] = {
    # before its create call is answered no inventory can prove anything: the call may still be on its way
    _S.PLANNED: frozenset({_F.ABSENT} | _LATE_JIT - {_F.JIT_CREATED}),
    # a definite error on a retry does not void an earlier call whose outcome is unknown
    _S.UNKNOWN: frozenset({_F.CREATE_REFUSED, _F.CREATE_UNKNOWN} | _LATE_JIT),
    _S.STARTING: frozenset(_LATE_CREATE | _LATE_JIT),
    _S.READY: frozenset(_LATE_CREATE | _LATE_JIT | {_F.BOOTED}),
    _S.REGISTERING: frozenset(_LATE_CREATE | {_F.BOOTED, _F.STILL_BUSY, _F.DEREGISTERED}),
    _S.IDLE: frozenset(_LATE_CREATE | {_F.BOOTED, _F.JIT_CREATED, _F.REGISTERED, _F.STILL_BUSY, _F.DEREGISTERED}),
    _S.BUSY: frozenset(_LATE_CREATE | _LATE_JIT | {_F.BOOTED, _F.REGISTERED, _F.JOB_STARTED}),
    _S.LEAVING: frozenset(
        _LATE_CREATE
        | {_F.BOOTED, _F.JIT_CREATED, _F.JIT_LOST, _F.REGISTERED, _F.JOB_ENDED, _F.REAP, _F.ABSENT, _F.WITHDRAWN}
    ),
    _S.STOPPING: frozenset(
        _LATE_CREATE | _LATE_JIT | {_F.BOOTED, _F.REGISTERED, _F.JOB_ENDED, _F.REAP, _F.ABSENT, _F.WITHDRAWN}
    ),
    _S.GONE: frozenset(set(_F) - _DECISIONS),
}

SUPPLY: frozenset[RunnerState] = frozenset(
    {_S.PLANNED, _S.UNKNOWN, _S.STARTING, _S.READY, _S.REGISTERING, _S.IDLE}
)
"""States of a runner that can still take a job: what a pool need not launch again."""

LIVE: frozenset[RunnerState] = frozenset(set(_S) - {_S.GONE})
"""States that count against every cap: everything not proven gone."""
