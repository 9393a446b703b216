"""Jobs under which a spot machine was taken: whether they are run again, and what became of asking GitHub for it.

Only on the provider's word that it took the machine, only where a rule says `rerun: true`, once a job attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduling import messages as m
from scheduling.lifecycle import JobState, RerunState, RunnerState
from scheduling.matching import matcher
from scheduling.model import HOUR_MS, DurationMs, Job, Rerun, Runner, UnixMs
from scheduling.world import Handlers, Key, World

if TYPE_CHECKING:
    from scheduling.draft import Draft

A_DAY = 20
"""Re-runs of one repository within 24 hours: a market that keeps taking machines must not turn into a loop."""
PATIENCE_MS: DurationMs = 12 * HOUR_MS
"""GitHub re-runs no job of a run that still runs; longer than this is not waited for its end."""
AGAIN_MS: DurationMs = 60_000
DOUBT_MS: DurationMs = 60_000
"""By how much GitHub's time of a job's end may differ from ours of the first sign that its machine goes."""


def decide(draft: Draft) -> None:
    """Judge every job that has ended and whose machine its provider says that it took."""
    world = draft.world
    for runner_id in list(world.taken):
        runner = world.runners.get(runner_id)
        job = world.jobs.get(runner.running) if runner is not None else None
        if runner is None or (job is None and runner.running and runner.state is RunnerState.GONE):
            del world.taken[runner_id]  # one without a job stays: its job may be heard of late
        elif job is not None and job.state is JobState.COMPLETED:
            del world.taken[runner_id]
            draft.decide(m.RerunDecided(draft.now_ms, job.key, _refusal(draft, runner, job)))


def _refusal(draft: Draft, runner: Runner, job: Job) -> str:
    """Why it is not run again; empty when it is."""
    if job.conclusion != "failure":
        return f"it ended as {job.conclusion or 'unknown'}"
    signs = [at_ms for at_ms in (runner.interrupted_ms, runner.absent_ms, runner.taken_ms) if at_ms]
    if job.completed_ms + DOUBT_MS < min(signs):
        return "it had ended before its machine was taken"
    if not matcher(draft.policy).reruns(job):
        return "no rule says `rerun: true` for it"
    since_ms = draft.now_ms - 24 * HOUR_MS
    repository = job.repository.casefold()
    asked = sum(
        each.repository.casefold() == repository and each.state is not RerunState.REFUSED and each.at_ms > since_ms
        for each in draft.world.reruns.values()
    )
    return f"{job.repository} had {asked} re-runs within 24 hours" if asked >= A_DAY else ""


def of_job(world: World, job: Job) -> Rerun | None:
    """The re-run that this attempt led to, or that it is."""
    if found := world.reruns.get(job.key):
        return found
    return next((each for each in world.reruns.values() if led_to(each, job)), None)


def led_to(rerun: Rerun, job: Job) -> bool:
    """Whether this is a later attempt of the job that was run again."""
    before, now = (int(key.rpartition(".")[2]) for key in (rerun.job_key, job.key))
    same = (rerun.run_id, rerun.name, rerun.repository) == (job.run_id, job.name, job.repository)
    return same and rerun.state is RerunState.ASKED and now > before


# ---- facts -------------------------------------------------------------------------------------------------


def _decided(world: World, event: m.RerunDecided, now_ms: UnixMs, changed: set[Key]) -> None:
    job = world.jobs.get(event.job_key)
    if job is None or event.job_key in world.reruns:
        return
    state = RerunState.REFUSED if event.refusal else RerunState.DUE
    rerun = Rerun(job.key, job.job_id, job.run_id, job.repository, job.name, state, event.at_ms, job.completed_ms)
    rerun.detail = event.refusal
    world.reruns[job.key] = rerun
    world.index_rerun(rerun)
    changed.add(("rerun", job.key))


def _answered(world: World, event: m.RerunAnswered, now_ms: UnixMs, changed: set[Key]) -> None:
    rerun = world.reruns.get(event.job_key)
    if rerun is None or rerun.state is not RerunState.DUE:
        return
    rerun.state, rerun.detail = event.state, event.detail
    if rerun.state is RerunState.DUE:
        rerun.failures += 1
        rerun.retry_ms = now_ms + (event.retry_after_ms or AGAIN_MS)
        if now_ms > rerun.at_ms + PATIENCE_MS:
            rerun.state, rerun.detail = RerunState.REFUSED, f"given up after 12 hours: {event.detail}"
    world.index_rerun(rerun)
    changed.add(("rerun", rerun.job_key))


HANDLERS: Handlers = {m.RerunDecided: _decided, m.RerunAnswered: _answered}
