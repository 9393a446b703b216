"""`evolve`: the only writer of the world. One small handler an event, each in the room of what it is about."""

from __future__ import annotations

from scheduling import demand, job_facts, launch_facts, learning, ledger, machine_facts, reruns
from scheduling import messages as m
from scheduling.lifecycle import GoneReason, RunnerFact, RunnerState
from scheduling.machine_facts import intents_lost
from scheduling.model import Runner, UnixMs
from scheduling.moving import boot_failed, move, unless_registered
from scheduling.reaping import deadline
from scheduling.world import Handlers, Key, World


def evolve(world: World, event: m.Event, now_ms: UnixMs, changed: set[Key] | None = None) -> set[Key]:
    """Apply one event in place. Returns the keys of the records that changed: `changed`, where given, and more.
    Doubled events change nothing.

    Raises `IllegalMove` before anything changed when a runner's state forbids the event.
    """
    if changed is None:
        changed = set()
    _HANDLERS[type(event)](world, event, now_ms, changed)
    return changed


# ---- the fleet ---------------------------------------------------------------------------------------------


def _inventory_taken(world: World, event: m.InventoryTaken, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.epoch == world.epoch and event.at_ms >= world.proof_ms:
        world.gates.pop(event.provider, None)
        world.listed[event.provider] = event.at_ms


def _offers_listed(world: World, event: m.OffersListed, now_ms: UnixMs, changed: set[Key]) -> None:
    if world.offers.get(event.provider) != event.offers:
        world.offers[event.provider] = event.offers
        world.cache.clear()


def _github_paced(world: World, event: m.GitHubPaced, now_ms: UnixMs, changed: set[Key]) -> None:
    world.github_pace[event.owner] = event.per_minute


def _leadership(world: World, event: m.LeadershipTaken, now_ms: UnixMs, changed: set[Key]) -> None:
    world.epoch = event.epoch
    world.gates = dict.fromkeys(event.providers, "its machines are being listed after a takeover")
    world.listed = dict.fromkeys(event.providers, 0)
    world.taken_ms, world.proof_ms = event.at_ms, 0
    if not event.whole:
        intents_lost(world)
    for key in list(world.by_state[RunnerState.PLANNED]):  # the leader before may have sent any of these calls
        if world.runners[key].terms.userdata and not world.runners[key].registration_id:
            continue  # its create call follows its JIT config
        move(world, world.runners[key], RunnerFact.CREATE_UNKNOWN, now_ms, changed, unknown_ms=event.at_ms)


def _policy_activated(world: World, event: m.PolicyActivated, now_ms: UnixMs, changed: set[Key]) -> None:
    world.cache.clear()
    if world.totals.policy_hash == event.hash:
        return
    world.totals.policy_hash = event.hash
    world.totals.half_life_ms = event.half_life_ms
    changed.add(("totals", ""))
    keys = [*world.blocked, *(key for queue in world.queued.values() for key in queue)]
    for job in sorted((world.jobs[key] for key in keys), key=lambda job: (job.queued_ms, job.job_id)):
        world.unindex_job(job)
        job.pool = job.runner_type = job.blocked = ""
        world.index_job(job)


# ---- operator and decisions --------------------------------------------------------------------------------


def _switch_set(world: World, event: m.SwitchSet, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.on:
        world.switches[event.target] = event.by or "operator"
    else:
        world.switches.pop(event.target, None)
    changed.add(("switch", event.target))


def _fund_spent(world: World, event: m.FundSpentStated, now_ms: UnixMs, changed: set[Key]) -> None:
    changed |= ledger.state_spent(world.funds, event)


def _funds_valued(world: World, event: m.FundsValued, now_ms: UnixMs, changed: set[Key]) -> None:
    bids = {bid.fund: bid for bid in event.bids}
    changed |= {("bid", name) for name in world.bids.keys() | bids.keys()}
    world.bids = bids


def _runner_assigned(world: World, event: m.RunnerAssigned, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    fields = {"pool": event.pool, "target": event.target, "repository": event.repository, "free_ms": 0}
    move(world, runner, RunnerFact.ASSIGNED, now_ms, changed, queued_ms=event.queued_ms, **fields)


def _runner_released(world: World, event: m.RunnerReleased, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    free = event.at_ms if runner.state is RunnerState.READY else 0
    fields = {"pool": "", "target": "", "repository": "", "queued_ms": 0}
    move(world, runner, RunnerFact.RELEASED, now_ms, changed, free_ms=free, **fields)


def _runner_suspected(world: World, event: m.RunnerSuspected, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    runner.suspect_ms = 0 if event.clear else event.at_ms
    world.wake_at(deadline(runner), "runner", runner.id)
    changed.add(("runner", runner.id))


def _reap(world: World, event: m.ReapDecided, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    unused = not runner.started_ms
    fields = {"reason": event.reason, "detail": event.detail or runner.detail}
    if move(world, runner, unless_registered(runner, RunnerFact.REAP), now_ms, changed, **fields):
        world.totals.reaped_unused += unused
        changed.add(("totals", ""))
        if event.reason is GoneReason.BOOT_TIMEOUT:
            boot_failed(world, runner, now_ms, changed)


def _settled(world: World, event: m.RunnerSettled, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    changed |= ledger.release(world.funds, runner)
    changed |= ledger.settle(world.funds, event)
    changed |= ledger.book(world.spends, runner, event)
    move(world, runner, RunnerFact.SETTLED, now_ms, changed, cost=event.cost)
    ledger.count(world.totals, runner)
    changed |= demand.used(world, runner.runner_type, *ledger.lifetime(runner), now_ms)
    changed |= learning.ended(world, runner, taken=_was_taken(runner))
    changed.add(("totals", ""))


def _was_taken(runner: Runner) -> bool:
    """Its provider said so, or could not and it vanished under a job."""
    lost = runner.reason is GoneReason.VANISHED and bool(runner.started_ms)
    return bool(runner.taken_ms) or lost or (runner.reason is GoneReason.INTERRUPTED and not runner.started_ms)


def _forgotten(world: World, event: m.RecordsForgotten, now_ms: UnixMs, changed: set[Key]) -> None:
    for key in event.jobs:
        job = world.jobs.pop(key, None)
        if job is not None:
            world.unindex_job(job)
            world.tombstones[key] = job.completed_ms
            changed |= {("job", key), ("tombstone", key)}
            if world.reruns.pop(key, None) is not None:
                world.reruns_due.pop(key, None)
                changed.add(("rerun", key))
    for key in event.tombstones:
        if world.tombstones.pop(key, None) is not None:
            changed.add(("tombstone", key))
    for name in event.runners:
        runner = world.runners.pop(name, None)
        if runner is not None:
            world.unindex_runner(runner)
            changed.add(("runner", name))


_HANDLERS: Handlers = {
    **job_facts.HANDLERS,
    **launch_facts.HANDLERS,
    **machine_facts.HANDLERS,
    **reruns.HANDLERS,
    m.InventoryTaken: _inventory_taken,
    m.OffersListed: _offers_listed,
    m.GitHubPaced: _github_paced,
    m.LeadershipTaken: _leadership,
    m.PolicyActivated: _policy_activated,
    m.SwitchSet: _switch_set,
    m.FundSpentStated: _fund_spent,
    m.FundsValued: _funds_valued,
    m.RunnerAssigned: _runner_assigned,
    m.RunnerReleased: _runner_released,
    m.RunnerSuspected: _runner_suspected,
    m.ReapDecided: _reap,
    m.RunnerSettled: _settled,
    m.RecordsForgotten: _forgotten,
}
