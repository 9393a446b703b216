"""Back-pressure: what is away, slow or full makes the daemon wait in bounded memory; it recovers spread out."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from autoscaler import daemon, effects
from autoscaler.crew import Crew
from autoscaler.http.runner_api import callback_token
from autoscaler.metrics import Metrics
from autoscaler.sandbox.github_faults import Fault
from autoscaler.serve import Replica
from autoscaler.store import link as redis_link
from autoscaler.store.store import Fence, StoreAway
from providers.base import Instance, LaunchSpec, Transient
from scheduling import messages as m
from scheduling.lifecycle import JobState, RunnerState
from tests.daemon.place import Place, live, queued, until

RUNNER = "r" + "0" * 20


@contextmanager
def redis_hangs(replica: Replica) -> Iterator[None]:
    """SIGSTOP of the server; commands are sent and nobody answers."""
    embedded = replica.store._embedded
    assert embedded
    assert embedded.pid
    os.kill(embedded.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(embedded.pid, signal.SIGCONT)


async def status(place: Place, path: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(place.url + path) as answer:
        return answer.status


# ---- Redis away --------------------------------------------------------------------------------------------


async def test_while_redis_hangs_nothing_is_acknowledged_and_afterwards_every_job_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.3)
    replica = await place.leading()
    sent = place.around.github.hooks.deliveries
    before = len(sent)
    with redis_hangs(replica):
        place.push(30)
        await until(lambda: len(sent) == before + 30)
        assert {delivery.status_code for delivery in list(sent)[before:]} == {503}
        assert await status(place, "/readyz") == 503
        assert await status(place, "/healthz") == 200
        assert not replica.store._packer._waiting
    await until(place.at_rest)
    assert not place.around.github.never_ran()
    assert not place.around.github.doubled()
    assert await status(place, "/readyz") == 200


async def test_redis_away_for_hours_is_told_once_and_then_each_minute(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "not leading" in record.getMessage()]

    replica = await place.replica(AUTOSCALER_REDIS_URL="redis://127.0.0.1:9/0")
    replica.daemon.lease_s = 0.06
    acquire, asked = replica.store.acquire, 0

    async def counted(holder: str, ttl_s: float) -> Fence | None:
        nonlocal asked
        asked += 1
        return await acquire(holder, ttl_s)

    replica.store.acquire = counted  # type: ignore[method-assign]
    await until(lambda: asked > 20)
    [line] = told()
    assert "127.0.0.1:9" in line
    monkeypatch.setattr(daemon, "REMIND_S", 0.0)
    await until(lambda: len(told()) > 1)
    assert told()[1].startswith("still not leading")


async def test_results_of_effects_outlast_redis_and_no_machine_is_made_twice(place: Place) -> None:
    """Machines are created while the store is away: their results wait, are stored, and nothing is repeated."""
    replica = await place.leading()
    clouds = place.around.clouds.values()
    launched = asyncio.Event()
    held = asyncio.Event()
    _hold_launches(replica, launched, held)
    place.push(10)
    await launched.wait()
    with redis_hangs(replica):
        held.set()
        await until(lambda: sum(cloud.made for cloud in clouds) == 10)
        await asyncio.sleep(redis_link.ANSWER_SECONDS)
    await until(place.at_rest)
    assert sum(cloud.made for cloud in clouds) == 10
    assert not place.around.github.doubled()


def _hold_launches(replica: Replica, launched: asyncio.Event, held: asyncio.Event) -> None:
    for provider in replica.daemon.parts.providers.values():
        launch = provider.launch

        async def slow(spec: LaunchSpec, launch=launch) -> Instance:  # type: ignore[no-untyped-def]
            launched.set()
            await held.wait()
            found: Instance = await launch(spec)
            return found

        provider.launch = slow  # type: ignore[method-assign]


async def test_results_that_waited_come_back_spread_out(place: Place) -> None:
    """Two hundred effects end while the store is away: they try again at different times, less and less often."""
    replica = await place.leading()
    loop = asyncio.get_running_loop()
    tries: dict[str, list[float]] = {}
    back = loop.time() + 2.0

    async def append(events: Sequence[m.Event]) -> None:
        [event] = events
        assert isinstance(event, m.EffectFailed)
        tries.setdefault(event.runner_id, []).append(loop.time())
        if loop.time() < back:
            raise StoreAway("away")

    class Instant:
        """Effects that are over at once."""

        def provider_of(self, command: m.Command) -> str:
            return "test"

        def version(self, command: m.Command) -> object:
            return None

        async def perform(self, command: m.CreateJit) -> m.Event:
            return m.EffectFailed(0, command.runner_id, m.Trouble.TRANSIENT, "x")

    assert replica.daemon.leader
    crew = Crew(Instant(), append, Metrics(), random.Random(1))  # type: ignore[arg-type]
    crew.start([m.CreateJit(f"r{number:020}") for number in range(200)])
    await until(lambda: len(tries) == 200 and all(times[-1] >= back for times in tries.values()), 60)
    ends = sorted(times[-1] for times in tries.values())
    assert ends[-1] - ends[0] > 0.5
    busiest = max(sum(start <= end < start + 0.05 for end in ends) for start in ends)
    assert busiest < 60
    assert max(map(len, tries.values())) < 12


# ---- the inbox is full -------------------------------------------------------------------------------------


async def test_a_full_inbox_refuses_webhooks_and_never_callbacks_or_results(place: Place) -> None:
    """The scheduler stands still: the inbox grows to its bound and no further by webhooks."""
    replica = await place.leading()
    await replica.daemon.stop()
    replica.store._inbox_limit = 20
    sent = place.around.github.hooks.deliveries
    for number in range(1, 4):
        place.push(20)
        await until(lambda: len(sent) == 20 * number)  # noqa: B023
    answers = [delivery.status_code for delivery in sent]
    assert answers.count(202) >= 20
    assert answers[-20:] == [503] * 20
    length = await replica.store._link.call("XLEN", replica.store._keys.inbox)
    assert length <= 20 + 32  # those of the batch that passed the bound
    key = Path(place.env["AUTOSCALER_FLEET_KEY_FILE"]).read_bytes().strip()  # noqa: ASYNC240
    headers = {"Authorization": f"Bearer {callback_token(key, RUNNER)}"}
    url = f"{place.url}/runner/v1/{RUNNER}/stages"
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(30):
            async with session.post(url, json={"stage": "booted"}) as answer:
                assert answer.status == 202
    await replica.store.append([m.CreateFailed(0, RUNNER, m.Trouble.QUOTA, "result")])
    assert await replica.store._link.call("XLEN", replica.store._keys.inbox) == length + 31


# ---- slow and refusing providers ---------------------------------------------------------------------------


async def test_a_slow_provider_is_asked_a_bounded_number_of_times_at_once_and_stops_no_other(place: Place) -> None:
    """East hangs in every create call: 64 are under way, the rest wait as records, and west's jobs run."""
    replica = await place.leading()
    world = replica.daemon.world
    assert world is not None
    east = replica.daemon.parts.providers["east"]
    launch, under_way, most, go = east.launch, 0, 0, asyncio.Event()

    async def hangs(spec: LaunchSpec) -> Instance:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await go.wait()
            return await launch(spec)
        finally:
            under_way -= 1

    east.launch = hangs  # type: ignore[method-assign]
    place.push(90)
    await until(lambda: under_way == effects.CONCURRENCY)
    await until(lambda: len(world.by_state[RunnerState.PLANNED]) == 90)
    await replica.source.switch("provider:east", True, "test")
    place.push(5)
    await until(lambda: sum(job.state == "completed" for job in place.around.github.jobs()) >= 5)
    assert under_way == most == effects.CONCURRENCY
    await replica.source.switch("provider:east", False, "test")
    go.set()
    await until(place.at_rest)
    assert most == effects.CONCURRENCY
    assert not place.around.github.doubled()


async def test_429_everywhere_keeps_jobs_waiting_and_asks_less_and_less_often(place: Place) -> None:
    """GitHub and both clouds refuse for six minutes: nothing is lost, calls stay few, then all of it runs."""
    replica = await place.leading()
    asked = _refuse_launches(replica)
    github = place.around.github
    headers = {"retry-after": "30"}
    rule = github.faults.add(Fault(path="/repos/*", status=429, headers=headers, message="slow down"))
    place.push(40)
    start_ms = place.clock.now_ms()
    await until(lambda: queued(replica.daemon.world) == 40)
    await until(lambda: place.clock.now_ms() > start_ms + 5 * 60_000)
    assert replica.daemon.world is not None
    assert {job.state for job in replica.daemon.world.jobs.values()} == {JobState.QUEUED}
    assert len(live(replica.daemon.world)) <= 40
    assert 0 < asked["calls"] < 40 * 12
    assert rule.hits < 300
    calls = asked["calls"]
    await until(lambda: place.clock.now_ms() > start_ms + 6 * 60_000)
    assert asked["calls"] - calls < 40 * 2
    asked["refuse"] = 0
    github.faults.clear()
    await until(place.at_rest)
    assert not github.never_ran()
    assert not github.doubled()


def _refuse_launches(replica: Replica) -> dict[str, int]:
    asked = {"calls": 0, "refuse": 1}
    for provider in replica.daemon.parts.providers.values():
        launch = provider.launch

        async def refuses(spec: LaunchSpec, launch=launch) -> Instance:  # type: ignore[no-untyped-def]
            asked["calls"] += 1
            if asked["refuse"]:
                raise Transient("429 Too Many Requests")
            found: Instance = await launch(spec)
            return found

        provider.launch = refuses  # type: ignore[method-assign]
    return asked


async def test_few_effects_of_one_kind_are_under_way_at_github(place: Place) -> None:
    """A leader that dies early has completed some JITs, instead of having begun all of them."""
    replica = await place.leading()
    github = place.around.github
    rule = github.faults.add(Fault(path="*/generate-jitconfig", latency_ms=60 * 1000))
    place.push(40)
    world = replica.daemon.world
    assert world is not None
    await until(lambda: len(world.by_state[RunnerState.REGISTERING]) == 40)
    await until(lambda: rule.hits >= effects.GITHUB_CONCURRENCY)
    assert rule.hits == effects.GITHUB_CONCURRENCY
    rule.latency_ms = 0
    await until(place.at_rest)
