"""`evolve`: the only writer of the world. One small handler an event; states move by the tables of `lifecycle`."""

from __future__ import annotations

from collections.abc import Callable
from sys import intern
from typing import Any

from scheduling import ledger
from scheduling import messages as m
from scheduling.cooling import cool, image_scope, warm
from scheduling.lifecycle import (
    JOB_RANK,
    RUNNER_IGNORED,
    RUNNER_MOVES,
    GoneReason,
    JobState,
    RunnerFact,
    RunnerState,
)
from scheduling.model import Job, RunFacts, Runner, Totals, UnixMs
from scheduling.reaping import ABSENCE_GAP_MS, deadline, finished_for_good, provably_absent
from scheduling.world import Key, World

LONGEST_QUEUE_MS = 24 * 3_600_000
"""GitHub fails a job that was queued for 24 hours; older stated times are not believed."""

TRANSIENT_LIMIT = 4
"""Definite transient failures of one create call before the runner gives way to another offer."""


class IllegalMove(Exception):
    """A fact that this state forbids; carries the runner's story."""

    def __init__(self, runner: Runner, fact: RunnerFact) -> None:
        super().__init__(f"{fact} is illegal for runner {runner.id} in state {runner.state}: {runner!r}")


def evolve(world: World, event: m.Event, now_ms: UnixMs) -> set[Key]:
    """Apply one event in place. Returns the keys of the records that changed. Doubled events change nothing."""
    changed: set[Key] = set()
    _HANDLERS[type(event)](world, event, now_ms, changed)
    return changed


def job_key(job_id: int, run_attempt: int) -> str:
    return f"{job_id}.{run_attempt or 1}"


def backoff_ms(failures: int) -> int:
    """0.5 s doubling to 60 s."""
    return min(500 << min(max(0, failures - 1), 7), 60_000)


# ---- runners: moving by the table --------------------------------------------------------------------------


def _apply(
    world: World, runner: Runner, fact: RunnerFact, now_ms: UnixMs, changed: set[Key], **fields: Any
) -> bool:
    """Set `fields` and move by the table. True when the state's row says that it moves."""
    state = RUNNER_MOVES.get((runner.state, fact))
    if state is None and fact not in RUNNER_IGNORED[runner.state]:
        raise IllegalMove(runner, fact)
    world.unindex_runner(runner)
    for name, value in fields.items():
        setattr(runner, name, value)
    if state is not None:
        _enter(runner, state, now_ms)
    world.index_runner(runner)
    changed.add(("runner", runner.id))
    return state is not None


def _enter(runner: Runner, state: RunnerState, now_ms: UnixMs) -> None:
    """Bookkeeping on entering a state; entering the same one again is a no-op."""
    if state is runner.state:
        return
    runner.state = state
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


def _runner(world: World, event: Any) -> Runner | None:
    return world.runners.get(event.runner_id)


# ---- jobs --------------------------------------------------------------------------------------------------


def _job_reported(world: World, event: m.JobReported, now_ms: UnixMs, changed: set[Key]) -> None:
    key = job_key(event.job_id, event.run_attempt)
    if key in world.tombstones:
        return
    job = world.jobs.get(key)
    if job is None:
        job = _new_job(key, event)
        world.jobs[key] = job
    elif JOB_RANK[event.state] <= JOB_RANK[job.state]:
        return
    else:
        world.unindex_job(job)
        job.state = event.state
    _fill(job, event, world)
    changed.add(("job", key))
    world.index_job(job)
    if job.state is JobState.COMPLETED:
        _count(world.totals, job)
        changed.add(("totals", ""))
    _tell_runner(world, job, now_ms, changed)


def _new_job(key: str, event: m.JobReported) -> Job:
    return Job(
        key=key,
        job_id=event.job_id,
        run_id=event.run_id,
        repository=intern(event.repository),
        labels=tuple(sorted({intern(label.casefold()) for label in event.labels})),
        state=event.state,
        seen_ms=event.at_ms,
    )


def _fill(job: Job, event: m.JobReported, world: World) -> None:
    """Take over what this event states; what it leaves out keeps its value."""
    job.name = event.name or job.name
    job.workflow = event.workflow or job.workflow
    job.branch = event.branch or job.branch
    job.run_id = event.run_id or job.run_id
    if event.state is JobState.QUEUED:
        created = event.created_ms if event.created_ms and not job.queued_ms else event.at_ms
        job.queued_ms = min(event.at_ms, max(created, event.at_ms - LONGEST_QUEUE_MS))
    if event.state in (JobState.IN_PROGRESS, JobState.COMPLETED):
        job.runner_name = event.runner_name or job.runner_name
        runner = world.runner_of(job.runner_name)
        job.runner = runner.id if runner else job.runner
        job.pool = job.pool or (runner.pool if runner else "")
    if event.state is JobState.IN_PROGRESS or (event.state is JobState.COMPLETED and job.runner_name):
        job.started_ms = job.started_ms or min(event.started_ms or event.at_ms, event.at_ms)
    if event.state is JobState.COMPLETED:
        job.conclusion = event.conclusion
        job.completed_ms = min(event.completed_ms or event.at_ms, event.at_ms)


def _count(totals: Totals, job: Job) -> None:
    if job.conclusion == "cancelled":
        totals.cancelled += 1
    elif job.runner_name:
        totals.completed += 1


def _tell_runner(world: World, job: Job, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(job.runner)
    if runner is None:
        return
    if job.state is JobState.IN_PROGRESS:
        _apply(world, runner, RunnerFact.JOB_STARTED, now_ms, changed, running=job.key)
    elif job.state is JobState.COMPLETED and runner.running in ("", job.key):
        ended = {"running": job.key, "ended_ms": job.completed_ms, "reason": runner.reason or GoneReason.DONE}
        ended["started_ms"] = runner.started_ms or job.started_ms
        _apply(world, runner, RunnerFact.JOB_ENDED, now_ms, changed, **ended)


def _job_checked(world: World, event: m.JobChecked, now_ms: UnixMs, changed: set[Key]) -> None:
    job = world.jobs.get(event.job_key)
    if job is not None:
        job.checked_ms = event.at_ms
        changed.add(("job", job.key))


def _run_facts(world: World, event: m.RunFactsLearned, now_ms: UnixMs, changed: set[Key]) -> None:
    world.facts_wanted.pop((event.repository, event.run_id), None)
    for key in sorted(world.runs.get((event.repository, event.run_id), ())):
        job = world.jobs[key]
        world.unindex_job(job)
        job.facts = event.facts or RunFacts(event="", fork=True)
        job.blocked = ""
        world.index_job(job)
        changed.add(("job", key))


def _job_routed(world: World, event: m.JobRouted, now_ms: UnixMs, changed: set[Key]) -> None:
    job = world.jobs.get(event.job_key)
    if job is None or job.state is not JobState.QUEUED:
        return
    world.unindex_job(job)
    job.pool = event.pool.key if event.pool else ""
    job.runner_type = event.pool.runner_type if event.pool else ""
    job.blocked = event.blocked
    world.index_job(job)
    world.wake_at(event.again_ms, "job", job.key)
    changed.add(("job", job.key))
    if event.pool is not None and event.pool.key not in world.pools:
        world.pools[event.pool.key] = event.pool
        changed.add(("pool", event.pool.key))


# ---- launches ----------------------------------------------------------------------------------------------


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
        launched_for=event.launched_for,
        placement=event.placement,
    )
    world.runners[runner.id] = runner
    world.index_runner(runner)
    world.totals.launched += 1
    changed |= {("runner", runner.id), ("totals", "")}
    changed |= ledger.hold(world.funds, runner)
    for scope in event.probes:
        world.cooldowns[scope].probe = runner.id
        changed.add(("cooldown", scope))


def _machine_created(world: World, event: Any, now_ms: UnixMs, changed: set[Key]) -> None:
    """MachineCreated and MachineSeen: the machine exists."""
    runner = _runner(world, event)
    if runner is None or (runner.ref and runner.ref != event.ref):
        return
    fields = {"ref": event.ref, "created_ms": runner.created_ms or event.at_ms, "absences": 0, "absent_ms": 0}
    _apply(world, runner, RunnerFact.CREATED, now_ms, changed, **fields)
    warm(world, runner, changed)


def _create_failed(world: World, event: m.CreateFailed, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None:
        return
    retry = event.trouble is m.Trouble.TRANSIENT and runner.failures + 1 < TRANSIENT_LIMIT
    if retry and runner.state in (RunnerState.PLANNED, RunnerState.UNKNOWN):
        _failed_once(world, runner, event.detail, event.retry_after_ms, now_ms, changed)
        return
    fields = {"detail": event.detail}
    if runner.state is RunnerState.PLANNED:
        fields["reason"] = GoneReason.LAUNCH_FAILED
    if runner.state in (RunnerState.PLANNED, RunnerState.UNKNOWN):
        cool(world, runner, event.trouble, event.detail, now_ms, changed)
    if _apply(world, runner, RunnerFact.CREATE_REFUSED, now_ms, changed, **fields):
        world.totals.failed_launches += 1
        changed.add(("totals", ""))
        changed |= ledger.release(world.funds, runner)


def _create_unknown(world: World, event: m.CreateUnknown, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None:
        return
    failures = runner.failures + 1
    _apply(world, runner, RunnerFact.CREATE_UNKNOWN, now_ms, changed, unknown_ms=event.at_ms, detail=event.detail)
    if runner.state is RunnerState.UNKNOWN:
        runner.failures = failures
        runner.retry_ms = now_ms + 4 * backoff_ms(failures)


def _failed_once(
    world: World, runner: Runner, detail: str, after_ms: int, now_ms: UnixMs, changed: set[Key]
) -> None:
    runner.failures += 1
    runner.detail = detail
    runner.retry_ms = now_ms + (after_ms or backoff_ms(runner.failures))
    changed.add(("runner", runner.id))


def _effect_failed(world: World, event: m.EffectFailed, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is not None and runner.state is not RunnerState.GONE:
        _failed_once(world, runner, event.detail, event.retry_after_ms, now_ms, changed)


# ---- machines and registrations ----------------------------------------------------------------------------


def _stage(world: World, event: m.StageReported, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None or runner.state is RunnerState.GONE:
        return
    match event.stage:
        case m.Stage.BOOTED:
            _apply(world, runner, RunnerFact.BOOTED, now_ms, changed, booted_ms=runner.booted_ms or event.at_ms)
            warm(world, runner, changed)
            if world.cooldowns.pop(image_scope(runner), None):
                changed.add(("cooldown", image_scope(runner)))
        case m.Stage.REGISTERED:
            _apply(world, runner, RunnerFact.REGISTERED, now_ms, changed)
        case m.Stage.STARTED:
            # left-over job code may say anything once the job is over
            if runner.reason is not GoneReason.DONE:
                _apply(world, runner, RunnerFact.JOB_STARTED, now_ms, changed)
        case m.Stage.FAILED | m.Stage.REFUSED:
            runner.detail = event.detail
            changed.add(("runner", runner.id))


def _jit_stored(world: World, event: m.JitStored, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is not None and runner.state is not RunnerState.GONE:
        fields = {"registration_id": event.registration_id, "jit_ms": event.at_ms}
        _apply(world, runner, RunnerFact.JIT_CREATED, now_ms, changed, **fields)


def _registration_seen(world: World, event: m.RegistrationSeen, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None or runner.state is RunnerState.GONE:
        return
    if runner.registration_id != event.registration_id and runner.state is not RunnerState.LEAVING:
        runner.registration_id = event.registration_id
        changed.add(("runner", runner.id))
    if event.online and runner.state is RunnerState.REGISTERING:
        _apply(world, runner, RunnerFact.REGISTERED, now_ms, changed)
    if event.busy and runner.reason is not GoneReason.DONE and runner.state is not RunnerState.BUSY:
        _apply(world, runner, RunnerFact.JOB_STARTED, now_ms, changed)


def _registration_absent(world: World, event: m.RegistrationAbsent, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is not None and runner.state in (RunnerState.REGISTERING, RunnerState.IDLE):
        fields = {"reason": GoneReason.VANISHED, "detail": "GitHub removed its registration", "registration_id": 0}
        _apply(world, runner, RunnerFact.JIT_LOST, now_ms, changed, **fields)


def _registration_deleted(world: World, event: m.RegistrationDeleted, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is not None and runner.state in (RunnerState.LEAVING, RunnerState.STOPPING):
        _apply(world, runner, RunnerFact.DEREGISTERED, now_ms, changed, registration_id=0)
        _settle_soon(world, runner, now_ms)


def _registration_busy(world: World, event: m.RegistrationBusy, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None:
        return
    if runner.state is RunnerState.STOPPING:
        _failed_once(world, runner, "GitHub still counts its registration as busy", 0, now_ms, changed)
    elif runner.reason is GoneReason.MAX_LIFETIME or runner.absences >= 2:
        # the machine goes although GitHub counts a job on it; its registration is deleted after it
        _apply(world, runner, RunnerFact.DEREGISTERED, now_ms, changed)
    else:
        _apply(world, runner, RunnerFact.STILL_BUSY, now_ms, changed)


def _stop_accepted(world: World, event: m.StopAccepted, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is not None and runner.state is not RunnerState.GONE:
        runner.stop_ms = runner.stop_ms or event.at_ms
        runner.failures = 0
        runner.retry_ms = now_ms + 60_000
        changed.add(("runner", runner.id))


def _machine_absent(world: World, event: m.MachineAbsent, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = _runner(world, event)
    if runner is None or runner.state in (RunnerState.GONE, RunnerState.PLANNED):
        return
    if not provably_absent(runner, event.at_ms):
        return
    if runner.absences and event.at_ms < runner.absent_ms + runner.absences * ABSENCE_GAP_MS:
        return
    runner.absent_ms = runner.absent_ms or event.at_ms
    runner.absences += 1
    changed.add(("runner", runner.id))
    if runner.absences >= 2:
        fields: dict[str, Any] = {}
        if runner.state not in (RunnerState.LEAVING, RunnerState.STOPPING):
            never = runner.state is RunnerState.UNKNOWN
            fields["reason"] = GoneReason.NEVER_CREATED if never else GoneReason.VANISHED
        _apply(world, runner, RunnerFact.ABSENT, now_ms, changed, **fields)
        _settle_soon(world, runner, now_ms)


def _settle_soon(world: World, runner: Runner, now_ms: UnixMs) -> None:
    if finished_for_good(runner):
        world.wake_at(now_ms, "runner", runner.id)


def _machine_adopted(world: World, event: m.MachineAdopted, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.runner_id in world.runners:
        _machine_created(world, event, now_ms, changed)
        return
    runner = Runner(
        id=event.runner_id,
        runner_type=event.runner_type,
        offer=event.offer,
        price=event.price,
        fund=event.fund,
        hold=event.hold,
        terms=event.terms,
        state=RunnerState.STARTING,
        planned_ms=event.at_ms,
        created_ms=event.launched_ms,
        ref=event.ref,
        adopted=True,
    )
    world.runners[runner.id] = runner
    world.index_runner(runner)
    changed.add(("runner", runner.id))
    changed |= ledger.hold(world.funds, runner)


def _inventory_taken(world: World, event: m.InventoryTaken, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.epoch == world.epoch:
        world.gates.pop(event.provider, None)


def _offers_listed(world: World, event: m.OffersListed, now_ms: UnixMs, changed: set[Key]) -> None:
    if world.offers.get(event.provider) != event.offers:
        world.offers[event.provider] = event.offers
        world.cache.clear()


def _leadership(world: World, event: m.LeadershipTaken, now_ms: UnixMs, changed: set[Key]) -> None:
    world.epoch = event.epoch
    world.gates = dict.fromkeys(event.providers, "its machines are being listed after a takeover")


def _policy_activated(world: World, event: m.PolicyActivated, now_ms: UnixMs, changed: set[Key]) -> None:
    world.cache.clear()
    if world.totals.policy_hash == event.hash:
        return
    world.totals.policy_hash = event.hash
    changed.add(("totals", ""))
    for key in [*world.blocked, *(key for queue in world.queued.values() for key in queue)]:
        job = world.jobs[key]
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


def _runner_assigned(world: World, event: m.RunnerAssigned, now_ms: UnixMs, changed: set[Key]) -> None:
    fields = {"pool": event.pool, "target": event.target, "free_ms": 0}
    _apply(world, world.runners[event.runner_id], RunnerFact.ASSIGNED, now_ms, changed, **fields)


def _runner_released(world: World, event: m.RunnerReleased, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    free = event.at_ms if runner.state is RunnerState.READY else 0
    _apply(world, runner, RunnerFact.RELEASED, now_ms, changed, pool="", target="", free_ms=free)


def _runner_suspected(world: World, event: m.RunnerSuspected, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    runner.suspect_ms = 0 if event.clear else event.at_ms
    world.wake_at(deadline(runner), "runner", runner.id)
    changed.add(("runner", runner.id))


def _reap(world: World, event: m.ReapDecided, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    unused = not runner.started_ms
    fields = {"reason": event.reason, "detail": event.detail or runner.detail}
    if _apply(world, runner, RunnerFact.REAP, now_ms, changed, **fields):
        world.totals.reaped_unused += unused
        changed.add(("totals", ""))
        if event.reason is GoneReason.BOOT_TIMEOUT and runner.created_ms:
            cool(world, runner, None, event.detail, now_ms, changed)


def _settled(world: World, event: m.RunnerSettled, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners[event.runner_id]
    changed |= ledger.release(world.funds, runner)
    changed |= ledger.settle(world.funds, event)
    _apply(world, runner, RunnerFact.SETTLED, now_ms, changed, cost=event.cost)
    ledger.count(world.totals, runner)
    changed.add(("totals", ""))


def _forgotten(world: World, event: m.RecordsForgotten, now_ms: UnixMs, changed: set[Key]) -> None:
    for key in event.jobs:
        job = world.jobs.pop(key, None)
        if job is not None:
            world.unindex_job(job)
            world.tombstones[key] = job.completed_ms
            changed |= {("job", key), ("tombstone", key)}
    for key in event.tombstones:
        if world.tombstones.pop(key, None) is not None:
            changed.add(("tombstone", key))
    for name in event.runners:
        runner = world.runners.pop(name, None)
        if runner is not None:
            world.unindex_runner(runner)
            changed.add(("runner", name))


_HANDLERS: dict[type, Callable[[World, Any, UnixMs, set[Key]], None]] = {
    m.JobReported: _job_reported,
    m.RunFactsLearned: _run_facts,
    m.JobChecked: _job_checked,
    m.RegistrationSeen: _registration_seen,
    m.RegistrationAbsent: _registration_absent,
    m.MachineCreated: _machine_created,
    m.CreateFailed: _create_failed,
    m.CreateUnknown: _create_unknown,
    m.JitStored: _jit_stored,
    m.RegistrationDeleted: _registration_deleted,
    m.RegistrationBusy: _registration_busy,
    m.StopAccepted: _stop_accepted,
    m.EffectFailed: _effect_failed,
    m.StageReported: _stage,
    m.MachineSeen: _machine_created,
    m.MachineAbsent: _machine_absent,
    m.MachineAdopted: _machine_adopted,
    m.InventoryTaken: _inventory_taken,
    m.OffersListed: _offers_listed,
    m.LeadershipTaken: _leadership,
    m.PolicyActivated: _policy_activated,
    m.SwitchSet: _switch_set,
    m.FundSpentStated: _fund_spent,
    m.JobRouted: _job_routed,
    m.RunnerPlanned: _runner_planned,
    m.RunnerAssigned: _runner_assigned,
    m.RunnerReleased: _runner_released,
    m.RunnerSuspected: _runner_suspected,
    m.ReapDecided: _reap,
    m.RunnerSettled: _settled,
    m.RecordsForgotten: _forgotten,
}
