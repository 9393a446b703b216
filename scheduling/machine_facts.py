"""Machines and their registrations: callbacks, GitHub's answers, inventories."""

from __future__ import annotations

from typing import Any

from scheduling import ledger
from scheduling import messages as m
from scheduling.cooling import cool
from scheduling.launch_facts import machine_created
from scheduling.lifecycle import GoneReason, JobState, RunnerFact, RunnerState
from scheduling.model import BOOT_FAILED, Pool, Purchase, Runner, UnixMs
from scheduling.moving import boot_failed, failed_once, move, unless_registered
from scheduling.reaping import ABSENCE_GAP_MS, CONSISTENCY_MS, finished_for_good, provably_absent
from scheduling.world import Handlers, Key, World


def _stage(world: World, event: m.StageReported, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None or runner.state is RunnerState.GONE:
        return
    runner.heard_ms = max(runner.heard_ms, event.at_ms)
    changed.add(("runner", runner.id))
    match event.stage:
        case m.Stage.BOOTING:
            if runner.boot != event.detail:
                runner.boot, runner.boot_since_ms = event.detail, event.at_ms
        case m.Stage.BOOTED if runner.terms.userdata:
            runner.booted_ms = runner.booted_ms or event.at_ms  # it needs nothing more from us
        case m.Stage.BOOTED:
            move(world, runner, RunnerFact.BOOTED, now_ms, changed, booted_ms=runner.booted_ms or event.at_ms)
        case m.Stage.REGISTERED:
            move(world, runner, RunnerFact.REGISTERED, now_ms, changed)
        case m.Stage.STARTED:
            # left-over job code may say anything once the job, or its time, is over
            if runner.reason not in _OVER:
                move(world, runner, RunnerFact.JOB_STARTED, now_ms, changed)
        case m.Stage.INTERRUPTED:
            _interrupted(world, runner, event, now_ms, changed)
        case m.Stage.FAILED | m.Stage.REFUSED:
            runner.detail = event.detail
            if not runner.registered_ms and not runner.started_ms:
                runner.boot, runner.log = BOOT_FAILED, event.log
        case m.Stage.TOO_OLD:
            runner.detail = event.detail
            # a job's code could say so too, but its runner has registered
            if not runner.registered_ms and not runner.started_ms:
                runner.boot, runner.log = BOOT_FAILED, event.log
                cool(world, runner, m.Trouble.UNAUTHORIZED, event.detail, now_ms, changed)


def _interrupted(world: World, runner: Runner, event: m.StageReported, now_ms: UnixMs, changed: set[Key]) -> None:
    """No new work for it. Job code could say so too: only before the JIT config does the offer suffer for it."""
    if runner.interrupted_ms or runner.offer.purchase is not Purchase.SPOT:
        return
    world.unindex_runner(runner)
    runner.interrupted_ms, runner.detail = event.at_ms, event.detail
    world.index_runner(runner)
    changed.add(("runner", runner.id))
    if not runner.jit_ms and not runner.started_ms:
        cool(world, runner, m.Trouble.NO_CAPACITY, TAKEN, now_ms, changed)


def _machine_taken(world: World, event: m.MachineTaken, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is not None and not runner.taken_ms:
        runner.taken_ms = event.at_ms
        world.index_taken(runner)
        changed.add(("runner", runner.id))
        cool(world, runner, m.Trouble.NO_CAPACITY, TAKEN, now_ms, changed)


TAKEN = "spot machines are being taken back there"


def _jit_stored(world: World, event: m.JitStored, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None or runner.state is RunnerState.GONE:
        return
    fields: dict[str, Any] = {"registration_id": event.registration_id, "jit_ms": event.at_ms}
    if runner.terms.userdata:
        if runner.registration_id:
            return  # the config that may be on its way to the machine stays the one
        if runner.state is RunnerState.PLANNED:
            fields.update(sealed=event.sealed, failures=0, retry_ms=0)
    move(world, runner, RunnerFact.JIT_CREATED, now_ms, changed, **fields)


def _registration_seen(world: World, event: m.RegistrationSeen, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None or runner.state is RunnerState.GONE:
        return
    serves = event.online or event.busy or runner.state not in _UNREGISTERED
    if runner.state is not RunnerState.LEAVING:
        if runner.registration_id != event.registration_id:
            runner.registration_id = event.registration_id
            changed.add(("runner", runner.id))
        if event.target and event.target != runner.target and serves:
            _join_pool(world, runner, event.target, changed)
    if event.online and runner.state in _UNREGISTERED:
        move(world, runner, RunnerFact.REGISTERED, now_ms, changed)
    if event.busy and runner.reason not in _OVER and runner.state is not RunnerState.BUSY:
        move(world, runner, RunnerFact.JOB_STARTED, now_ms, changed)


_UNREGISTERED = (
    RunnerState.PLANNED,
    RunnerState.UNKNOWN,
    RunnerState.STARTING,
    RunnerState.READY,
    RunnerState.REGISTERING,
)
_OVER = (GoneReason.DONE, GoneReason.MAX_LIFETIME)
"""Ends that no later word of a running job undoes."""


def _join_pool(world: World, runner: Runner, target: str, changed: set[Key]) -> None:
    """It is registered elsewhere than we knew (a store lost that): it serves whoever is served there."""
    repository = target.removeprefix("repo:") if target.startswith("repo:") else ""
    pool = Pool(f"{runner.runner_type}@{target}", runner.runner_type, target, repository)
    if pool.key not in world.pools:
        world.pools[pool.key] = pool
        changed.add(("pool", pool.key))
    world.unindex_runner(runner)
    runner.target, runner.pool, runner.free_ms = target, pool.key, 0
    runner.repository = repository
    world.index_runner(runner)
    changed.add(("runner", runner.id))


def _registrations_listed(world: World, event: m.RegistrationsListed, now_ms: UnixMs, changed: set[Key]) -> None:
    world.registrations_ms = max(world.registrations_ms, event.at_ms)


def _registration_absent(world: World, event: m.RegistrationAbsent, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is not None and runner.state in (RunnerState.REGISTERING, RunnerState.IDLE):
        fields = {"reason": GoneReason.VANISHED, "detail": "GitHub removed its registration", "registration_id": 0}
        move(world, runner, RunnerFact.JIT_LOST, now_ms, changed, **fields)


def _registration_deleted(world: World, event: m.RegistrationDeleted, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is not None and runner.state in (RunnerState.LEAVING, RunnerState.STOPPING):
        move(world, runner, RunnerFact.DEREGISTERED, now_ms, changed, registration_id=0)
        _settle_soon(world, runner, now_ms)


def _registration_busy(world: World, event: m.RegistrationBusy, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is None:
        return
    if runner.state is RunnerState.STOPPING:
        failed_once(world, runner, "GitHub still counts its registration as busy", 0, now_ms, changed)
    elif runner.reason is GoneReason.MAX_LIFETIME:
        # the machine goes although a job runs on it; its registration is deleted after it
        move(world, runner, RunnerFact.DEREGISTERED, now_ms, changed)
    elif runner.ended_ms or runner.absences >= 2:
        # GitHub lags behind the end of the job, or lists behind the machine: neither is proof enough to stop it
        failed_once(world, runner, "GitHub still counts its registration as busy", 0, now_ms, changed)
    else:
        move(world, runner, RunnerFact.STILL_BUSY, now_ms, changed)


def _stop_accepted(world: World, event: m.StopAccepted, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
    if runner is not None and runner.state is not RunnerState.GONE:
        runner.stop_ms = runner.stop_ms or event.at_ms
        runner.failures = 0
        runner.retry_ms = now_ms + 60_000
        changed.add(("runner", runner.id))


def _machine_absent(world: World, event: m.MachineAbsent, now_ms: UnixMs, changed: set[Key]) -> None:
    runner = world.runners.get(event.runner_id)
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
        taken = runner.offer.purchase is Purchase.SPOT and runner.boot != BOOT_FAILED
        if runner.state is RunnerState.STARTING and not taken:
            boot_failed(world, runner, now_ms, changed)
        if runner.state not in (RunnerState.LEAVING, RunnerState.STOPPING):
            never = runner.state is RunnerState.UNKNOWN
            gone = GoneReason.INTERRUPTED if runner.taken_ms else GoneReason.VANISHED
            fields["reason"] = GoneReason.NEVER_CREATED if never else gone
        move(world, runner, unless_registered(runner, RunnerFact.ABSENT), now_ms, changed, **fields)
        _settle_soon(world, runner, now_ms)


def _settle_soon(world: World, runner: Runner, now_ms: UnixMs) -> None:
    if finished_for_good(runner):
        world.wake_at(now_ms, "runner", runner.id)


def intents_lost(world: World) -> None:
    """The store lacks intents of the leader before: close every gate until a list must show what came of them.

    One adopted machine is enough evidence: at other providers there may be more that no list shows yet.
    """
    world.proof_ms = world.taken_ms + CONSISTENCY_MS
    for provider, listed_ms in world.listed.items():
        if listed_ms < world.proof_ms:
            world.gates[provider] = "the store has lost launches: what runs there is being found out"


def _machine_adopted(world: World, event: m.MachineAdopted, now_ms: UnixMs, changed: set[Key]) -> None:
    if event.runner_id in world.runners:
        machine_created(world, event, now_ms, changed)
        return
    if not world.proof_ms and event.at_ms < world.taken_ms + CONSISTENCY_MS:
        intents_lost(world)
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
    _give_its_job(world, runner, now_ms, changed)


def _give_its_job(world: World, runner: Runner, now_ms: UnixMs, changed: set[Key]) -> None:
    """GitHub may have said what runs on it before it was adopted: it is busy, whatever its machine reports."""
    for key in (key for keys in world.runs.values() for key in keys):
        job = world.jobs[key]
        if job.state is JobState.IN_PROGRESS and world.runner_of(job.runner_name) is runner:
            job.runner = runner.id
            changed.add(("job", key))
            move(world, runner, RunnerFact.JOB_STARTED, now_ms, changed, running=key)


HANDLERS: Handlers = {
    m.RegistrationSeen: _registration_seen,
    m.RegistrationAbsent: _registration_absent,
    m.RegistrationsListed: _registrations_listed,
    m.JitStored: _jit_stored,
    m.RegistrationDeleted: _registration_deleted,
    m.RegistrationBusy: _registration_busy,
    m.StopAccepted: _stop_accepted,
    m.StageReported: _stage,
    m.MachineAbsent: _machine_absent,
    m.MachineTaken: _machine_taken,
    m.MachineAdopted: _machine_adopted,
}
