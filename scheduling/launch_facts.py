"""Launches: intents, and what became of their create calls."""

from __future__ import annotations

from typing import Any

from scheduling import learning, ledger
from scheduling import messages as m
from scheduling.cooling import cool, warm
from scheduling.lifecycle import GoneReason, RunnerFact, RunnerState
from scheduling.model import Runner, UnixMs
from scheduling.moving import backoff_ms, failed_once, move, spread_ms, unless_registered
from scheduling.world import Handlers, Key, World

TRANSIENT_LIMIT = 4
"""Definite transient failures of one create call before the runner gives way to another offer."""


def _runner_planned(world: World, event: m.RunnerPlanned, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.runner_id in world.runners:
        return
    runner = Runner(
        id=event.runner_id,
        runner_type=event.runner_type,
        offer=event.offer,
        price=event.price,
        fund=event.fund,
        hold=event.hold,
        terms=event.terms,
        state=RunnerState.PLANNED,
        planned_ms=event.at_ms,
        pool=event.pool,
        target=_early_target(world, event),
        repository=event.repository,
        launched_for=event.launched_for,
        placement=event.placement,
        queued_ms=event.queued_ms,
        waited_for=event.waited_for,
    )
    world.runners[runner.id] = runner
    world.index_runner(runner)
    world.totals.launched += 1
    if event.terms.notice and (job := world.jobs.get(event.launched_for)) is not None:
        job.notice = runner.id
        changed.add(("job", job.key))
    changed |= {("runner", runner.id), ("totals", "")}
    changed |= ledger.hold(world.funds, runner)
    for scope in event.probes:
        world.cooldowns[scope].probe = runner.id
        changed.add(("cooldown", scope))


def _early_target(world: World, event: m.RunnerPlanned) -> str:
    """Where it registers before its machine is made; empty where it registers late. A notice has no pool."""
    if not event.terms.userdata:
        return ""
    return world.pools[event.pool].target if event.pool else f"repo:{event.repository}"


def machine_created(world: World, event: Any, now_ms: UnixMs, changed: set[Key]) -> None:
    """MachineCreated and MachineSeen: the machine exists."""
    runner = world.runners.get(event.runner_id)
    if runner is None or (runner.ref and runner.ref != event.ref):
        return
    fields = {"ref": event.ref, "created_ms": runner.created_ms or event.at_ms, "absences": 0, "absent_ms": 0}
    move(world, runner, RunnerFact.CREATED, now_ms, changed, **fields)
    warm(world, runner, changed)


def _create_failed(world: World, event: m.CreateFailed, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None:
        return
    retry = event.trouble is m.Trouble.TRANSIENT and runner.failures + 1 < TRANSIENT_LIMIT
    if runner.state is RunnerState.UNKNOWN or (retry and runner.state is RunnerState.PLANNED):
        failed_once(world, runner, event.detail, event.retry_after_ms, now_ms, changed)
        return
    fields: dict[str, Any] = {"detail": event.detail}
    fact = RunnerFact.CREATE_REFUSED
    if runner.state is RunnerState.PLANNED:
        fields["reason"] = GoneReason.LAUNCH_FAILED
        cool(world, runner, event.trouble, event.detail, now_ms, changed)
        fact = unless_registered(runner, fact)
    if fact is RunnerFact.WITHDRAWN:  # the refusal proves that there is no machine
        fields.update(absences=2, absent_ms=now_ms)
    if move(world, runner, fact, now_ms, changed, **fields):
        world.totals.failed_launches += 1
        if event.trouble is not m.Trouble.OBSERVED:
            changed |= learning.launch_failed(world, runner)
        changed.add(("totals", ""))
        if runner.state is RunnerState.GONE:
            changed |= ledger.release(world.funds, runner)


def _create_unknown(world: World, event: m.CreateUnknown, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None:
        return
    failures = runner.failures + 1
    move(world, runner, RunnerFact.CREATE_UNKNOWN, now_ms, changed, unknown_ms=event.at_ms, detail=event.detail)
    if runner.state is RunnerState.UNKNOWN:
        runner.failures = failures
        runner.retry_ms = now_ms + spread_ms(runner, 4 * backoff_ms(failures))


def _effect_failed(world: World, event: m.EffectFailed, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is not None and runner.state is not RunnerState.GONE:
        failed_once(world, runner, event.detail, event.retry_after_ms, now_ms, changed)


HANDLERS: Handlers = {
    m.MachineCreated: machine_created,
    m.CreateFailed: _create_failed,
    m.CreateUnknown: _create_unknown,
    m.EffectFailed: _effect_failed,
    m.MachineSeen: machine_created,
    m.RunnerPlanned: _runner_planned,
}
