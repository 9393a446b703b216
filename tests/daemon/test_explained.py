"""`on_deadline: explain` on real parts: a job that nothing may run is ended, and its log says why."""

from __future__ import annotations

from autoscaler.sandbox.github_records import JobRequest
from scheduling.lifecycle import JobState
from tests.daemon.place import LABELS, POLICY, Place, until

EXPLAIN = POLICY.replace("forks: allow", "forks: deny") + "on_deadline: {{after: 10m, action: explain}}\n"


async def test_a_job_past_the_deadline_is_ended_with_the_reason(tmp_path) -> None:
    place = Place(tmp_path, speed=120.0, policy=EXPLAIN)
    await place.open()
    try:
        replica = await place.leading()
        world = replica.daemon.world
        assert world is not None
        jobs = [JobRequest("build", LABELS)]
        place.around.github.add_run("octo/app", jobs, event="pull_request", fork=True)
        words = "No runner type that has its labels lets it in: linux: its access denies runs from forks"
        await until(lambda: any(words in runner.detail for runner in world.runners.values()))
        await until(place.done)
        (job,) = place.around.github.jobs()
        assert job.conclusion == "failure"
        await until(lambda: world.jobs[f"{job.id}.1"].state is JobState.COMPLETED)
        (runner,) = world.runners.values()
        assert runner.terms.notice
        await until(place.at_rest)
    finally:
        await place.close()
