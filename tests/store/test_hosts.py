"""The board of donated hosts: what is wanted stands until the host says that it is so."""

from __future__ import annotations

from typing import Any

from autoscaler.clock import Clock
from autoscaler.store.hosts import Hosts
from autoscaler.store.keys import Keys
from autoscaler.store.store import Store

from .conftest import FLEET

HOST, RUNNER = "lab/attic", "r" + "a" * 20
LAUNCH = {"runner_id": RUNNER, "boot": "the callback token", "tags": {}}


def board(store: Store) -> Hosts:
    return store.hosts(Clock())


def lease(started: bool = True) -> dict[str, Any]:
    return {"runner_id": RUNNER, "started": started, "running": started}


async def said(hosts: Hosts, *leases: dict[str, Any], **answers: dict[str, Any]) -> None:
    await hosts.report(HOST, 1, {"leases": list(leases), "answers": answers, "has": {}})


async def test_what_is_wanted_stands_until_a_report_shows_it(store: Store) -> None:
    hosts = board(store)
    number = await hosts.want(HOST, RUNNER, LAUNCH)
    await said(hosts)
    assert (await hosts.read(HOST)).wanted == {RUNNER: LAUNCH}
    await said(hosts, lease(started=False))  # it stopped in the middle of a start
    assert (await hosts.read(HOST)).wanted == {RUNNER: LAUNCH}
    await said(hosts, lease())
    state = await hosts.read(HOST)
    assert (state.wanted, state.present, state.acted) == ({}, True, 1)
    assert await hosts.numbers([HOST, "lab/other"]) == {HOST: number, "lab/other": 0}


async def test_nothing_takes_back_an_end_until_the_host_has_brought_it_about(store: Store) -> None:
    hosts = board(store)
    await hosts.want(HOST, RUNNER, None)
    await hosts.want(HOST, RUNNER, LAUNCH)  # a launch that was under way all the time
    await said(hosts, lease())
    assert (await hosts.read(HOST)).wanted == {RUNNER: None}
    await said(hosts, **{RUNNER: {"cooled": ""}})
    assert (await hosts.read(HOST)).wanted == {}


async def test_i11_launch_data_lies_there_sealed(store: Store, redis: Any) -> None:
    hosts = board(store)
    await hosts.want(HOST, RUNNER, LAUNCH)
    raw = await redis.hgetall(Keys(FLEET).host(HOST))
    assert b"callback token" not in b"".join(raw.values())
    await hosts.withdraw(HOST, RUNNER)
    assert (await hosts.read(HOST)).wanted == {}


async def test_a_host_that_is_looked_for_is_remembered_and_has_not_joined(store: Store) -> None:
    hosts = board(store)
    since_ms = await hosts.look_for(HOST)
    assert await hosts.look_for(HOST) == since_ms
    state = await hosts.read(HOST)
    assert (state.joined, state.present, state.since_ms) == (False, False, since_ms)


async def test_switches(store: Store) -> None:
    hosts = board(store)
    await hosts.switch(HOST, "paused", "alice")
    await hosts.switch(HOST, "keep_minutes", 30)
    state = await hosts.read(HOST)
    assert (state.paused, state.keep_minutes) == ("alice", 30)
    await hosts.switch(HOST, "paused", "")
    await hosts.switch(HOST, "keep_minutes", 0)
    state = await hosts.read(HOST)
    assert (state.paused, state.keep_minutes) == ("", 0)
