"""What job code can do with the callback token of its machine: nothing to others, and no harm to itself."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.http.runner_api import NONCE_HEADER, callback_token
from autoscaler.serve import Replica
from providers.sim import Machine
from scheduling.lifecycle import RunnerState
from scheduling.messages import Stage
from tests.daemon.place import Place, until

OTHER = "r" + "9" * 20


def stolen(machine: Machine) -> tuple[str, str]:
    """Runner id and token, as a job reads them from its machine."""
    boot = json.loads(machine.spec.boot)
    return boot["runner_id"], boot["token"]


async def credentials(replica: Replica, machine: Machine) -> dict[str, str]:
    """Everything with which the machine itself calls: a job that became root could read the nonce too."""
    runner_id, token = stolen(machine)
    nonce = await replica.store._link.call("GET", replica.store._keys.machine(runner_id))
    return {"Authorization": f"Bearer {token}", NONCE_HEADER: nonce.decode()}


async def running(place: Place, count: int = 1) -> list[Machine]:
    """Machines on which a job of four minutes runs."""
    place.push(count, seconds=240)
    await until(lambda: sum(job.state == "in_progress" for job in place.around.github.jobs()) == count)
    return place.around.existing()


@pytest.mark.parametrize("stages", [["exited"], ["failed", "refused"], [*Stage]])
async def test_no_forged_stage_ends_a_running_job_or_settles_its_hold(place: Place, stages: list[str]) -> None:
    replica = await place.leading()
    [machine] = await running(place)
    runner_id, _ = stolen(machine)
    world = replica.daemon.world
    assert world is not None
    await until(lambda: world.runners[runner_id].state is RunnerState.BUSY)
    held = dict(world.funds["grant"].held)
    async with aiohttp.ClientSession(place.url, headers=await credentials(replica, machine)) as session:
        for _ in range(3):
            for stage in stages:
                async with session.post(f"/runner/v1/{runner_id}/stages", json={"stage": stage}) as answer:
                    assert answer.status == 202
    start_ms = place.clock.now_ms()
    await until(lambda: place.clock.now_ms() > start_ms + 130_000)
    assert [each.ref for each in place.around.existing()] == [machine.ref]
    assert world.funds["grant"].held == held
    await until(place.at_rest)
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]


async def test_a_token_opens_nothing_but_its_own_two_paths(place: Place) -> None:
    replica = await place.leading()
    first, second = await running(place, 2)
    runner_id, token = stolen(first)
    other_id, _ = stolen(second)
    world = replica.daemon.world
    assert world is not None
    before = (dict(world.switches), set(world.runners))
    calls = [
        ("POST", f"/runner/v1/{other_id}/stages", 401),
        ("GET", f"/runner/v1/{other_id}/jit", 401),
        ("GET", f"/runner/v1/{OTHER}/jit", 401),
        ("POST", "/api/v1/pause", 403),
        ("POST", "/api/v1/drain", 403),
        ("POST", "/webhooks/github", 401),
        ("DELETE", f"/runner/v1/{runner_id}/stages", 405),
        ("POST", f"/runner/v1/{runner_id}/stages", 410),  # another machine has called for this runner
        ("GET", f"/runner/v1/{runner_id}/jit", 410),
    ]
    async with aiohttp.ClientSession(place.url, headers={"Authorization": f"Bearer {token}"}) as session:
        for method, path, expected in calls:
            async with session.request(method, path, json={"stage": "exited", "target": "all"}) as answer:
                assert answer.status == expected, path
    async with (
        aiohttp.ClientSession(place.url, headers=await credentials(replica, first)) as session,
        session.get(f"/runner/v1/{runner_id}/jit") as answer,
    ):
        assert answer.status == 204  # its runner has registered: no config any more
    assert (dict(world.switches), set(world.runners)) == before


async def test_a_token_for_a_runner_that_never_was_makes_none(place: Place) -> None:
    """Who holds the fleet key could forge one; even then a callback creates no record."""
    replica = await place.leading()
    key = Path(place.env["AUTOSCALER_FLEET_KEY_FILE"]).read_bytes().strip()  # noqa: ASYNC240
    headers = {"Authorization": f"Bearer {callback_token(key, OTHER)}"}
    async with aiohttp.ClientSession(place.url, headers=headers) as session:
        for stage in Stage:
            async with session.post(f"/runner/v1/{OTHER}/stages", json={"stage": stage}) as answer:
                assert answer.status == 202
    place.push(1)
    await until(place.at_rest)
    world = replica.daemon.world
    assert world is not None
    assert OTHER not in world.runners


async def test_no_callback_breaks_the_daemon(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Fuzzing: any bytes on either path, with a valid token; afterwards a job runs as usual."""
    replica = await place.leading()
    [machine] = await running(place)
    runner_id, _ = stolen(machine)
    texts = st.text(max_size=50)
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts, st.lists, max_leaves=5
    )
    stages = st.fixed_dictionaries(
        {"stage": st.sampled_from([*map(str, Stage)]) | texts}, optional={"detail": anything}
    )
    bodies: list[bytes] = []

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.binary(max_size=200) | (stages | anything).map(lambda value: json.dumps(value).encode()))
    def draw(body: bytes) -> None:
        bodies.append(body)

    draw()
    headers = {**await credentials(replica, machine), "Content-Type": "application/json"}
    async with aiohttp.ClientSession(place.url, headers=headers) as session:

        async def post(body: bytes) -> int:
            async with session.post(f"/runner/v1/{runner_id}/stages", data=body) as answer:
                return answer.status

        statuses = set(await asyncio.gather(*map(post, bodies)))
    assert statuses <= {202, 400}
    assert statuses == {202, 400}
    await until(place.at_rest)
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]
    assert replica.daemon.leader is not None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
