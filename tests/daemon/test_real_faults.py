"""What real networks, servers and clocks do to whole replicas: a failover, stalled sockets, wrong clocks.

Each ends with what a user would see: every job ran once, nothing is left, `verify` finds nothing.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import httpx
import pytest

from autoscaler.clock import Clock
from autoscaler.github import connection
from autoscaler.sandbox.surroundings import free_port
from autoscaler.serve import Replica
from autoscaler.store.store import Fence
from autoscaler.verify import verify
from providers.sim import remote
from scheduling.lifecycle import RunnerState
from tests.daemon.place import Place, live, until
from tests.daemon.stall import stall_before
from tests.sentinels import watched
from tests.valkey import running

MINUTE_MS = 60_000


class SteppedClock(Clock):
    """The place's clock, wrong by as much as the test says."""

    def __init__(self, right: Clock) -> None:
        self.speed = right.speed
        self.wrong_by_ms = 0
        self._right = right

    def now_ms(self) -> int:
        return self._right.now_ms() + self.wrong_by_ms


async def at_peace(place: Place, *replicas: Replica) -> None:
    await until(lambda: place.at_rest() and any(replica.daemon.world for replica in replicas), 90)
    leader = next(replica for replica in replicas if replica.daemon.world)
    await until(lambda: not live(leader.daemon.world))
    github = place.around.github
    assert {job.conclusion for job in github.jobs()} == {"success"}
    assert not github.doubled()
    daemon = leader.daemon
    assert await verify(leader.store, "test", daemon.parts.providers, leader.github, second_look_s=2.0) == []


def fence(*replicas: Replica) -> Fence | None:
    return next((replica.daemon.leader.fence for replica in replicas if replica.daemon.leader), None)


# ---- Redis -------------------------------------------------------------------------------------------------


async def test_a_failover_by_sentinels_in_the_middle_of_the_work(place: Place, tmp_path: Path) -> None:
    """kill -9 of the primary with two replicas of the daemon; what was acknowledged is on the next primary."""
    async with watched(tmp_path) as servers:
        one = await place.leading(AUTOSCALER_REDIS_URL=servers.url)
        two = await place.replica(AUTOSCALER_REDIS_URL=servers.url, AUTOSCALER_LISTEN=f"127.0.0.1:{free_port()}")
        place.push(12, seconds=240)
        await until(lambda: len(place.around.existing()) >= 6)
        before = fence(one, two)
        assert before
        await servers.kill_primary()
        place.push(8)
        await servers.failed_over()
        await until(lambda: (after := fence(one, two)) and after.run_id != before.run_id)
        assert not await two.store.commit(before, {("switch", "all"): "stale"}, "0-0")
        await at_peace(place, one, two)
        assert len(place.around.github.jobs()) == 20
        assert ("switch", "all") not in {(kind, key) for kind, key, _ in (await one.store.load()).records}
        for replica in (one, two):
            await replica.stop()
        place.replicas.clear()


async def test_a_redis_behind_stalled_sockets(place: Place) -> None:
    """Longer than every time-out: commands that the daemon gave up arrive late, under a lease that is over."""
    with running() as server:
        async with stall_before(server.socket) as proxy:
            replica = await place.leading(AUTOSCALER_REDIS_URL=f"redis://127.0.0.1:{proxy.port}/0")
            place.push(10, seconds=120)
            await until(lambda: len(place.around.existing()) >= 5)
            led = fence(replica)
            proxy.stall()
            await until(lambda: replica.daemon.leader is None)
            place.push(5)
            sent = place.around.github.hooks.deliveries
            await until(lambda: any(delivery.status_code == 503 for delivery in sent))
            assert proxy.held
            proxy.go_on()
            await until(lambda: fence(replica) not in (None, led))
            await at_peace(place, replica)
            await replica.stop()
            place.replicas.clear()


# ---- GitHub and the clouds ---------------------------------------------------------------------------------


async def test_github_and_a_cloud_behind_stalled_sockets(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creates and registrations are given up, then all of them are applied late: still one machine a launch."""
    monkeypatch.setattr(connection, "TIMEOUT", httpx.Timeout(1.0))
    monkeypatch.setattr(remote, "TIMEOUT", aiohttp.ClientTimeout(total=1.0))
    policy = place.around.policy_path
    [clouds, *_] = re.findall(r"http://127.0.0.1:(\d+)/", policy.read_text())
    github = int(place.around.github.url.rpartition(":")[2])
    async with stall_before(int(clouds)) as cloud_proxy, stall_before(github) as github_proxy:
        policy.write_text(policy.read_text().replace(f":{clouds}/", f":{cloud_proxy.port}/"))
        replica = await place.leading(AUTOSCALER_GITHUB_URL=f"http://127.0.0.1:{github_proxy.port}")
        place.push(10, seconds=120)
        await until(lambda: replica.daemon.world and replica.daemon.world.by_state[RunnerState.REGISTERING])
        github_proxy.stall()
        place.push(10)
        cloud_proxy.stall()
        place.push(10)
        await until(lambda: cloud_proxy.held and github_proxy.held)
        await asyncio.sleep(2.0)  # past both time-outs
        cloud_proxy.go_on()
        github_proxy.go_on()
        await at_peace(place, replica)
        made = sum(cloud.made for cloud in place.around.clouds.values())
        launches = replica.daemon.world.totals.launched if replica.daemon.world else 0
        assert made <= launches
        await replica.stop()
        place.replicas.clear()


# ---- clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [10, -10])
async def test_the_clock_of_the_leader_steps_by_ten_minutes_and_back(place: Place, minutes: int) -> None:
    """No job is killed for it; in the middle of more work the lease goes to a replica whose clock is right."""
    clock = SteppedClock(place.clock)
    one = await place.leading(clock=clock)
    place.push(8, seconds=240)
    await until(lambda: sum(job.state == "in_progress" for job in place.around.github.jobs()) == 8)
    clock.wrong_by_ms = minutes * MINUTE_MS
    place.push(8)
    await until(lambda: sum(job.state == "completed" for job in place.around.github.jobs()) >= 8)
    place.push(4)
    await one.daemon.stop()
    two = await place.replica(
        AUTOSCALER_REDIS_URL=f"unix://{place.directory / 'redis' / 'valkey.sock'}",
        AUTOSCALER_LISTEN=f"127.0.0.1:{free_port()}",
    )
    await at_peace(place, two)
    await two.stop()
    place.replicas.remove(two)
