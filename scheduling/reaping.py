"""When a runner must be looked at again, and whether it shall go. Busy machines leave by themselves.

The daemon never stops a machine whose job runs, except past `max_lifetime` or at an operator's word.
"""

from __future__ import annotations

from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.model import DurationMs, Runner, UnixMs

CONFIRM_GAP_MS: DurationMs = 90_000
"""Between the two looks that must both find a runner idle and surplus; GitHub's `busy` lags by a minute."""

BOOT_CONFIRM_MS: DurationMs = 15_000
"""Between the two looks that must both find a machine silent past its boot timeout."""

SETTLING_MS: DurationMs = 120_000
"""After an unanswered create call, before an inventory counts as proof of absence."""

CONSISTENCY_MS: DurationMs = 60_000
"""After a confirmed create, before a list without the machine counts: clouds' reads lag."""

ABSENCE_GAP_MS: DurationMs = 10_000
"""Between two inventories that both miss a machine."""

_BOOTING = frozenset({RunnerState.UNKNOWN, RunnerState.STARTING})
_UNTIMED = frozenset({RunnerState.LEAVING, RunnerState.STOPPING, RunnerState.GONE})
_WAITING = frozenset({RunnerState.READY, RunnerState.REGISTERING, RunnerState.IDLE})


def deadline(runner: Runner) -> UnixMs:
    """When plan must judge this runner, if nothing else happens to it. 0: never."""
    if runner.state in _UNTIMED:
        return 0
    terms = runner.terms
    if runner.interrupted_ms and runner.state in _WAITING:
        return runner.interrupted_ms
    match runner.state:
        case RunnerState.PLANNED if _unmade(runner):
            return runner.planned_ms + terms.ready_max_age_ms
        case RunnerState.UNKNOWN | RunnerState.STARTING:
            if runner.suspect_ms:
                return runner.suspect_ms + BOOT_CONFIRM_MS
            heard_ms = max(runner.created_ms, runner.planned_ms if runner.adopted else 0) or runner.unknown_ms
            silent_ms = terms.register_timeout_ms if terms.userdata else 0  # it is heard of as it registers
            return heard_ms + terms.boot_timeout_ms + silent_ms
        case RunnerState.READY:
            age = runner.booted_ms + terms.ready_max_age_ms
            return min(age, runner.free_ms + terms.idle_timeout_ms) if runner.free_ms else age
        case RunnerState.REGISTERING:
            if runner.jit_ms:
                return runner.jit_ms + terms.register_timeout_ms
            return runner.booted_ms + terms.ready_max_age_ms
        case RunnerState.IDLE:
            if runner.suspect_ms:
                return runner.suspect_ms + CONFIRM_GAP_MS
            return runner.registered_ms + terms.idle_timeout_ms
        case RunnerState.BUSY:
            given_ms = runner.registered_ms if terms.userdata else runner.jit_ms
            return (given_ms or runner.started_ms) + terms.max_lifetime_ms
    return 0


def _unmade(runner: Runner) -> bool:
    """Whether GitHub has not made the registration yet that must come before the machine."""
    return runner.terms.userdata and not runner.registration_id


def timed_out(runner: Runner, now_ms: UnixMs) -> GoneReason | None:
    """The reason why this runner must go whatever the demand, or None."""
    if runner.state in _UNTIMED:
        return None
    terms = runner.terms
    if runner.interrupted_ms and runner.state in _WAITING:
        return GoneReason.INTERRUPTED  # GitHub deletes no registration on which a job runs
    if runner.state is RunnerState.PLANNED and _unmade(runner) and now_ms >= deadline(runner):
        return GoneReason.REGISTER_TIMEOUT
    if runner.state in _BOOTING and now_ms >= deadline(runner):
        return GoneReason.BOOT_TIMEOUT
    if runner.state is RunnerState.REGISTERING and runner.jit_ms:
        return GoneReason.REGISTER_TIMEOUT if now_ms >= runner.jit_ms + terms.register_timeout_ms else None
    if runner.state in (RunnerState.READY, RunnerState.REGISTERING):
        return GoneReason.READY_AGE if now_ms >= runner.booted_ms + terms.ready_max_age_ms else None
    if runner.state is RunnerState.BUSY and now_ms >= deadline(runner):
        return GoneReason.MAX_LIFETIME
    return None


def provably_absent(runner: Runner, seen_ms: UnixMs) -> bool:
    """Whether an inventory begun at `seen_ms` that misses the machine proves anything about it."""
    if runner.stop_ms:
        return seen_ms > runner.stop_ms
    if runner.ref or runner.booted_ms:
        return seen_ms > max(runner.created_ms, runner.booted_ms) + CONSISTENCY_MS
    return seen_ms > max(runner.planned_ms, runner.unknown_ms) + SETTLING_MS


def finished_for_good(runner: Runner) -> bool:
    """Proven absent and without a registration: its hold can be settled."""
    return runner.state is RunnerState.STOPPING and runner.absences >= 2 and not runner.registration_id
