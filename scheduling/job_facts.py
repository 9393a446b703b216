"""What GitHub says about jobs and runs, and where plan routes them. States only climb their ranks."""

from __future__ import annotations

from sys import intern

from scheduling import learning
from scheduling import messages as m
from scheduling.fairness import charge
from scheduling.lifecycle import JOB_RANK, GoneReason, JobState, RunnerFact, RunnerState
from scheduling.model import Job, RunFacts, Totals, UnixMs
from scheduling.moving import move
from scheduling.world import Handlers, Key, World, job_key

LONGEST_QUEUE_MS = 24 * 3_600_000
"""GitHub fails a job that was queued for 24 hours; older stated times are not believed."""


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
        if job.started_ms and job.runner:
            changed |= charge(world, job.repository, job.completed_ms - job.started_ms, now_ms)
            changed |= learning.job_ended(world, job)
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
    if runner.taken_ms and runner.state is RunnerState.GONE and not runner.running:
        runner.running = job.key  # heard of only now, and perhaps to be run again
        changed.add(("runner", runner.id))
        return
    if job.state is JobState.IN_PROGRESS:
        job.waited_for = job.waited_for or runner.waited_for
        move(world, runner, RunnerFact.JOB_STARTED, now_ms, changed, running=job.key)
    elif job.state is JobState.COMPLETED and runner.running in ("", job.key):
        ended = {"running": job.key, "ended_ms": job.completed_ms, "reason": runner.reason or GoneReason.DONE}
        ended["started_ms"] = runner.started_ms or job.started_ms
        move(world, runner, RunnerFact.JOB_ENDED, now_ms, changed, **ended)


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
    if event.pool is not None and event.pool.key not in world.pools:
        world.pools[event.pool.key] = event.pool
        changed.add(("pool", event.pool.key))
    world.unindex_job(job)
    job.pool = event.pool.key if event.pool else ""
    job.runner_type = event.pool.runner_type if event.pool else ""
    if event.pool and job.blocked:
        job.waited_for = job.blocked
    job.blocked = event.blocked
    job.flexible = event.flexible
    world.index_job(job)
    world.wake_at(event.again_ms, "job", job.key)
    changed.add(("job", job.key))


HANDLERS: Handlers = {
    m.JobReported: _job_reported,
    m.RunFactsLearned: _run_facts,
    m.JobChecked: _job_checked,
    m.JobRouted: _job_routed,
}
