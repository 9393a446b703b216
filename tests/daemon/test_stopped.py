"""SIGSTOP of a leader in the middle of its work, for longer than its lease; then it goes on as if nothing was."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from autoscaler.policy.file import load
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from autoscaler.store.keys import Keys
from autoscaler.verify import verify
from benchmarks.storm_parts import Door, ReplicaProcess, Server, read_or_none
from tests.daemon.place import Place, until

LEASE_S = 1.0


class Pair:
    """Two replicas as processes before one Valkey; the first stops itself at a boundary when it gets SIGUSR1."""

    def __init__(self, place: Place, boundary: str) -> None:
        self.place = place
        self.server = Server(place.directory / "redis")
        epoch_ms = int(place.clock._real0 * 1000)
        options = ("--epoch-ms", str(epoch_ms), "--speed", str(place.speed), "--lease", str(LEASE_S))
        self.first = ReplicaProcess(place.env, (*options, "--stop", boundary), place.directory / "first.log")
        self.second = ReplicaProcess(place.env, options, place.directory / "second.log")
        self.door = Door([self.first, self.second])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.server.start()
        await self.door.start()
        url = f"http://127.0.0.1:{self.door.port}"
        self.place.env |= {"AUTOSCALER_REDIS_URL": self.server.url, "AUTOSCALER_PUBLIC_URL": url}
        self.place.around.announce_to(url)
        self.redis = self.server.client()
        try:
            yield
        finally:
            await asyncio.gather(self.first.stop(), self.second.stop())
            await self.redis.aclose()
            await self.door.close()
            await self.server.kill()

    async def leads(self, replica: ReplicaProcess) -> int:
        """The fence of that replica, once it has the lease and has committed under it."""
        keys = Keys("test")
        async with asyncio.timeout(20):
            while True:
                lease = await read_or_none(self.redis.get(keys.lease))
                n = await read_or_none(self.redis.hget(keys.head, "n"))
                if isinstance(lease, bytes) and replica.holder:
                    _, fence, holder = lease.split(b"/")
                    if holder.decode() == replica.holder and n == fence:
                        return int(fence)
                await asyncio.sleep(0.02)

    async def disagreements(self) -> list[object]:
        """As `autoscaler verify` finds them."""
        place = self.place
        loaded = load(place.around.policy_path, place.clock.now_ms())
        beside = Replica(from_env(place.env), loaded, place.clock)
        await beside.store.open()
        await beside.github.open()
        providers = beside.daemon.parts.providers
        found = await verify(beside.store, "test", providers, beside.github, second_look_s=2.0)
        await beside.stop()
        return [*found]


@pytest.mark.parametrize(
    "boundary",
    ["commit:before", "CreateMachine:before", "CreateJit:before", "put_jit:before", "StopMachine:after"],
)
async def test_a_leader_that_slept_past_its_lease_changes_nothing(place: Place, boundary: str) -> None:
    pair = Pair(place, boundary)
    async with pair.running():
        await pair.first.start()
        old = await pair.leads(pair.first)
        await pair.second.start()
        place.push(10, seconds=60)
        await until(place.around.existing)
        pair.first.signal(signal.SIGUSR1)
        place.push(10, seconds=60)
        await until(lambda: pair.first.stopped_at == boundary)
        new = await pair.leads(pair.second)
        assert new > old
        pair.first.signal(signal.SIGCONT)
        await until(place.at_rest)
        assert await pair.leads(pair.second) == new
        github = place.around.github
        assert [job.conclusion for job in github.jobs()] == ["success"] * 20
        assert not github.doubled()
        assert await pair.disagreements() == []
        assert "not leading" in pair.first.log.read_text()
