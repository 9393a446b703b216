"""`bootstrap: userdata` in a whole replica: machines that cannot reach the daemon run every job."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from autoscaler.verify import verify
from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import POLICY, Place, live, until

NOWHERE = "http://127.0.0.1:9"  # the discard port: no machine gets an answer there


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        policy = POLICY.replace("defaults: {{", "defaults: {{bootstrap: userdata, ")
        found = Place(Path(name), policy=policy)
        await found.open()
        found.env["AUTOSCALER_PUBLIC_URL"] = NOWHERE
        yield found
        await found.close()


async def test_machines_that_cannot_call_back_run_every_job(place: Place) -> None:
    replica = await place.leading()
    place.push(6)
    await until(place.at_rest)
    world = replica.daemon.world
    await until(lambda: not live(world))
    assert world is not None
    assert not place.around.github.never_ran()
    assert not place.around.github.doubled()
    assert {runner.reason for runner in world.runners.values()} == {GoneReason.DONE}
    assert not any(runner.sealed for runner in world.runners.values())
    assert world.funds["grant"].held == {}
    parts = replica.daemon.parts
    assert await verify(replica.store, "test", parts.providers, replica.github, second_look_s=0.1) == []


async def test_no_config_lies_open_in_redis(place: Place) -> None:
    replica = await place.leading()
    place.push(3, seconds=600)
    await until(lambda: len(replica.daemon.world.by_state[RunnerState.BUSY]) == 3)  # type: ignore[union-attr]
    configs = {config.encode() for config in place.around.machines.configs}
    assert len(configs) == 3
    link = replica.store._link
    for key in await link.call("KEYS", "*"):
        kind = (await link.call("TYPE", key)).decode()
        dump = {"string": ("GET", key), "hash": ("HGETALL", key), "stream": ("XRANGE", key, "-", "+")}.get(kind)
        text = repr(await link.call(*dump)) if dump else ""
        assert not any(config.decode() in text for config in configs), key


async def test_a_leader_killed_between_config_and_machine_is_replaced(place: Place) -> None:
    first = await place.process()
    place.push(8)
    await until(place.around.github.registrations)
    first.kill()
    await first.wait()
    await asyncio.sleep(0)
    await place.process()
    await until(place.at_rest, seconds=90)
    assert not place.around.github.never_ran()
    assert not place.around.github.doubled()
