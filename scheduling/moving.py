"""How a runner moves: by the tables of `lifecycle`, with the bookkeeping of each state."""

from __future__ import annotations

from typing import Any
from zlib import crc32

from scheduling import learning
from scheduling.cooling import boots, cool
from scheduling.lifecycle import RUNNER_IGNORED, RUNNER_MOVES, RunnerFact, RunnerState
from scheduling.model import DurationMs, Runner, UnixMs
from scheduling.world import Key, World

_BOOTING = frozenset({RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING})
_HEARD_OF = frozenset({RunnerState.READY, RunnerState.IDLE, RunnerState.BUSY, RunnerState.LEAVING})


class IllegalMove(Exception):
    """A fact that this state forbids; carries the runner's story."""

    def __init__(self, runner: Runner, fact: RunnerFact) -> None:
        super().__init__(f"{fact} is illegal for runner {runner.id} in state {runner.state}: {runner!r}")


def move(world: World, runner: Runner, fact: RunnerFact, now_ms: UnixMs, changed: set[Key], **fields: Any) -> bool:
    """Set `fields` and move by the table. True when the state's row says that it moves."""
    state = RUNNER_MOVES.get((runner.state, fact))
    if state is None and fact not in RUNNER_IGNORED[runner.state]:
        raise IllegalMove(runner, fact)
    heard_of = state in _HEARD_OF and runner.state in _BOOTING
    if state is RunnerState.GONE:
        world.unindex_runner(runner)
        left = ""
    else:
        left = world.displace_runner(runner)
        if fields.get("repository", runner.repository) != runner.repository:
            world.move_to_repository(runner, fields["repository"])
    for name, value in fields.items():
        setattr(runner, name, value)
    if state is not None:
        _enter(runner, state, now_ms)
    joined = world.place_runner(runner)
    if joined != left:
        world.weigh(left)
        world.weigh(joined)
    changed.add(("runner", runner.id))
    if heard_of:
        boots(world, runner, changed)
        changed |= learning.booted(world, runner)
    return state is not None


def unless_registered(runner: Runner, fact: RunnerFact) -> RunnerFact:
    """That fact; WITHDRAWN for one that has a registration already although its machine has not."""
    return RunnerFact.WITHDRAWN if runner.registration_id and runner.state in _BOOTING else fact


def boot_failed(world: World, runner: Runner, now_ms: UnixMs, changed: set[Key]) -> None:
    """A machine that existed never became ready: a mark against its offer and its image."""
    if not runner.created_ms or runner.adopted:
        return
    changed |= learning.launch_failed(world, runner)
    said = runner.detail or (f"it stopped at: {runner.boot}" if runner.boot else "it never called")
    why = f"machines of this image did not boot one after the other; the last, {runner.id}: {said}"
    cool(world, runner, None, why, now_ms, changed)


def _enter(runner: Runner, state: RunnerState, now_ms: UnixMs) -> None:
    """Bookkeeping on entering a state; entering the same one again is a no-op."""
    if state is runner.state:
        return
    runner.state = state
    if state is not RunnerState.UNKNOWN:
        runner.sealed = ""
    runner.failures = 0
    runner.retry_ms = 0
    match state:
        case RunnerState.READY:
            runner.booted_ms = runner.booted_ms or now_ms
            runner.free_ms = 0 if runner.pool else now_ms
            runner.suspect_ms = 0
        case RunnerState.REGISTERING:
            runner.assigned_ms = now_ms
        case RunnerState.IDLE:
            runner.booted_ms = runner.booted_ms or now_ms
            runner.registered_ms = now_ms
            runner.suspect_ms = 0
        case RunnerState.BUSY:
            runner.started_ms = runner.started_ms or now_ms
            runner.reason = None
            runner.suspect_ms = 0
        case RunnerState.LEAVING:
            runner.leaving_ms = now_ms
        case RunnerState.GONE:
            runner.gone_ms = now_ms


def failed_once(
    world: World, runner: Runner, detail: str, after_ms: int, now_ms: UnixMs, changed: set[Key]
) -> None:
    runner.failures += 1
    runner.detail = detail
    runner.retry_ms = now_ms + spread_ms(runner, after_ms or backoff_ms(runner.failures))
    changed.add(("runner", runner.id))


def spread_ms(runner: Runner, wait_ms: DurationMs) -> DurationMs:
    """The wait and up to half of it more, by the runner's id: what failed together is not tried again together."""
    share = crc32(f"{runner.id}/{runner.failures}".encode()) % 1000
    return wait_ms + wait_ms * share // 2000


def backoff_ms(failures: int) -> DurationMs:
    """0.5 s doubling to 60 s."""
    return min(500 << min(max(0, failures - 1), 7), 60_000)
