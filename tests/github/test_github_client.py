"""What the client asks of GitHub and makes of the answers, against the stand-in over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from autoscaler.github.client import GitHub, GitHubError, NameTaken, RunnerBusy
from autoscaler.sandbox.github import Fault, GitHubStandIn, JobRequest
from autoscaler.sandbox.github_records import Registration
from scheduling.lifecycle import JobState
from scheduling.messages import Trouble
from scheduling.model import RunFacts
from tests.github.world import LABELS, OWNER, REPOSITORY, Connect, Runner

REPO = f"repo:{REPOSITORY}"
ORG = f"org:{OWNER}"


def registered(standin: GitHubStandIn, name: str, target: str = REPO) -> Registration:
    return standin.state.register(target, name, LABELS, standin.clock.now_ms())


@pytest.mark.parametrize("target", [REPO, ORG, "repo:alice/Tool", f"group:{OWNER}/gpu lab/big"])
async def test_a_jit_registration_is_made_where_the_target_says(
    standin: GitHubStandIn, connect: Connect, target: str, key: object
) -> None:
    standin.new_app("1", [OWNER, "alice"], key)  # type: ignore[arg-type]
    group = standin.add_group(OWNER, "gpu lab/big")
    github = await connect()
    jit = await github.create_jit(target, "fleet-r1", LABELS)
    (made,) = standin.registrations()
    assert (made.id, made.config, made.name, made.labels) == (jit.registration_id, jit.config, "fleet-r1", LABELS)
    assert made.target == (f"org:{OWNER}" if target.startswith("group") else target)
    assert made.group_id == (group.id if target.startswith("group") else 1)
    assert not made.online
    assert jit.config not in repr(jit)


async def test_a_missing_group_is_named_with_those_that_exist(standin: GitHubStandIn, github: GitHub) -> None:
    standin.add_group(OWNER, "small")
    with pytest.raises(GitHubError, match=r"octo-org has no runner group big \(it has: Default, small\)") as said:
        await github.create_jit(f"group:{OWNER}/big", "fleet-r1", LABELS)
    assert said.value.trouble is Trouble.REFUSED


async def test_the_same_name_again_is_taken_and_then_found_by_name(github: GitHub) -> None:
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    with pytest.raises(NameTaken):
        await github.create_jit(REPO, "fleet-r1", LABELS)
    found = await github.find_runner(REPO, "fleet-r1")
    assert found is not None
    assert (found.id, found.online, found.busy, found.labels) == (jit.registration_id, False, False, LABELS)
    assert await github.find_runner(REPO, "fleet-r2") is None


async def test_all_pages_are_listed_and_only_our_names(standin: GitHubStandIn, github: GitHub) -> None:
    for number in range(250):
        registered(standin, f"fleet-r{number}" if number % 5 else f"other-{number}", ORG)
    listed = await github.list_runners(ORG, "fleet-")
    assert len(listed) == 200
    assert {each.name for each in listed} == {f"fleet-r{number}" for number in range(250) if number % 5}


async def test_a_page_that_fails_fails_the_list(standin: GitHubStandIn, github: GitHub) -> None:
    for number in range(150):
        registered(standin, f"fleet-r{number}", ORG)
    second = standin.faults.add(Fault(path="*/actions/runners?*page=2", method="GET", status=502))
    with pytest.raises(GitHubError, match="502") as said:
        await github.list_runners(ORG, "fleet-")
    assert said.value.trouble is Trouble.TRANSIENT
    assert second.hits == 3  # a read is tried again


async def test_k9_a_runner_that_a_list_omits_is_found_by_id(standin: GitHubStandIn, github: GitHub) -> None:
    made = registered(standin, "fleet-r1")
    standin.faults.omit.add("fleet-r1")
    assert await github.list_runners(REPO, "fleet-") == []
    found = await github.get_runner(REPO, made.id)
    assert found is not None
    assert found.name == "fleet-r1"


async def test_delete_is_done_absent_or_refused_while_busy(
    standin: GitHubStandIn, github: GitHub, new_runner: Callable[[], Runner]
) -> None:
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    runner = new_runner()
    await runner.connect(jit.config)
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await runner.job()
    with pytest.raises(RunnerBusy):
        await github.delete_runner(REPO, jit.registration_id)
    found = await github.get_runner(REPO, jit.registration_id)
    assert found is not None
    assert (found.online, found.busy) == (True, True)
    await runner.finish()
    assert await github.get_runner(REPO, jit.registration_id) is None
    await github.delete_runner(REPO, jit.registration_id)
    second = await github.create_jit(REPO, "fleet-r2", LABELS)
    await github.delete_runner(REPO, second.registration_id)
    assert standin.registrations() == []


@pytest.mark.parametrize(
    ("event", "fork", "ref", "facts"),
    [
        ("push", False, "refs/heads/main", RunFacts("push", False, "refs/heads/main")),
        ("pull_request", True, "refs/heads/release/9", RunFacts("pull_request", True, "")),
        ("release", False, "refs/tags/v1", RunFacts("release", False, "refs/tags/v1")),
    ],
)
async def test_run_facts(
    standin: GitHubStandIn, github: GitHub, event: str, fork: bool, ref: str, facts: RunFacts
) -> None:
    run = standin.add_run(REPOSITORY, [], event=event, fork=fork, ref=ref)
    assert await github.run_facts(REPOSITORY, run.id) == facts


async def test_run_facts_are_asked_once_however_many_want_them(standin: GitHubStandIn, github: GitHub) -> None:
    run = standin.add_run(REPOSITORY, [])
    seen = standin.faults.add(Fault(path="*/actions/runs/*", latency_ms=20))
    facts = await asyncio.gather(*(github.run_facts(REPOSITORY, run.id) for _ in range(30)))
    assert len(set(facts)) == 1
    assert await github.run_facts(REPOSITORY.upper(), run.id) == facts[0]
    assert seen.hits == 1
    assert await github.run_facts(REPOSITORY, 1) is None


async def test_a_caller_that_gives_up_does_not_take_the_answer_from_others(
    standin: GitHubStandIn, github: GitHub
) -> None:
    run = standin.add_run(REPOSITORY, [])
    standin.faults.add(Fault(path="*/actions/runs/*", latency_ms=50))
    first = asyncio.create_task(github.run_facts(REPOSITORY, run.id))
    second = asyncio.create_task(github.run_facts(REPOSITORY, run.id))
    await asyncio.sleep(0.01)
    first.cancel()
    assert await second == RunFacts("push", False, "refs/heads/main")


async def test_queued_jobs_are_those_of_open_runs_on_all_pages(
    standin: GitHubStandIn, github: GitHub, new_runner: Callable[[], Runner]
) -> None:
    wide = standin.add_run(REPOSITORY, [JobRequest(f"shard {n}", ("self-hosted", "GPU")) for n in range(120)])
    busy = standin.add_run(
        REPOSITORY, [JobRequest("build", LABELS), JobRequest("test", LABELS)], ref="refs/heads/x"
    )
    stuck = standin.add_run(REPOSITORY, [JobRequest("stuck", LABELS)])
    stuck.closed = True  # K27: queued at GitHub though its run is completed
    runner = new_runner()
    await runner.connect((await github.create_jit(REPO, "fleet-r1", LABELS)).config)
    await runner.job()
    jobs = await github.queued_jobs(REPOSITORY)
    assert {job.job_id for job in jobs} == {*wide.jobs, *busy.jobs}
    running = [job for job in jobs if job.state is JobState.IN_PROGRESS]
    assert [(job.name, job.runner_name, job.branch) for job in running] == [("build", "fleet-r1", "x")]
    waiting = next(job for job in jobs if job.name == "shard 7")
    assert (waiting.state, waiting.labels, waiting.started_ms) == (JobState.QUEUED, ("self-hosted", "GPU"), 0)
    assert waiting.created_ms > 0


async def test_a_job_is_reported_as_it_is_now(standin: GitHubStandIn, github: GitHub) -> None:
    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS)], workflow="Nightly")
    standin.cancel(run.jobs[0])
    job = await github.job(REPOSITORY, run.jobs[0])
    assert job is not None
    assert (job.state, job.conclusion, job.workflow, job.run_id) == (
        JobState.COMPLETED,
        "cancelled",
        "Nightly",
        run.id,
    )
    assert job.runner_name == ""
    assert await github.job(REPOSITORY, 1) is None


async def test_repositories_of_all_installations(standin: GitHubStandIn, connect: Connect, key: object) -> None:
    standin.new_app("1", [OWNER, "alice"], key)  # type: ignore[arg-type]
    names = {f"{OWNER}/r{number}" for number in range(130)} | {"alice/tool"}
    for name in names | {"stranger/tool"}:
        standin.add_run(name, [])
    github = await connect()
    assert await github.repositories() == sorted(names)


async def test_budgets_are_those_of_the_headers(standin: GitHubStandIn, github: GitHub) -> None:
    await github.create_jit(REPO, "fleet-r1", LABELS)
    await github.list_runners(REPO, "fleet-")
    found = {budget.resource: budget for budget in github.budgets()}
    assert (found["core"].app, found["core"].owner, found["core"].limit) == ("1", OWNER, 12_500)
    assert found["core"].remaining == 12_499
    assert found["actions_runner_registration"].remaining == 12_499
    assert 0 < found["core"].reset_ms - standin.clock.now_ms() <= 3_600_000
    assert (found["jit"].limit, found["jit"].remaining) == (60, 59)


async def test_an_enterprise_server_is_a_base_url_with_a_path(standin: GitHubStandIn, connect: Connect) -> None:
    github = await connect(base_url=f"{standin.url}/api/v3")
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    assert [each.id for each in await github.list_runners(REPO, "")] == [jit.registration_id]


async def test_a_personal_token_takes_the_place_of_the_apps(standin: GitHubStandIn, connect: Connect) -> None:
    app = standin.access.apps["1"]
    token, _ = standin.access.mint(app, app.installations[OWNER])
    run = standin.add_run(REPOSITORY, [])
    github = await connect(token=token)
    assert await github.run_facts(REPOSITORY, run.id) is not None


async def test_nothing_is_asked_before_open_and_github_may_be_away_then(
    standin: GitHubStandIn, connect: Connect
) -> None:
    away = standin.faults.add(Fault(status=503))
    github = await connect()
    assert away.hits > 0
    standin.faults.clear()
    assert await github.list_runners(REPO, "") == []


async def test_failed_webhooks_are_asked_for_again_once(
    standin: GitHubStandIn, github: GitHub, receiver: object
) -> None:
    receiver.status = 503  # type: ignore[attr-defined]
    standin.webhook(receiver.url, b"s3cret")  # type: ignore[attr-defined]
    standin.add_run(REPOSITORY, [JobRequest(f"job {number}", LABELS) for number in range(120)])
    await standin.settled()
    since = standin.clock.now_ms() - 60_000
    assert await github.redeliver_failed(standin.clock.now_ms() + 60_000) == 0
    receiver.status = 202  # type: ignore[attr-defined]
    assert await github.redeliver_failed(since) == 120
    await standin.settled()
    guids = [headers["X-GitHub-Delivery"] for headers, _ in receiver.got]  # type: ignore[attr-defined]
    assert len(guids) == 240
    assert len(set(guids)) == 120
    assert await github.redeliver_failed(since) == 0


@pytest.mark.parametrize("target", ["repo:o", "org:o/r", "group:o", "team:o", "repo:../..", "", "repo:o/r/x"])
async def test_a_malformed_target_says_what_is_expected(github: GitHub, target: str) -> None:
    with pytest.raises(ValueError, match="repo:OWNER/REPO, org:OWNER or group:OWNER/NAME"):
        await github.list_runners(target, "")


async def test_a_list_that_has_not_changed_costs_nothing_of_the_budget(
    standin: GitHubStandIn, github: GitHub
) -> None:
    def left() -> int:
        return next(each.remaining for each in github.budgets() if each.resource == "core")

    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS), JobRequest("test", LABELS)])
    first = await github.queued_jobs(REPOSITORY)
    paid = left()
    again = await github.queued_jobs(REPOSITORY)
    assert [job.job_id for job in again] == [job.job_id for job in first] == run.jobs
    assert left() == paid
    standin.cancel(run.jobs[0])
    assert [job.job_id for job in await github.queued_jobs(REPOSITORY)] == run.jobs[1:]
    assert left() < paid
