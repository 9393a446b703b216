"""What time alone calls for: funds that open, runners that are due, settlements, records to forget."""

from __future__ import annotations

import heapq
from itertools import islice

from scheduling import ledger
from scheduling import messages as m
from scheduling.draft import REAPS_A_MINUTE, Draft
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.model import Runner, UnixMs
from scheduling.policy import MINUTE_MS, Policy, RunnerType
from scheduling.reaping import CONFIRM_GAP_MS, finished_for_good, timed_out
from scheduling.windows import is_open

KEPT_MS = 24 * 3_600_000
KEPT_JOBS = 50_000
KEPT_RUNNERS = 20_000
TOMBSTONE_MS = 4 * 24 * 3_600_000
"""GitHub redelivers for three days."""

LOOK_AGAIN_MS = 30_000
FORGET_GAP_MS = 15_000


def open_funds(draft: Draft) -> None:
    for fund in draft.policy.funds.values():
        account = draft.world.funds.get(fund.name)
        if account is None or not account.known:
            event = ledger.opening(fund, draft.now_ms)
            if event is not None:
                draft.decide(event)


def wake(draft: Draft) -> None:
    """Judge every record whose time has come."""
    wakes, world = draft.world.wakes, draft.world
    while wakes and wakes[0][0] <= draft.now_ms:
        at_ms, kind, key = heapq.heappop(wakes)
        if world.due.get(key) == at_ms:
            del world.due[key]
        if kind == "runner" and key in world.runners:
            _judge(draft, world.runners[key])
            world.watch_runner(world.runners[key], draft.now_ms)
        elif kind == "job" and key in world.blocked:
            world.blocked.pop(key)
            world.unrouted[key] = None


def _judge(draft: Draft, runner: Runner) -> None:
    now_ms = draft.now_ms
    if finished_for_good(runner):
        _settle(draft, runner)
        return
    reason = timed_out(runner, now_ms)
    if reason is GoneReason.BOOT_TIMEOUT and _may_work(draft, runner):
        draft.world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
    elif reason is GoneReason.BOOT_TIMEOUT and not runner.suspect_ms:
        draft.decide(m.RunnerSuspected(now_ms, runner.id))
    elif reason is not None:
        reap(draft, runner, reason)
    elif runner.state is RunnerState.READY and runner.free_ms:
        if now_ms < runner.free_ms + runner.terms.idle_timeout_ms:
            return
        if runner.adopted or above_floor(draft, runner):
            reap(draft, runner, GoneReason.SURPLUS)
        else:
            draft.world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
    elif runner.state is RunnerState.IDLE and now_ms >= runner.registered_ms + runner.terms.idle_timeout_ms:
        _judge_idle(draft, runner)


def _may_work(draft: Draft, runner: Runner) -> bool:
    """Whether GitHub may know of a job on this silent adopted machine; for as long as a job may last."""
    unlisted = runner.adopted and draft.world.registrations_ms <= runner.planned_ms
    return unlisted and draft.now_ms < runner.planned_ms + runner.terms.max_lifetime_ms


def _judge_idle(draft: Draft, runner: Runner) -> None:
    """Idle and surplus, found so twice and apart: GitHub may have given it a job that we do not know of yet."""
    world, now_ms = draft.world, draft.now_ms
    if not runner.pool:  # only GitHub knows where it is registered, so nobody can ask whether a job runs on it
        if now_ms >= runner.registered_ms + runner.terms.max_lifetime_ms:
            reap(draft, runner, GoneReason.MAX_LIFETIME)
        else:
            world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
        return
    surplus = len(world.supply.get(runner.pool, ())) > len(world.queued.get(runner.pool, ()))
    if not surplus:
        if runner.suspect_ms:
            draft.decide(m.RunnerSuspected(now_ms, runner.id, clear=True))
        world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
    elif not runner.suspect_ms:
        draft.decide(m.RunnerSuspected(now_ms, runner.id))
    elif now_ms >= runner.suspect_ms + CONFIRM_GAP_MS:
        reap(draft, runner, GoneReason.IDLE)


def reap(draft: Draft, runner: Runner, reason: GoneReason) -> None:
    """Let it go, unless this minute's kills are used up: then it is judged again in the next one."""
    world, minute = draft.world, draft.now_ms // MINUTE_MS
    if world.reaps[0] != minute:
        world.reaps = (minute, 0)
    if world.reaps[1] >= REAPS_A_MINUTE:
        draft.plan.reaps_capped = True
        world.wake_at((minute + 1) * MINUTE_MS, "runner", runner.id)
        return
    world.reaps = (minute, world.reaps[1] + 1)
    draft.decide(m.ReapDecided(draft.now_ms, runner.id, reason))


def _settle(draft: Draft, runner: Runner) -> None:
    parts = ledger.bill(runner)
    start, end = ledger.lifetime(runner)
    draft.decide(
        m.RunnerSettled(
            draft.now_ms,
            runner.id,
            parts=tuple((part.fund, part.period, part.amount) for part in parts),
            cost=ledger.price_of(runner.price, end - start),
        )
    )


def forget(draft: Draft) -> None:
    world, old_ms = draft.world, draft.now_ms - KEPT_MS
    if draft.now_ms < world.next_forget_ms:
        return
    world.next_forget_ms = draft.now_ms + FORGET_GAP_MS
    jobs: list[str] = []
    for key in islice(world.finished, 1000):
        if world.jobs[key].completed_ms > old_ms and len(world.finished) - len(jobs) <= KEPT_JOBS:
            break
        jobs.append(key)
    tombstones = []
    for key, at_ms in islice(world.tombstones.items(), 1000):
        if at_ms > draft.now_ms - TOMBSTONE_MS:
            break
        tombstones.append(key)
    gone = world.by_state[RunnerState.GONE]
    runners: list[str] = []
    for key in islice(gone, 1000):
        if world.runners[key].gone_ms > old_ms and len(gone) - len(runners) <= KEPT_RUNNERS:
            break
        runners.append(key)
    if jobs or tombstones or runners:
        draft.decide(m.RecordsForgotten(draft.now_ms, tuple(jobs), tuple(tombstones), tuple(runners)))


def with_floor(policy: Policy) -> tuple[RunnerType, ...]:
    if "floors" not in policy.memo:
        policy.memo["floors"] = tuple(rtype for rtype in policy.runner_types.values() if rtype.ready)
    found: tuple[RunnerType, ...] = policy.memo["floors"]
    return found


def floor_of(rtype: RunnerType, now_ms: UnixMs) -> int:
    """Of overlapping windows the largest count; outside all of them 0."""
    return max((floor.count for floor in rtype.ready if is_open(floor.when, now_ms)), default=0)


def above_floor(draft: Draft, runner: Runner) -> bool:
    rtype = draft.policy.runner_types.get(runner.runner_type)
    floor = floor_of(rtype, draft.now_ms) if rtype else 0
    return len(draft.world.free.get(runner.runner_type, ())) > floor
