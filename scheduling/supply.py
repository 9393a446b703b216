"""From demand to launches: pools for jobs, machines for pools, ready floors for types."""

from __future__ import annotations

import hashlib
import heapq
from itertools import islice

from scheduling import learning, placement
from scheduling import messages as m
from scheduling.draft import LAUNCHES_A_TICK, Draft
from scheduling.fairness import Turn, Turns
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.matching import Taste, access_json, matcher
from scheduling.model import Job, LaunchTerms, Pool, Runner, Verdict
from scheduling.placement import Choice, Wish
from scheduling.policy import Policy, RunnerType
from scheduling.registering import crowded, launched
from scheduling.reuse import Booting, drained, take_free
from scheduling.upkeep import floor_of, reap, with_floor
from scheduling.world import LIVE_NAMES, PAUSED, World

_ID_LETTERS = bytes(b"abcdefghijklmnopqrstuvwxyz0123456789"[byte % 36] for byte in range(256))

# ---- demand ------------------------------------------------------------------------------------------------


def route(draft: Draft) -> None:
    """Give every queued job a pool: that of the runner type with the best placement."""
    world = draft.world
    for key in list(world.unrouted):
        job = world.jobs[key]
        found = matcher(draft.policy).route(job, draft.now_ms)
        pool = _best_pool(draft, job, found.pools) if found.pools else None
        draft.decide(m.JobRouted(draft.now_ms, key, pool, found.blocked, found.again_ms, len(found.pools) > 1))


def _best_pool(draft: Draft, job: Job, pools: tuple[Pool, ...]) -> Pool:
    if len(pools) == 1:
        return pools[0]

    def order(pool: Pool) -> tuple[object, ...]:
        choice = _choose_for(draft, job, pool)
        return (0, choice.candidate.order) if isinstance(choice, Choice) else (1, ())

    return min(pools, key=order)


def choose(draft: Draft, wish: Wish) -> Choice | tuple[Verdict, ...]:
    return _full(draft, wish.rtype) or placement.choose(draft.world, draft.policy, wish, draft.now_ms)


def _choose_for(draft: Draft, job: Job, pool: Pool) -> Choice | tuple[Verdict, ...]:
    rtype = draft.policy.runner_types[pool.runner_type]
    if full := _full(draft, rtype):  # before its wish is made: hundreds of pools may share a full type
        return full
    taste = matcher(draft.policy).taste(job)
    return choose(draft, Wish(rtype, job.repository, pool.providers, taste, learning.job_ms(draft.world, job)))


def _full(draft: Draft, rtype: RunnerType) -> tuple[Verdict, ...]:
    """Which cap forbids one more runner of this type; empty when none does. What is full stays so in a round."""
    world, policy, name, why = draft.world, draft.policy, rtype.name, ""
    if name in draft.full:
        return draft.full[name]
    if policy.max_runners is not None and world.live_count("") >= policy.max_runners:
        why = f"the fleet runs its limit of {policy.max_runners} runners"
    elif rtype.max_runners is not None and world.live_count(f"type:{name}") >= rtype.max_runners:
        why = f"{name} runs its max_runners {rtype.max_runners}"
    if not why:
        return ()
    draft.full[name] = (Verdict(name, refusal=why),)
    return draft.full[name]


# ---- supply ------------------------------------------------------------------------------------------------

_RELEASABLE = (RunnerState.READY, RunnerState.STARTING, RunnerState.UNKNOWN, RunnerState.PLANNED)


def hand_over(draft: Draft) -> None:
    """Free what a pool does not need, let booted machines register where a pool needs them."""
    world = draft.world
    for pool in [pool for pool in world.supply if pool in world.surplus] if world.surplus else ():
        _release(draft, pool, len(world.supply[pool]) - len(world.queued.get(pool, ())))
    _drain(draft)
    for runner_id in list(world.by_state[RunnerState.READY]):
        runner = world.runners[runner_id]
        if runner.pool and not runner.interrupted_ms and not drained(draft, runner):
            _register(draft, runner)


def _drain(draft: Draft) -> None:
    """What is not wanted any more and runs no job goes; GitHub keeps a registered runner whose job has begun."""
    world, policy = draft.world, draft.policy
    holding = {name for name, account in world.funds.items() if account.held}
    if world.switches.keys() <= {PAUSED} and holding <= policy.funds.keys() and _all_named(world, policy):
        return
    for state in (*_RELEASABLE, RunnerState.IDLE):
        for runner_id in list(world.by_state[state]):
            if drained(draft, world.runners[runner_id]):
                reap(draft, world.runners[runner_id], GoneReason.DRAINED)
            if draft.plan.reaps_capped:
                return


def _all_named(world: World, policy: Policy) -> bool:
    """Whether the policy names the type and provider of every live runner; kept until one of another lives."""
    if world.cache.get(LIVE_NAMES) != policy.hash:
        providers = {scope[9:] for scope in world.live if scope.startswith("provider:")}
        types = {scope[5:] for scope in world.live if scope.startswith("type:")}
        if not (providers <= policy.providers.keys() and types <= policy.runner_types.keys()):
            return False
        world.cache[LIVE_NAMES] = policy.hash
    return True


def _release(draft: Draft, pool: str, surplus: int) -> None:
    members = [draft.world.runners[runner_id] for runner_id in draft.world.supply[pool]]
    members = [runner for runner in members if runner.state in _RELEASABLE]
    for state in reversed(_RELEASABLE):
        for runner in members:
            if surplus and runner.state is state and not runner.terms.userdata:  # those are registered here
                draft.decide(m.RunnerReleased(draft.now_ms, runner.id))
                surplus -= 1


def _register(draft: Draft, runner: Runner) -> None:
    pool = draft.world.pools[runner.pool]
    draft.decide(
        m.RunnerAssigned(draft.now_ms, runner.id, pool.key, pool.target, runner.repository, runner.queued_ms)
    )


def serve(draft: Draft) -> None:
    """Launch for unmet demand in the order of fair share; a free machine of the type is taken first."""
    world = draft.world
    turns = Turns(world, draft.policy.fair_share, draft.now_ms)
    booting = Booting(draft, turns)
    heap = [(_turn(draft, turns, pool), pool) for pool in _unmet(draft, turns, booting)]
    heapq.heapify(heap)
    while heap and draft.launches < LAUNCHES_A_TICK:
        turn, pool = heapq.heappop(heap)
        if len(world.queued.get(pool, ())) <= len(world.supply.get(pool, ())):
            continue
        name = world.pools[pool].runner_type
        if name in draft.full and not _served_without_launch(draft, booting, pool):
            draft.plan.refusals[pool] = draft.full[name]
            continue
        now = _turn(draft, turns, pool)
        if now > turn or _serve_one(draft, turns, booting, pool):  # launches since made it somebody else's turn
            heapq.heappush(heap, (now, pool))


def _served_without_launch(draft: Draft, booting: Booting, pool: str) -> bool:
    """Whether a pool may be served although its type is full: by a machine that exists, or by another type."""
    world = draft.world
    record = world.pools[pool]
    name = record.runner_type
    return name in world.free or pool in world.flexible or (booting.has(name) and bool(booting.owed(record)))


def _unmet(draft: Draft, turns: Turns, booting: Booting) -> list[str]:
    """Pools with more demand than supply that some cap does not already forbid to serve."""
    world, refusals, found = draft.world, draft.plan.refusals, list[str]()
    for name, unmet in world.unmet.items():
        pools = list(unmet)
        full = _full(draft, draft.policy.runner_types[name])
        if full and name not in world.free:
            refusals |= dict.fromkeys(unmet, full)
            pools = pools if booting.has(name) else [pool for pool in world.flexible if pool in unmet]
        for pool in pools:
            if full and not _served_without_launch(draft, booting, pool):
                continue
            record = world.pools[pool]
            if capped := turns.capped(record.repository):
                refusals[pool] = (Verdict(name, refusal=capped),)
            elif (crowd := crowded(draft, record.target)) and name not in world.free and not booting.owed(record):
                refusals[pool] = (Verdict(name, refusal=crowd),)
            else:
                refusals.pop(pool, None)
                found.append(pool)
    return found


def _turn(draft: Draft, turns: Turns, pool: str) -> Turn:
    head = next(iter(draft.world.queued[pool]))
    return turns.turn(draft.world.pools[pool].repository, draft.world.jobs[head].queued_ms)


def _serve_one(draft: Draft, turns: Turns, booting: Booting, pool: str) -> bool:
    """One runner for the pool's first unserved job. False: the pool cannot be served in this round."""
    world = draft.world
    key = next(islice(world.queued[pool], len(world.supply.get(pool, ())), None))
    job = world.jobs[key]
    if capped := turns.capped(job.repository):
        draft.plan.refusals[pool] = (Verdict(world.pools[pool].runner_type, refusal=capped),)
        return False
    if not (take_free(draft, pool, job) or _launch_for(draft, job) or booting.take_over(pool, job)):
        return False
    turns.launched(job.repository)
    return True


def _launch_for(draft: Draft, job: Job) -> bool:
    """Launch for this job in its pool, or in another runner type's pool when its own cannot serve it."""
    world = draft.world
    pool = world.pools[job.pool]
    if crowd := crowded(draft, pool.target):
        draft.plan.refusals[pool.key] = (Verdict(pool.runner_type, refusal=crowd),)
        return False
    choice = _choose_for(draft, job, pool)
    if not isinstance(choice, Choice):
        draft.plan.refusals[pool.key] = choice
        for other in matcher(draft.policy).route(job, draft.now_ms).pools if job.flexible else ():
            choice = _choose_for(draft, job, other) if other.key != pool.key else choice
            if isinstance(choice, Choice):
                draft.decide(m.JobRouted(draft.now_ms, job.key, other, flexible=True))
                pool = other
                break
        else:
            return False
    if isinstance(choice, Choice):
        launch(draft, draft.policy.runner_types[pool.runner_type], choice, pool.key, job)
    return True


def launch(draft: Draft, rtype: RunnerType, choice: Choice, pool: str, job: Job | None) -> None:
    draft.launches += 1
    if pool:
        launched(draft, draft.world.pools[pool].target)
    draft.decide(planned(draft, rtype, choice, pool, job))


def planned(draft: Draft, rtype: RunnerType, choice: Choice, pool: str, job: Job | None) -> m.RunnerPlanned:
    """The intent of one launch."""
    candidate = choice.candidate
    return m.RunnerPlanned(
        draft.now_ms,
        runner_id=_runner_id(draft.world),
        runner_type=rtype.name,
        pool=pool,
        repository=job.repository if job else "",
        launched_for=job.key if job else "",
        offer=candidate.offer,
        price=candidate.price,
        fund=candidate.fund.name if candidate.fund else "",
        hold=choice.hold,
        terms=_terms(draft.policy, rtype, choice),
        placement=choice.verdicts,
        probes=choice.probes,
        queued_ms=job.queued_ms if job else 0,
        waited_for=next((f"{first.offer}: {first.refusal}" for first in draft.world.refused.get(pool, ())), ""),
    )


def _terms(policy: Policy, rtype: RunnerType, choice: Choice) -> LaunchTerms:
    """Made once for all launches of one type and image."""
    image = choice.image
    key = f"terms:{rtype.name}:{image}"
    found = policy.memo.get(key)
    if not isinstance(found, LaunchTerms):
        offer = choice.candidate.offer
        trial = placement.image_of(policy, rtype, policy.providers[offer.provider], offer, trial=True)
        found = policy.memo[key] = LaunchTerms(
            policy_hash=policy.hash,
            access=access_json(rtype),
            labels=rtype.labels,
            image=image,
            boot_timeout_ms=rtype.boot_timeout_ms,
            register_timeout_ms=rtype.register_timeout_ms,
            idle_timeout_ms=rtype.idle_timeout_ms,
            ready_max_age_ms=rtype.ready_max_age_ms,
            max_lifetime_ms=rtype.max_lifetime_ms,
            disk_gib=rtype.hardware.disk_gib,
            trial=image == trial,
            userdata=rtype.bootstrap == "userdata",
        )
    return found


def _runner_id(world: World) -> str:
    """`r` + 20 characters, unique by the leader's epoch and the fleet's count of launches."""
    digest = hashlib.sha256(f"{world.epoch}/{world.totals.launched}".encode()).digest()
    return "r" + digest[:20].translate(_ID_LETTERS).decode()


# ---- ready floors ------------------------------------------------------------------------------------------


def keep_floors(draft: Draft) -> None:
    for rtype in with_floor(draft.policy):
        missing = floor_of(rtype, draft.now_ms) - len(draft.world.free.get(rtype.name, ()))
        wish = Wish(rtype, "", None, Taste())
        while missing > 0 and draft.launches < LAUNCHES_A_TICK:
            choice = choose(draft, wish)
            if not isinstance(choice, Choice):
                draft.plan.refusals[f"floor:{rtype.name}"] = choice
                break
            launch(draft, rtype, choice, "", None)
            missing -= 1
