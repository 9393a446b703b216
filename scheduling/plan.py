"""`plan`: what shall be done now, decided from the whole world (level), never from one event (edge).

Each decision is an Event and is evolved at once, so that the next one sees its effect on caps, holds and supply.
The same world, policy and time always give the same decisions.
"""

from __future__ import annotations

import hashlib
import heapq
from dataclasses import dataclass, field
from itertools import islice

from scheduling import ledger, placement
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.matching import Taste, access_json, matcher
from scheduling.model import Job, LaunchTerms, Pool, Runner, UnixMs, Verdict
from scheduling.placement import Choice, Wish
from scheduling.policy import Policy, RunnerType
from scheduling.reaping import CONFIRM_GAP_MS, finished_for_good, timed_out
from scheduling.windows import is_open
from scheduling.world import Key, World

LAUNCHES_A_TICK = 500
REAPS_A_TICK = 100
"""Kills a round; more wait for the next one, and the metric says that the bound was reached."""

KEPT_MS = 24 * 3_600_000
KEPT_JOBS = 50_000
KEPT_RUNNERS = 20_000
TOMBSTONE_MS = 4 * 24 * 3_600_000
"""GitHub redelivers for three days."""

LOOK_AGAIN_MS = 30_000

_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(slots=True)
class Plan:
    """Decisions in order (already evolved), the records they changed, and when to plan again without news.

    `refusals`: pool key or `floor:TYPE` -> why its demand is not served. `reaps_capped`: more were due.
    """

    decisions: list[m.Event] = field(default_factory=list)
    changed: set[Key] = field(default_factory=set)
    next_wake_ms: UnixMs = 0
    refusals: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)
    reaps_capped: bool = False


class _Draft:
    """One planning round."""

    def __init__(self, world: World, policy: Policy, now_ms: UnixMs) -> None:
        self.world, self.policy, self.now_ms = world, policy, now_ms
        self.plan = Plan()
        self.launches = 0
        self.reaps = 0

    def decide(self, event: m.Event) -> None:
        self.plan.decisions.append(event)
        self.plan.changed |= evolve(self.world, event, self.now_ms)


def plan(world: World, policy: Policy, now_ms: UnixMs) -> Plan:
    """Decide everything that the world calls for at `now_ms`. The world has evolved when it returns."""
    draft = _Draft(world, policy, now_ms)
    _open_funds(draft)
    _wake(draft)
    _route(draft)
    _hand_over(draft)
    _serve(draft)
    _keep_floors(draft)
    _forget(draft)
    draft.plan.next_wake_ms = _next_wake(draft)
    return draft.plan


# ---- money, time, records ----------------------------------------------------------------------------------


def _open_funds(draft: _Draft) -> None:
    for fund in draft.policy.funds.values():
        account = draft.world.funds.get(fund.name)
        if account is None or not account.known:
            event = ledger.opening(fund, draft.now_ms)
            if event is not None:
                draft.decide(event)


def _wake(draft: _Draft) -> None:
    """Judge every record whose time has come."""
    wakes, world = draft.world.wakes, draft.world
    while wakes and wakes[0][0] <= draft.now_ms:
        if draft.reaps >= REAPS_A_TICK:
            draft.plan.reaps_capped = True
            break
        _, kind, key = heapq.heappop(wakes)
        if kind == "runner" and key in world.runners:
            _judge(draft, world.runners[key])
        elif kind == "job" and key in world.blocked:
            world.blocked.pop(key)
            world.unrouted[key] = None


def _judge(draft: _Draft, runner: Runner) -> None:
    now_ms = draft.now_ms
    if finished_for_good(runner):
        _settle(draft, runner)
        return
    reason = timed_out(runner, now_ms)
    if reason is GoneReason.BOOT_TIMEOUT and not runner.suspect_ms:
        draft.decide(m.RunnerSuspected(now_ms, runner.id))
    elif reason is not None:
        _reap(draft, runner, reason)
    elif runner.state is RunnerState.READY and runner.free_ms:
        if now_ms < runner.free_ms + runner.terms.idle_timeout_ms:
            return
        if _above_floor(draft, runner):
            _reap(draft, runner, GoneReason.SURPLUS)
        else:
            draft.world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
    elif runner.state is RunnerState.IDLE and now_ms >= runner.registered_ms + runner.terms.idle_timeout_ms:
        _judge_idle(draft, runner)


def _judge_idle(draft: _Draft, runner: Runner) -> None:
    """Idle and surplus, found so twice and apart: GitHub may have given it a job that we do not know of yet."""
    world, now_ms = draft.world, draft.now_ms
    surplus = len(world.supply.get(runner.pool, ())) > len(world.queued.get(runner.pool, ()))
    if not surplus:
        if runner.suspect_ms:
            draft.decide(m.RunnerSuspected(now_ms, runner.id, clear=True))
        world.wake_at(now_ms + LOOK_AGAIN_MS, "runner", runner.id)
    elif not runner.suspect_ms:
        draft.decide(m.RunnerSuspected(now_ms, runner.id))
    elif now_ms >= runner.suspect_ms + CONFIRM_GAP_MS:
        _reap(draft, runner, GoneReason.IDLE)


def _reap(draft: _Draft, runner: Runner, reason: GoneReason) -> None:
    draft.reaps += 1
    draft.decide(m.ReapDecided(draft.now_ms, runner.id, reason))


def _settle(draft: _Draft, runner: Runner) -> None:
    parts = ledger.bill(runner)
    start, end = ledger.lifetime(runner)
    draft.decide(
        m.RunnerSettled(
            draft.now_ms,
            runner.id,
            parts=tuple((part.fund, part.period, part.amount) for part in parts),
            cost=ledger.price_of(runner.price, end - start),
            overruns=ledger.overruns(draft.policy.funds, draft.world.funds, runner),
        )
    )


def _forget(draft: _Draft) -> None:
    world, old_ms = draft.world, draft.now_ms - KEPT_MS
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


# ---- demand ------------------------------------------------------------------------------------------------


def _route(draft: _Draft) -> None:
    """Give every queued job a pool: that of the runner type with the best placement."""
    world = draft.world
    for key in list(world.unrouted):
        job = world.jobs[key]
        route = matcher(draft.policy).route(job, draft.now_ms)
        pool = _best_pool(draft, job, route.pools) if route.pools else None
        draft.decide(m.JobRouted(draft.now_ms, key, pool, route.blocked, route.again_ms))


def _best_pool(draft: _Draft, job: Job, pools: tuple[Pool, ...]) -> Pool:
    if len(pools) == 1:
        return pools[0]

    def order(pool: Pool) -> tuple[object, ...]:
        choice = _choose(draft, _wish(draft, job, pool))
        return (0, choice.candidate.order) if isinstance(choice, Choice) else (1, ())

    return min(pools, key=order)


def _wish(draft: _Draft, job: Job, pool: Pool) -> Wish:
    rtype = draft.policy.runner_types[pool.runner_type]
    return Wish(rtype, job.repository, pool.providers, matcher(draft.policy).taste(job))


def _choose(draft: _Draft, wish: Wish) -> Choice | tuple[Verdict, ...]:
    if full := _full(draft, wish.rtype):
        return (Verdict(wish.rtype.name, refusal=full),)
    return placement.choose(draft.world, draft.policy, wish, draft.now_ms)


def _full(draft: _Draft, rtype: RunnerType) -> str:
    """Which cap forbids one more runner of this type; empty when none does."""
    world, policy = draft.world, draft.policy
    if policy.max_runners is not None and world.live_count("") >= policy.max_runners:
        return f"the fleet runs its limit of {policy.max_runners} runners"
    if rtype.max_runners is not None and world.live_count(f"type:{rtype.name}") >= rtype.max_runners:
        return f"{rtype.name} runs its max_runners {rtype.max_runners}"
    return ""


# ---- supply ------------------------------------------------------------------------------------------------

_RELEASABLE = (RunnerState.READY, RunnerState.STARTING, RunnerState.UNKNOWN, RunnerState.PLANNED)


def _hand_over(draft: _Draft) -> None:
    """Free what a pool does not need, let booted machines register where a pool needs them."""
    world = draft.world
    for pool in list(world.supply):
        surplus = len(world.supply[pool]) - len(world.queued.get(pool, ()))
        if surplus > 0:
            _release(draft, pool, surplus)
    for runner_id in list(world.by_state[RunnerState.READY]):
        runner = world.runners[runner_id]
        if _drained(draft, runner):
            _reap(draft, runner, GoneReason.DRAINED)
        elif runner.pool:
            _register(draft, runner)


def _release(draft: _Draft, pool: str, surplus: int) -> None:
    members = [draft.world.runners[runner_id] for runner_id in draft.world.supply[pool]]
    for state in reversed(_RELEASABLE):
        for runner in members:
            if surplus and runner.state is state:
                draft.decide(m.RunnerReleased(draft.now_ms, runner.id))
                surplus -= 1


def _drained(draft: _Draft, runner: Runner) -> bool:
    switches = draft.world.switches
    return bool(switches) and any(
        target in switches for target in ("all", f"provider:{runner.offer.provider}", f"type:{runner.runner_type}")
    )


def _register(draft: _Draft, runner: Runner) -> None:
    pool = draft.world.pools[runner.pool]
    draft.decide(m.RunnerAssigned(draft.now_ms, runner.id, pool.key, pool.target))


def _serve(draft: _Draft) -> None:
    """Launch for unmet demand, oldest job first over all pools; a free machine of the type is taken first."""
    world = draft.world
    heap: list[tuple[UnixMs, str, int]] = []
    waiting: dict[str, list[str]] = {}
    for pool, queue in world.queued.items():
        have = len(world.supply.get(pool, ()))
        if have < len(queue):
            waiting[pool] = list(islice(queue, have, have + LAUNCHES_A_TICK))
            heap.append((world.jobs[waiting[pool][0]].queued_ms, pool, 0))
    heapq.heapify(heap)
    while heap and draft.launches < LAUNCHES_A_TICK:
        _, pool, index = heapq.heappop(heap)
        job = world.jobs[waiting[pool][index]]
        if job.pool == pool and not (_take_free(draft, pool) or _launch_for(draft, job)):
            continue
        if index + 1 < len(waiting[pool]):
            since = world.jobs[waiting[pool][index + 1]].queued_ms
            heapq.heappush(heap, (since, pool, index + 1))


def _take_free(draft: _Draft, pool_key: str) -> bool:
    """Assign a free machine of the pool's type whose provider and payers this pool may use, the readiest first."""
    world, policy = draft.world, draft.policy
    pool = world.pools[pool_key]
    found: Runner | None = None
    for runner_id in world.free.get(pool.runner_type, ()):
        runner = world.runners[runner_id]
        if pool.providers is not None and runner.offer.provider not in pool.providers:
            continue
        if _drained(draft, runner) or not _payable(policy, pool, runner):
            continue
        if runner.state is RunnerState.READY:
            found = runner
            break
        found = found or runner
    if found is None:
        return False
    draft.decide(m.RunnerAssigned(draft.now_ms, found.id, pool.key, pool.target))
    return True


def _payable(policy: Policy, pool: Pool, runner: Runner) -> bool:
    """Whether every fund that holds money for the runner may pay for the pool's repository."""
    wish = Wish(policy.runner_types[pool.runner_type], pool.repository, pool.providers, Taste())
    funds = [policy.funds.get(part.fund) for part in runner.hold]
    return all(fund is not None and placement.pays(fund, wish, runner.offer) for fund in funds)


def _launch_for(draft: _Draft, job: Job) -> bool:
    """Launch for this job in its pool, or in another runner type's pool when its own cannot serve it."""
    world = draft.world
    pool = world.pools[job.pool]
    choice = _choose(draft, _wish(draft, job, pool))
    if not isinstance(choice, Choice):
        draft.plan.refusals[pool.key] = choice
        for other in matcher(draft.policy).route(job, draft.now_ms).pools:
            choice = _choose(draft, _wish(draft, job, other)) if other.key != pool.key else choice
            if isinstance(choice, Choice):
                draft.decide(m.JobRouted(draft.now_ms, job.key, other))
                pool = other
                break
        else:
            return False
    if isinstance(choice, Choice):
        _launch(draft, draft.policy.runner_types[pool.runner_type], choice, pool.key, job.key)
    return True


def _launch(draft: _Draft, rtype: RunnerType, choice: Choice, pool: str, job_key: str) -> None:
    draft.launches += 1
    candidate = choice.candidate
    terms = LaunchTerms(
        policy_hash=draft.policy.hash,
        access=access_json(rtype),
        labels=rtype.labels,
        image=choice.image,
        boot_timeout_ms=rtype.boot_timeout_ms,
        register_timeout_ms=rtype.register_timeout_ms,
        idle_timeout_ms=rtype.idle_timeout_ms,
        ready_max_age_ms=rtype.ready_max_age_ms,
        max_lifetime_ms=rtype.max_lifetime_ms,
        disk_gib=rtype.hardware.disk_gib,
    )
    draft.decide(
        m.RunnerPlanned(
            draft.now_ms,
            runner_id=_runner_id(draft.world),
            runner_type=rtype.name,
            pool=pool,
            launched_for=job_key,
            offer=candidate.offer,
            price=candidate.price,
            fund=candidate.fund.name if candidate.fund else "",
            hold=choice.hold,
            terms=terms,
            placement=choice.verdicts,
            probes=choice.probes,
        )
    )


def _runner_id(world: World) -> str:
    """`r` + 20 characters, unique by the leader's epoch and the fleet's count of launches."""
    digest = hashlib.sha256(f"{world.epoch}/{world.totals.launched}".encode()).digest()
    return "r" + "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in digest[:20])


# ---- ready floors ------------------------------------------------------------------------------------------


def floor_of(rtype: RunnerType, now_ms: UnixMs) -> int:
    """Of overlapping windows the largest count; outside all of them 0."""
    return max((floor.count for floor in rtype.ready if is_open(floor.when, now_ms)), default=0)


def _keep_floors(draft: _Draft) -> None:
    for rtype in draft.policy.runner_types.values():
        if not rtype.ready:
            continue
        missing = floor_of(rtype, draft.now_ms) - len(draft.world.free.get(rtype.name, ()))
        wish = Wish(rtype, "", None, Taste())
        while missing > 0 and draft.launches < LAUNCHES_A_TICK:
            choice = _choose(draft, wish)
            if not isinstance(choice, Choice):
                draft.plan.refusals[f"floor:{rtype.name}"] = choice
                break
            _launch(draft, rtype, choice, "", "")
            missing -= 1


def _above_floor(draft: _Draft, runner: Runner) -> bool:
    rtype = draft.policy.runner_types.get(runner.runner_type)
    floor = floor_of(rtype, draft.now_ms) if rtype else 0
    return len(draft.world.free.get(runner.runner_type, ())) > floor


def _next_wake(draft: _Draft) -> UnixMs:
    """The next deadline of a record; soon when a bound was reached; each minute while windows or refusals wait."""
    now_ms, wakes = draft.now_ms, draft.world.wakes
    if draft.launches >= LAUNCHES_A_TICK or draft.plan.reaps_capped:
        return now_ms
    waiting = bool(draft.plan.refusals) or any(rtype.ready for rtype in draft.policy.runner_types.values())
    times = [wakes[0][0]] if wakes else []
    if waiting:
        times.append(now_ms - now_ms % 60_000 + 60_000)
    return min(times, default=0)
