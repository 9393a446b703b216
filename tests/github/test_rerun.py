"""Running one job again: looked up first, so that no lost answer makes two attempts of one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoscaler.github.client import GitHub, GitHubError
from autoscaler.sandbox.github import Fault, GitHubStandIn, JobRequest
from autoscaler.sandbox.github_records import Job
from scheduling.messages import Trouble
from tests.github.world import LABELS, REPOSITORY, Runner

REPO = f"repo:{REPOSITORY}"


@pytest.fixture
def fail(standin: GitHubStandIn, github: GitHub, new_runner: Callable[[], Runner]):
    """Runs the oldest queued job to a failure."""

    async def run() -> None:
        runner = new_runner()
        await runner.connect((await github.create_jit(REPO, f"fleet-{len(standin.state.jobs)}", LABELS)).config)
        await runner.job()
        await runner.finish("failure")

    return run


async def ask(github: GitHub, job: Job) -> bool:
    wanted = (job.run_id, job.attempt, job.id, job.name, job.completed_ms)
    return await github.rerun_job(REPOSITORY, *wanted)


def jobs(standin: GitHubStandIn) -> list[tuple[str, int, str]]:
    return [(job.name, job.attempt, job.state) for job in standin.jobs()]


async def test_once_and_only_when_its_run_has_ended(standin: GitHubStandIn, github: GitHub, fail) -> None:
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS), JobRequest("test", LABELS)])
    await fail()
    build, test = standin.jobs()
    assert not await ask(github, build)
    standin.cancel(test.id)
    assert await ask(github, build)
    assert await ask(github, build)  # as after an answer that was lost
    assert jobs(standin) == [("build", 1, "completed"), ("test", 1, "completed"), ("build", 2, "queued")]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_looked_up(standin: GitHubStandIn, github: GitHub, fail, applied: bool) -> None:
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await fail()
    (build,) = standin.jobs()
    standin.faults.add(Fault(path="*/rerun", method="POST", drop=True, applied=applied, count=1))
    with pytest.raises(GitHubError) as said:
        await ask(github, build)
    assert said.value.trouble is Trouble.TRANSIENT
    assert await ask(github, build)
    assert jobs(standin) == [("build", 1, "completed"), ("build", 2, "queued")]


async def test_two_jobs_of_one_run_one_after_the_other(standin: GitHubStandIn, github: GitHub, fail) -> None:
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS), JobRequest("test", LABELS)])
    await fail()
    await fail()
    build, test = standin.jobs()
    assert await ask(github, build)
    assert not await ask(github, test)  # the run runs again
    await fail()
    assert await ask(github, test)
    assert [(name, attempt) for name, attempt, _ in jobs(standin)] == [
        ("build", 1), ("test", 1), ("build", 2), ("test", 3),
    ]  # fmt: skip


async def test_a_missing_permission_is_named(standin: GitHubStandIn, github: GitHub, fail) -> None:
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await fail()
    (build,) = standin.jobs()
    words = "Resource not accessible by integration"
    header = {"x-accepted-github-permissions": "actions=write"}
    standin.faults.add(Fault(path="*/rerun", method="POST", status=403, message=words, headers=header))
    with pytest.raises(GitHubError, match=f"{words}.*The App needs: actions=write") as said:
        await ask(github, build)
    assert said.value.trouble is Trouble.UNAUTHORIZED
