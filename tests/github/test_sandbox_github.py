"""The GitHub stand-in behaves as GitHub's documentation says, where the daemon can see it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.clock import Clock
from autoscaler.github.client import GitHub
from autoscaler.sandbox.github import Fault, GitHubStandIn, JobRequest
from autoscaler.sandbox.github_records import Patience
from autoscaler.sandbox.github_state import GitHubState
from tests.github.world import LABELS, OWNER, REPOSITORY, Connect, Receiver, Runner

REPO = f"repo:{REPOSITORY}"
MINUTE = 60_000
NewRunner = Callable[[], Runner]


@pytest.fixture
def state() -> GitHubState:
    return GitHubState(seed=1)


def online(
    state: GitHubState, name: str, target: str = REPO, labels: tuple[str, ...] = LABELS, now: int = 0
) -> str:
    """The session of a connected runner."""
    made = state.register(target, name, labels, now)
    connected = state.connect(made.config, now)
    assert connected is not None
    return connected.session


def given(state: GitHubState, session: str, now: int = 0) -> str:
    """The name of the job that a runner gets when it asks; empty when none."""
    registration = state.poll(session, now)
    job = registration and state.fetch(registration, now)
    return job.name if job else ""


def queue(
    state: GitHubState, *names: str, labels: tuple[str, ...] = LABELS, repository: str = REPOSITORY
) -> list[int]:
    return state.add_run(repository, [JobRequest(name, labels) for name in names], now_ms=0).jobs


# ---- the rule of who gets what -----------------------------------------------------------------------------


def test_k1_the_oldest_job_goes_to_whoever_is_idle(state: GitHubState) -> None:
    queue(state, "first", "second")
    assert given(state, online(state, "launched-for-second")) == "first"
    assert given(state, online(state, "launched-for-first")) == "second"


def test_labels_must_all_be_there_in_any_case(state: GitHubState) -> None:
    queue(state, "needs gpu", labels=("SELF-HOSTED", "gpu"))
    queue(state, "plain", labels=("self-hosted", "linux"))
    assert given(state, online(state, "plain-runner", labels=("Self-Hosted", "LINUX"))) == "plain"
    assert given(state, online(state, "gpu-runner", labels=("self-hosted", "GPU", "linux"))) == "needs gpu"


@pytest.mark.parametrize(
    ("target", "takes"),
    [
        (f"repo:{REPOSITORY.upper()}", True),
        ("repo:octo-org/other", False),
        (f"org:{OWNER}", True),
        ("org:other", False),
    ],
)
def test_a_runner_takes_jobs_of_the_place_it_is_registered_at(
    state: GitHubState, target: str, takes: bool
) -> None:
    queue(state, "job")
    assert bool(given(state, online(state, "runner", target))) == takes


def test_a_group_keeps_other_repositories_off(state: GitHubState) -> None:
    group = state.add_group(OWNER, "gpu", [f"{OWNER}/Lab"])
    made = state.register(f"org:{OWNER}", "runner", LABELS, 0, group.id)
    session = state.connect(made.config, 0).session  # type: ignore[union-attr]
    queue(state, "elsewhere")
    assert given(state, session) == ""
    queue(state, "in the lab", repository=f"{OWNER}/lab")
    assert given(state, session) == "in the lab"


def test_a_config_is_used_once_and_a_registration_ends_with_its_job(state: GitHubState) -> None:
    queue(state, "one", "two")
    made = state.register(REPO, "runner", LABELS, 0)
    session = state.connect(made.config, 0).session  # type: ignore[union-attr]
    assert state.connect(made.config, 0) is None
    assert given(state, session) == "one"
    assert given(state, session) == "one"  # asked again: the same
    assert state.finish(session, "success", 9)
    assert state.finish(session, "success", 9)  # an answer that got lost is asked for again
    assert state.poll(session, 9) is None
    assert state.registrations == {}
    story = {job.name: job for job in state.jobs.values()}
    assert (story["one"].conclusion, story["one"].runner_name, story["one"].completed_ms) == (
        "success",
        "runner",
        9,
    )
    assert [(job.name, job.starts) for job in state.jobs.values()] == [("one", 1), ("two", 0)]


def test_a_job_that_is_not_fetched_goes_to_another_runner(state: GitHubState) -> None:
    dead = online(state, "dead")
    queue(state, "job")
    state.sweep(2 * MINUTE)
    assert given(state, online(state, "alive", now=2 * MINUTE), 2 * MINUTE) == "job"
    assert given(state, dead, 2 * MINUTE) == ""


def test_a_job_whose_runner_is_gone_fails_after_a_while(state: GitHubState) -> None:
    queue(state, "cut off", "silent")
    first, second = online(state, "a"), online(state, "b")
    given(state, first)
    given(state, second)
    state.disconnect(first, 0)
    state.sweep(9 * MINUTE)
    assert {job.state for job in state.jobs.values()} == {"in_progress"}
    state.sweep(12 * MINUTE)
    assert [job.conclusion for job in state.jobs.values()] == ["failure", "failure"]
    assert not state.finish(second, "success", 12 * MINUTE)
    assert state.registrations == {}


def test_a_registration_that_is_not_used_is_cleaned_up() -> None:
    state = GitHubState(patience=Patience(unused_ms=5 * MINUTE, offline_ms=10 * MINUTE))
    state.register(REPO, "unused", LABELS, 0)
    session = online(state, "used")
    state.disconnect(session, 0)
    state.sweep(6 * MINUTE)
    assert [each.name for each in state.registrations.values()] == ["used"]
    state.sweep(11 * MINUTE)
    assert state.registrations == {}


def test_a_queued_job_is_given_up_after_a_day(state: GitHubState) -> None:
    queue(state, "never")
    state.sweep(25 * 60 * MINUTE)
    assert [(job.conclusion, job.starts) for job in state.jobs.values()] == [("failure", 0)]


def test_cancelling_and_running_again(state: GitHubState) -> None:
    waiting, running = queue(state, "waiting", "running")
    session = online(state, "r", labels=("nothing",))
    state.cancel(waiting, 5)
    assert given(state, session) == ""
    session = online(state, "s")
    assert given(state, session) == "running"
    state.cancel(running, 6)
    assert not state.finish(session, "success", 7)
    again = state.rerun(waiting, 8)
    assert (again.name, again.attempt, again.state) == ("waiting", 2, "queued")
    assert again.id not in (waiting, running)


# ---- over HTTP ---------------------------------------------------------------------------------------------


async def test_a_job_is_announced_signed_and_in_full(
    standin: GitHubStandIn, github: GitHub, new_runner: NewRunner, receiver: Receiver
) -> None:
    standin.webhook(receiver.url, b"s3cret")
    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS, 1_000)], event="pull_request", fork=True)
    runner = new_runner()
    assert await runner.connect((await github.create_jit(REPO, "fleet-r1", LABELS)).config) == 200
    job = await runner.job()
    assert job == {
        "job_id": run.jobs[0],
        "run_id": run.id,
        "repository": REPOSITORY,
        "name": "build",
        "event": "pull_request",
        "fork": True,
        "duration_ms": 1_000,
    }
    assert await runner.finish() == 204
    await standin.settled()

    bodies = {}
    for headers, body in receiver.got:
        assert headers["X-GitHub-Event"] == "workflow_job"
        digest = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
        assert headers["X-Hub-Signature-256"] == f"sha256={digest}"
        assert 6_500 < len(body) < 10_000
        payload = json.loads(body)
        bodies[payload["action"]] = payload["workflow_job"]
        assert payload["repository"]["full_name"] == REPOSITORY
        assert payload["installation"]["id"] > 0
    assert set(bodies) == {"queued", "in_progress", "completed"}
    assert (bodies["queued"]["runner_name"], bodies["queued"]["labels"]) == (None, list(LABELS))
    assert bodies["in_progress"]["runner_name"] == "fleet-r1"
    assert (bodies["completed"]["status"], bodies["completed"]["conclusion"]) == ("completed", "success")


async def test_a_payload_has_every_key_of_a_published_one(
    standin: GitHubStandIn, receiver: Receiver, pytestconfig: pytest.Config
) -> None:
    """The examples are those of octokit/webhooks; see tests/data/payloads."""
    published = json.loads(
        (pytestconfig.rootpath / "tests/data/payloads/workflow_job.in_progress.json").read_text()
    )
    standin.webhook(receiver.url, b"s3cret")
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await standin.settled()
    ours = json.loads(receiver.got[0][1])
    for part in ("workflow_job", "repository", "sender"):
        assert set(published[part]) - set(ours[part]) == set(), part


async def test_a_cancelled_job_has_runner_0_and_no_steps(standin: GitHubStandIn, receiver: Receiver) -> None:
    standin.webhook(receiver.url, b"s3cret")
    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    standin.cancel(run.jobs[0])
    await standin.settled()
    jobs = {body["action"]: body["workflow_job"] for body in (json.loads(raw) for _, raw in receiver.got)}
    done = jobs["completed"]
    assert (done["conclusion"], done["runner_id"], done["runner_name"], done["steps"]) == ("cancelled", 0, "", [])


async def test_webhooks_may_be_lost_doubled_and_late(
    standin: GitHubStandIn, receiver: Receiver, github: GitHub
) -> None:
    standin.webhook(receiver.url, b"s3cret")
    standin.faults.webhooks.lose = 0.3
    standin.faults.webhooks.double = 0.5
    standin.faults.webhooks.delay_ms = 50
    standin.add_run(REPOSITORY, [JobRequest(f"job {number}", LABELS) for number in range(100)])
    await standin.settled()
    names = [json.loads(body)["workflow_job"]["name"] for _, body in receiver.got]
    assert 50 < len(set(names)) < 90
    assert len(names) > len(set(names)) + 10
    assert names != sorted(names, key=lambda name: int(name[4:]))
    standin.faults.clear()
    await github.redeliver_failed(standin.clock.now_ms() - MINUTE)
    await standin.settled()
    assert len({json.loads(body)["workflow_job"]["name"] for _, body in receiver.got}) == 100


async def test_a_waiting_runner_is_woken_by_a_job_and_by_its_removal(
    standin: GitHubStandIn, github: GitHub, new_runner: NewRunner
) -> None:
    runner, other = new_runner(), new_runner()
    await runner.connect((await github.create_jit(REPO, "fleet-r1", LABELS)).config)
    second = await github.create_jit(REPO, "fleet-r2", ("self-hosted",))
    await other.connect(second.config)
    asked, left = asyncio.create_task(runner.job(30)), asyncio.create_task(other.job(30))
    await asyncio.sleep(0.05)
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    assert (await asyncio.wait_for(asked, 2) or {})["name"] == "build"
    await github.delete_runner(REPO, second.registration_id)
    assert await asyncio.wait_for(left, 2) is None


async def test_a_runner_that_hangs_up_while_it_waits_is_offline(
    standin: GitHubStandIn, github: GitHub, new_runner: NewRunner
) -> None:
    runner = new_runner()
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    await runner.connect(jit.config)
    asked = asyncio.create_task(runner.job(30))
    await asyncio.sleep(0.05)
    asked.cancel()
    for _ in range(100):
        found = await github.get_runner(REPO, jit.registration_id)
        assert found is not None
        if not found.online:
            break
        await asyncio.sleep(0.01)
    assert not found.online


async def test_k8_busy_may_lag_behind_the_job(
    standin: GitHubStandIn, github: GitHub, new_runner: NewRunner
) -> None:
    standin.faults.stale_busy_ms = 300
    runner = new_runner()
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    await runner.connect(jit.config)
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await runner.job()
    shown = await github.get_runner(REPO, jit.registration_id)
    assert shown is not None
    assert not shown.busy
    await asyncio.sleep(0.35)
    shown = await github.get_runner(REPO, jit.registration_id)
    assert shown is not None
    assert shown.busy


async def test_a_registration_may_vanish_under_its_runner(
    standin: GitHubStandIn, github: GitHub, new_runner: NewRunner
) -> None:
    runner = new_runner()
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    standin.vanish("fleet-r1")
    assert await runner.connect(jit.config) == 401
    assert await github.get_runner(REPO, jit.registration_id) is None


async def test_time_runs_with_the_clock(key: rsa.RSAPrivateKey, connect: Connect) -> None:
    clock = Clock(speed=600)
    standin = GitHubStandIn(clock)
    standin.new_app("1", [OWNER], key)
    github = await connect(base_url=await standin.start(), clock=clock)
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    await clock.sleep(11 * MINUTE)  # an unused registration is gone then
    assert await github.get_runner(REPO, jit.registration_id) is None
    await standin.close()


async def test_faults_are_counted_chanced_and_seeded(key: rsa.RSAPrivateKey) -> None:
    def hits(seed: int) -> list[bool]:
        faults = GitHubStandIn(Clock(), seed=seed).faults
        fault = faults.add(Fault("*/runners", "GET", status=500, probability=0.5, count=5))
        return [faults.pick("GET", "/orgs/o/actions/runners?page=2") is fault for _ in range(20)]

    assert hits(1) == hits(1)
    assert sum(hits(1)) == sum(hits(2)) == 5
    assert GitHubStandIn(Clock()).faults.pick("GET", "/x") is None
