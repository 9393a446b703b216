"""Several Apps, their tokens and their clocks."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.clock import Clock
from autoscaler.github import apps as github_apps
from autoscaler.github.client import AppCredentials, GitHub, GitHubError
from autoscaler.sandbox.github import Fault, GitHubStandIn, Limits
from scheduling.messages import Trouble
from tests.github.world import LABELS, OWNER, REPOSITORY, Connect, OthersClock, StillClock

REPO = f"repo:{REPOSITORY}"
JIT = "*/generate-jitconfig"


@pytest.fixture
def two_apps(standin: GitHubStandIn, key: rsa.RSAPrivateKey) -> GitHubStandIn:
    standin.new_app("2", [OWNER], key)
    return standin


async def test_a_cold_burst_mints_one_token(standin: GitHubStandIn, connect: Connect) -> None:
    github = await connect(warm=False)
    lookups = standin.faults.add(Fault(path="/orgs/*/installation", latency_ms=20))
    await asyncio.gather(*(github.find_runner(REPO, f"r{number}") for number in range(50)))
    assert (standin.access.minted, lookups.hits) == (1, 1)


async def test_open_warms_the_tokens(standin: GitHubStandIn, connect: Connect) -> None:
    github = await connect()
    assert standin.access.minted == 1
    asked = standin.faults.add(Fault(path="*/installation*"))
    await github.find_runner(REPO, "r1")
    assert (standin.access.minted, asked.hits) == (1, 0)


async def test_a_revoked_token_is_replaced_within_the_call(standin: GitHubStandIn, github: GitHub) -> None:
    standin.access.revoke_tokens()
    await asyncio.gather(*(github.create_jit(REPO, f"fleet-r{number}", LABELS) for number in range(30)))
    assert standin.access.minted == 2


async def test_a_token_is_renewed_before_it_ends(connect: Connect, key: rsa.RSAPrivateKey) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock))
    standin.new_app("1", [OWNER], key)
    github = await connect(base_url=await standin.start(), clock=clock)
    refused = standin.faults.add(Fault(path="*/actions/runners", latency_ms=0))
    for _ in range(3):
        clock.now += 59 * 60_000
        await github.list_runners(REPO, "")
    assert (standin.access.minted, refused.hits) == (4, 3)
    await standin.close()


@pytest.mark.parametrize("skew_ms", [-600_000, 600_000, 7_200_000, -7_200_000])
async def test_k20_a_clock_that_is_wrong_by_minutes_works(
    standin: GitHubStandIn, connect: Connect, skew_ms: int
) -> None:
    clock = Clock(start_ms=standin.clock.now_ms() + skew_ms)
    github = await connect(clock=clock)
    await github.create_jit(REPO, "fleet-r1", LABELS)
    core = next(each for each in github.budgets() if each.resource == "actions_runner_registration")
    assert 3_500_000 < core.reset_ms - clock.now_ms() <= 3_601_000  # in our clock
    assert standin.access.minted == 1


async def test_the_clock_of_a_fast_world_is_used_for_tokens(key: rsa.RSAPrivateKey, connect: Connect) -> None:
    clock = Clock(speed=6_000)
    standin = GitHubStandIn(clock)
    standin.new_app("1", [OWNER], key)
    github = await connect(base_url=await standin.start(), clock=clock)
    for number in range(4):
        await github.create_jit(REPO, f"fleet-r{number}", LABELS)
        await clock.sleep(1_200_000)
    await standin.close()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=403, message="You have exceeded a secondary rate limit."),
        Fault(status=429, headers={"retry-after": "60"}),
        Fault(status=403, message="Resource not accessible by integration"),
        Fault(status=404, message="Not Found"),
        Fault(status=500),
    ],
    ids=["secondary", "429", "permission", "404", "500"],
)
async def test_the_next_app_takes_over_inside_the_call(
    two_apps: GitHubStandIn, connect: Connect, fault: Fault
) -> None:
    github = await connect("1", "2")
    two_apps.faults.add(Fault(JIT, "POST", fault.status, fault.message, fault.headers, count=1))
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    assert [each.id for each in two_apps.registrations()] == [jit.registration_id]


async def test_an_app_whose_key_is_refused_does_not_stop_the_others(
    two_apps: GitHubStandIn, connect: Connect
) -> None:
    github = await connect("unknown", "2")
    await github.create_jit(REPO, "fleet-r1", LABELS)
    assert {budget.app for budget in github.budgets()} == {"2"}


async def test_load_goes_to_the_app_with_most_left(two_apps: GitHubStandIn, connect: Connect) -> None:
    github = await connect("1", "2")
    for _ in range(40):
        await github.list_runners(REPO, "")
    left = {each.app: each.remaining for each in github.budgets() if each.resource == "core"}
    assert abs(left["1"] - left["2"]) <= 1


async def test_two_apps_have_two_budgets(key: rsa.RSAPrivateKey, connect: Connect) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock), limits=Limits(per_hour=5))
    for app in ("1", "2"):
        standin.new_app(app, [OWNER], key)
    github = await connect("1", "2", base_url=await standin.start(), clock=clock)
    for number in range(10):
        await github.create_jit(REPO, f"fleet-r{number}", LABELS)
    with pytest.raises(GitHubError) as said:
        await github.create_jit(REPO, "fleet-r10", LABELS)
    assert said.value.trouble is Trouble.TRANSIENT
    assert len(standin.registrations()) == 10
    await standin.close()


async def test_github_s_hidden_limit_is_met_by_two_apps_at_twice_the_pace(
    key: rsa.RSAPrivateKey, connect: Connect
) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock), limits=Limits(creations=80))
    for app in ("1", "2"):
        standin.new_app(app, [OWNER], key)
    github = await connect("1", "2", base_url=await standin.start(), clock=clock)
    start, made = clock.now_ms(), 0
    troubles: Counter[str] = Counter()
    while clock.now_ms() < start + 3 * 60_000:
        try:
            await github.create_jit(REPO, f"fleet-r{made}", LABELS)
            made += 1
            clock.now += 200
        except GitHubError as error:
            troubles[error.trouble] += 1
            clock.now += max(1_000, error.retry_after_ms)
    assert made > 300  # one App alone may make 240 in three minutes, two 480
    assert set(troubles) <= {Trouble.TRANSIENT}
    await standin.close()


async def test_those_who_wait_for_a_turn_are_not_refused(key: rsa.RSAPrivateKey, connect: Connect) -> None:
    clock = StillClock()
    standin = GitHubStandIn(OthersClock(clock), limits=Limits(creations=40))
    standin.new_app("1", [OWNER], key)
    github = await connect(base_url=await standin.start(), clock=clock)
    refused = 0
    for number in range(130):
        await github.jit_turn(REPO)
        try:
            await github.create_jit(REPO, f"fleet-r{number}", LABELS)
        except GitHubError:
            refused += 1
    assert len(standin.registrations()) == 130 - refused
    assert refused == 1  # GitHub's own, by which its limit was found
    await standin.close()


async def test_a_repository_that_one_app_does_not_see_is_served_by_the_other(
    two_apps: GitHubStandIn, connect: Connect
) -> None:
    two_apps.access.apps["1"].selected = frozenset()
    github = await connect("1", "2")
    made = two_apps.state.register(REPO, "fleet-r1", LABELS, two_apps.clock.now_ms())
    for _ in range(4):
        assert await github.get_runner(REPO, made.id) is not None
        assert await github.get_runner(REPO, 999_999) is None
    await github.create_jit(REPO, "fleet-r2", LABELS)


async def test_one_apps_trouble_and_the_others_404_are_not_absence(
    two_apps: GitHubStandIn, connect: Connect
) -> None:
    github = await connect("1", "2")
    two_apps.access.apps["1"].selected = frozenset()
    two_apps.access.apps["2"].suspended = True
    two_apps.access.revoke_tokens()
    with pytest.raises(GitHubError) as said:
        await github.get_runner(REPO, 5)
    assert said.value.trouble is Trouble.UNAUTHORIZED


async def test_no_app_at_the_owner_says_which_apps_there_are(standin: GitHubStandIn, github: GitHub) -> None:
    lookups = standin.faults.add(Fault(path="*/installation"))
    for _ in range(3):
        with pytest.raises(GitHubError, match=r"no GitHub App of ours \(1\) is installed at stranger") as said:
            await github.create_jit("repo:stranger/tool", "fleet-r1", LABELS)
        assert said.value.trouble is Trouble.UNAUTHORIZED
    assert lookups.hits == 2  # organisation and user, once


async def test_no_app_at_all_names_the_setting(standin: GitHubStandIn) -> None:
    github = GitHub([], base_url=standin.url, clock=standin.clock)
    with pytest.raises(GitHubError, match="AUTOSCALER_GITHUB_APPS_FILE"):
        await github.list_runners(REPO, "")
    await github.close()


async def test_an_app_that_was_uninstalled_is_looked_up_anew(standin: GitHubStandIn, github: GitHub) -> None:
    number = standin.access.apps["1"].installations.pop(OWNER)
    standin.access.revoke_tokens()
    with pytest.raises(GitHubError) as said:
        await github.list_runners(REPO, "")
    assert said.value.trouble is Trouble.UNAUTHORIZED
    standin.access.apps["1"].installations[OWNER] = number + 1  # installed again: another id
    assert await github.list_runners(REPO, "") == []


@pytest.mark.parametrize(
    "pem", ["", "not a key", "-----BEGIN RSA PRIVATE KEY-----\nxyz\n-----END RSA PRIVATE KEY-----"]
)
async def test_a_key_that_is_none_is_refused_at_open(standin: GitHubStandIn, pem: str) -> None:
    github = GitHub([AppCredentials("17", pem)], base_url=standin.url, clock=standin.clock)
    with pytest.raises(
        GitHubError, match="private key of GitHub App 17 is not an unencrypted RSA key in PEM form"
    ):
        await github.open()
    await github.close()


async def test_keys_are_read_and_used_off_the_event_loop(
    standin: GitHubStandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def watched(work: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (threads.append(threading.get_ident()), work(*arguments))[1]

    monkeypatch.setattr(github_apps, "load_pem_private_key", watched(github_apps.load_pem_private_key))
    monkeypatch.setattr(github_apps.jwt, "encode", watched(github_apps.jwt.encode))
    await connect()
    assert len(threads) == 2
    assert threading.get_ident() not in threads
