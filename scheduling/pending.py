"""What the records say must still be done: the same answer in normal running and after a crash."""

from __future__ import annotations

from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.model import Runner, UnixMs
from scheduling.world import World

REPLAYS = 3
"""Replays of an unanswered create call with its own key; then only an inventory can tell."""

_ACTIVE = (
    RunnerState.PLANNED,
    RunnerState.UNKNOWN,
    RunnerState.REGISTERING,
    RunnerState.LEAVING,
    RunnerState.STOPPING,
)


def pending(world: World, now_ms: UnixMs) -> m.Commands:
    """Commands that are due at `now_ms`, oldest intent first in each state, and when the next one is."""
    due: list[m.Command] = []
    next_ms = 0
    for state in _ACTIVE:
        for runner_id in world.by_state[state]:
            runner = world.runners[runner_id]
            if runner.retry_ms > now_ms:
                next_ms = min(next_ms or runner.retry_ms, runner.retry_ms)
            elif (command := _command(runner)) is not None:
                due.append(command)
    due += [m.FetchRun(repository, run_id) for repository, run_id in world.facts_wanted]
    for key in world.reruns_due:
        retry_ms = world.reruns[key].retry_ms
        if retry_ms > now_ms:
            next_ms = min(next_ms or retry_ms, retry_ms)
        else:
            due.append(m.RerunJob(key))
    return m.Commands(tuple(due), next_ms)


def _command(runner: Runner) -> m.Command | None:
    match runner.state:
        case RunnerState.PLANNED if runner.terms.userdata and not runner.registration_id:
            return m.CreateJit(runner.id)
        case RunnerState.PLANNED:
            return m.CreateMachine(runner.id)
        case RunnerState.UNKNOWN if runner.terms.userdata and not runner.sealed:
            return None  # nobody has its config: the same call cannot be made again
        case RunnerState.UNKNOWN:
            return m.CreateMachine(runner.id) if runner.failures <= REPLAYS else None
        case RunnerState.REGISTERING:
            return None if runner.registration_id else m.CreateJit(runner.id)
        case RunnerState.LEAVING:
            return m.DeleteRegistration(runner.id)
        case RunnerState.STOPPING:
            if runner.registration_id and runner.absences:
                return m.DeleteRegistration(runner.id)
            return m.StopMachine(runner.id) if runner.ref and runner.absences < 2 else None
    return None
