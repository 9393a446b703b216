"""Every way in which GitHub can refuse or not answer, and what the caller is told to do about it."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

import httpx
import pytest

from autoscaler.github import connection as github_connection
from autoscaler.github.client import GitHub, GitHubError, JitUnknown, NameTaken
from autoscaler.github.errors import scrub
from autoscaler.sandbox.github import Fault, GitHubStandIn, Limits
from scheduling.messages import Trouble
from tests.github.world import LABELS, OWNER, REPOSITORY, Connect, OthersClock, StillClock

REPO = f"repo:{REPOSITORY}"
JIT = "*/generate-jitconfig"
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


async def refusal(github: GitHub) -> GitHubError:
    with pytest.raises(GitHubError) as said:
        await github.create_jit(REPO, "fleet-r1", LABELS)
    return said.value


@pytest.mark.parametrize(
    ("status", "message", "headers", "trouble", "retry_after_ms", "text"),
    [
        (429, "slow down", {"retry-after": "37"}, Trouble.TRANSIENT, 37_000, "429"),
        (403, SECONDARY, {"retry-after": "17"}, Trouble.TRANSIENT, 17_000, "secondary"),
        (403, SECONDARY, {}, Trouble.TRANSIENT, 60_000, "secondary"),
        (403, SECONDARY, {"retry-after": "soon"}, Trouble.TRANSIENT, 60_000, "secondary"),
        (429, "", {}, Trouble.TRANSIENT, 60_000, "429"),
        (403, "Resource not accessible by integration", {}, Trouble.UNAUTHORIZED, 60_000, "Administration: write"),
        (
            403,
            "Resource not accessible by integration",
            {"x-accepted-github-permissions": "administration=write"},
            Trouble.UNAUTHORIZED,
            60_000,
            "The App needs: administration=write",
        ),
        (401, "Bad credentials", {}, Trouble.UNAUTHORIZED, 60_000, "private key"),
        (404, "Not Found", {}, Trouble.REFUSED, 0, "repo:octo-org/rocket: .*404.*Administration: write"),
        (422, "Validation Failed", {}, Trouble.REFUSED, 0, "Validation Failed"),
        (500, "oops", {}, Trouble.TRANSIENT, 0, "500"),
        (503, "down", {"retry-after": "5"}, Trouble.TRANSIENT, 5_000, "503"),
    ],
)
async def test_a_refused_creation(
    standin: GitHubStandIn,
    github: GitHub,
    status: int,
    message: str,
    headers: dict[str, str],
    trouble: Trouble,
    retry_after_ms: int,
    text: str,
) -> None:
    sent = standin.faults.add(Fault(path=JIT, status=status, message=message, headers=headers))
    error = await refusal(github)
    assert (error.trouble, error.retry_after_ms) == (trouble, retry_after_ms)
    assert httpx.URL(standin.url).host not in error.detail
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(error.detail)
    assert sent.hits == (2 if status == 401 else 1)  # a POST is never repeated, but for a refused token
    assert standin.registrations() == []


async def test_retry_after_may_be_a_date_in_githubs_time(connect: Connect, key: object) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock))
    standin.new_app("1", [OWNER], key)  # type: ignore[arg-type]
    github = await connect(base_url=await standin.start(), clock=clock)
    when = formatdate(clock.now_ms() / 1000 + 90, usegmt=True)
    standin.faults.add(Fault(path=JIT, status=429, headers={"retry-after": when}))
    assert (await refusal(github)).retry_after_ms == 90_000
    await standin.close()


async def test_k21_a_403_without_retry_after_backs_off_and_goes_on(connect: Connect, key: object) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock))
    standin.new_app("1", [OWNER], key)  # type: ignore[arg-type]
    github = await connect(base_url=await standin.start(), clock=clock)
    limited = standin.faults.add(Fault(path=JIT, status=403, message=SECONDARY, count=1))
    first = await refusal(github)
    clock.now += 20_000
    second = await refusal(github)
    assert (first.retry_after_ms, second.retry_after_ms) == (60_000, 40_000)
    assert limited.hits == 1  # while it lasts, nothing is sent
    clock.now += 41_000
    await github.create_jit(REPO, "fleet-r1", LABELS)
    assert {budget.limit for budget in github.budgets() if budget.resource == "jit"} == {30}
    await standin.close()


async def test_a_used_up_budget_says_when_it_is_full_again(connect: Connect, key: object) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock), limits=Limits(per_hour=3))
    standin.new_app("1", [OWNER], key)  # type: ignore[arg-type]
    github = await connect(base_url=await standin.start(), clock=clock)
    for number in range(3):
        await github.create_jit(REPO, f"fleet-r{number}", LABELS)
    clock.now += 600_000
    error = await refusal(github)
    assert error.trouble is Trouble.TRANSIENT
    assert 2_990_000 <= error.retry_after_ms <= 3_001_000
    clock.now += error.retry_after_ms
    await github.create_jit(REPO, "fleet-r9", LABELS)
    await standin.close()


async def test_a_short_budget_is_kept_for_creations(connect: Connect, key: object) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock), limits=Limits(per_hour=10))
    standin.new_app("1", [OWNER], key)  # type: ignore[arg-type]
    github = await connect(base_url=await standin.start(), clock=clock)
    for number in range(9):
        await github.list_runners(f"{REPO}-{number}", "")
    with pytest.raises(GitHubError, match="leaves nothing") as said:
        await github.list_runners(REPO, "")
    assert said.value.trouble is Trouble.TRANSIENT
    await github.find_runner(REPO, "fleet-r1")  # a call about one runner may still
    await github.create_jit(REPO, "fleet-r1", LABELS)
    await standin.close()


@pytest.mark.parametrize("applied", [True, False])
async def test_an_answer_that_got_lost_leaves_the_outcome_unknown(
    standin: GitHubStandIn, github: GitHub, applied: bool
) -> None:
    standin.faults.add(Fault(path=JIT, drop=True, applied=applied, count=1))
    error = await refusal(github)
    assert isinstance(error, JitUnknown)
    assert error.trouble is Trouble.TRANSIENT
    found = await github.find_runner(REPO, "fleet-r1")
    assert (found is not None) == applied
    if found:
        await github.delete_runner(REPO, found.id)
    await github.create_jit(REPO, "fleet-r1", LABELS)
    assert len(standin.registrations()) == 1


async def test_no_answer_in_time_is_unknown_too(
    standin: GitHubStandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_connection, "TIMEOUT", httpx.Timeout(0.1))
    github = await connect()
    standin.faults.add(Fault(path=JIT, latency_ms=2_000))
    assert isinstance(await refusal(github), JitUnknown)
    standin.faults.add(Fault(path="*/actions/runners*", method="GET", latency_ms=2_000))
    with pytest.raises(GitHubError, match="ReadTimeout") as said:
        await github.get_runner(REPO, 5)
    assert said.value.trouble is Trouble.TRANSIENT


async def test_an_answer_that_makes_no_sense_leaves_the_outcome_unknown(
    standin: GitHubStandIn, github: GitHub
) -> None:
    standin.faults.add(Fault(path=JIT, status=201, message="?", applied=True))
    assert isinstance(await refusal(github), JitUnknown)


async def test_success_then_5xx_is_transient_and_the_name_is_taken_after(
    standin: GitHubStandIn, github: GitHub
) -> None:
    standin.faults.add(Fault(path=JIT, status=502, applied=True, count=1))
    assert (await refusal(github)).trouble is Trouble.TRANSIENT
    assert isinstance(await refusal(github), NameTaken)


async def test_a_server_that_is_not_there_is_transient_and_nothing_was_sent(
    standin: GitHubStandIn, github: GitHub
) -> None:
    await standin.close()
    error = await refusal(github)
    assert type(error) is GitHubError
    assert (error.trouble, "ConnectError" in error.detail) == (Trouble.TRANSIENT, True)


async def test_k10_trouble_never_looks_like_absence(standin: GitHubStandIn, github: GitHub) -> None:
    made = standin.state.register(REPO, "fleet-r1", LABELS, standin.clock.now_ms())
    run = standin.add_run(REPOSITORY, [])
    for status in (401, 403, 429):
        standin.faults.clear()
        standin.faults.add(Fault(path="/repos/*", method="GET", status=status))
        for asked in (
            github.get_runner(REPO, made.id),
            github.find_runner(REPO, "fleet-r1"),
            github.list_runners(REPO, ""),
            github.run_facts(REPOSITORY, run.id),
            github.job(REPOSITORY, 5),
            github.queued_jobs(REPOSITORY),
        ):
            with pytest.raises(GitHubError):
                await asked


async def test_a_404_of_a_place_that_the_app_does_not_see_is_no_proof(
    standin: GitHubStandIn, github: GitHub
) -> None:
    made = standin.state.register(REPO, "fleet-r1", LABELS, standin.clock.now_ms())
    standin.access.apps["1"].selected = frozenset({f"{OWNER}/other"})
    for asked in (
        github.get_runner(REPO, made.id),
        github.delete_runner(REPO, made.id),
        github.job(REPOSITORY, 5),
    ):
        with pytest.raises(GitHubError) as said:
            await asked
        assert said.value.trouble is Trouble.UNAUTHORIZED


async def test_a_404_whose_proof_fails_is_no_proof(standin: GitHubStandIn, github: GitHub) -> None:
    standin.faults.add(Fault(path="*/actions/runners?per_page=1", drop=True))
    with pytest.raises(GitHubError) as said:
        await github.get_runner(REPO, 5)
    assert said.value.trouble is Trouble.TRANSIENT


async def test_reads_are_repeated_over_a_passing_fault(standin: GitHubStandIn, github: GitHub) -> None:
    standin.faults.add(Fault(path="*/actions/runners", method="GET", status=502, count=1))
    assert await github.list_runners(REPO, "") == []
    standin.faults.add(Fault(path="*/actions/runners", method="GET", drop=True, count=1))
    assert await github.list_runners(REPO, "") == []


async def test_many_calls_share_a_connection_pool_whatever_task_they_run_in(
    standin: GitHubStandIn, github: GitHub
) -> None:
    await asyncio.gather(*(asyncio.create_task(github.list_runners(REPO, "")) for _ in range(20)))
    client = github._connection._client
    assert client is not None
    await asyncio.create_task(github.list_runners(REPO, ""))
    assert github._connection._client is client


def test_secrets_are_scrubbed_from_what_github_says() -> None:
    text = scrub("token ghs_abcdefghijklmnop, jwt eyJhbGciOi.eyJpc3M.sig-_x, config eyJydW5uZXIiOiA3fQ==")
    assert text == "token ***, jwt ***, config ***"
