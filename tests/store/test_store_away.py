"""Redis stopped, stalled, read-only, full, gone: one error, in bounded time, and nothing doubled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from autoscaler.store import link as redis_link
from autoscaler.store.store import Fence, Store, StoreAway
from autoscaler.store.url import unix_url
from tests.valkey import Valkey

from .conftest import FLEET, FLEET_KEY, stage

RUNNER = "r" + "a" * 20
FENCE = Fence("0" * 40, 1, "me")
CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "append": lambda store: store.append([stage()]),
    "acquire": lambda store: store.acquire("me", 10),
    "renew": lambda store: store.renew(FENCE, 10),
    "release": lambda store: store.release(FENCE),
    "read": lambda store: store.read("0-0", 1, 0.1),
    "load": lambda store: store.load(),
    "commit": lambda store: store.commit(FENCE, {}, "0-0"),
    "journal": lambda store: store.journal(),
    "put_jit": lambda store: store.put_jit(RUNNER, "config"),
    "drop_jit": lambda store: store.drop_jit(RUNNER),
    "look": lambda store: store.look([RUNNER]),
    "server_run_id": lambda store: store.server_run_id(),
    "ping": lambda store: store.ping(),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.2)


@pytest.fixture
async def stopped(server: Valkey, store: Store) -> AsyncIterator[None]:
    """The server hangs."""
    await store.append([stage()])
    os.kill(server.pid, signal.SIGSTOP)
    yield
    os.kill(server.pid, signal.SIGCONT)


async def test_a_server_that_hangs_is_away_for_every_call(
    store: Store, impatient: None, stopped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(call(store) for call in CALLS.values()), return_exceptions=True)
    assert {name: type(answer) for name, answer in zip(CALLS, answers, strict=True)} == dict.fromkeys(
        CALLS, StoreAway
    )
    assert loop.time() - began < 4


async def test_a_server_that_is_not_there_is_away_for_every_call(tmp_path: Path, impatient: None) -> None:
    store = Store(unix_url(tmp_path / "nothing.sock").text, FLEET, FLEET_KEY)
    await store.open()
    for name, call in CALLS.items():
        with pytest.raises(StoreAway, match=r"nothing\.sock"):
            await call(store)
        assert name
    await store.close()


async def test_a_store_that_is_not_open_is_away() -> None:
    with pytest.raises(StoreAway, match="not open"):
        await Store("redis://127.0.0.1:1/0", FLEET, FLEET_KEY).ping()


async def test_a_stall_within_patience_stores_once(store: Store, server: Valkey) -> None:
    """The server stalls past the 1 s timeout; the command is sent again and both copies are executed."""
    fence = await store.acquire("me", 30)
    assert fence
    await store.append([stage(1)])
    os.kill(server.pid, signal.SIGSTOP)
    appending = asyncio.create_task(store.append([stage(2)]))
    committing = asyncio.create_task(store.commit(fence, {("switch", "all"): "me"}, "0-0", [{"n": 1}]))
    await asyncio.sleep(redis_link.ANSWER_SECONDS + 0.3)
    os.kill(server.pid, signal.SIGCONT)
    await appending
    assert await committing
    await store.append([stage(3)])
    assert [entry.event for entry in await store.read("0-0", 10, 0)] == [stage(1), stage(2), stage(3)]
    assert len(await store.journal()) == 1


async def test_everybody_who_waits_is_told_at_once(store: Store, impatient: None, stopped: None) -> None:
    """No queue of batches that each wait out their own patience."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = [asyncio.create_task(store.append([stage()])) for _ in range(50)]
    await asyncio.sleep(0.1)
    second = [asyncio.create_task(store.append([stage()])) for _ in range(50)]
    answers = await asyncio.gather(*first, *second, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreAway}
    assert loop.time() - began < 2.5


@pytest.mark.parametrize("trouble", ["readonly", "out of memory"])
async def test_a_server_that_does_not_write_is_away_at_once(store: Store, redis: Any, trouble: str) -> None:
    await store.append([stage(1)])
    fence = await store.acquire("me", 30)
    assert fence
    if trouble == "readonly":
        await redis.replicaof("127.0.0.1", "1")
    else:
        await redis.config_set("maxmemory", "1")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StoreAway, match=r"READONLY|read only|OOM|memory|master"):
        await store.append([stage(2)])
    with pytest.raises(StoreAway):
        await store.commit(fence, {("switch", "all"): "me"}, "1-0", [{"n": 1}])
    assert loop.time() - began < redis_link.PATIENCE_SECONDS + 1
    await (redis.replicaof("NO", "ONE") if trouble == "readonly" else redis.config_set("maxmemory", "0"))
    await store.append([stage(3)])
    assert [entry.event for entry in await store.read("0-0", 10, 0)] == [stage(1), stage(3)]
    assert (await store.load()).records == []
    assert await store.journal() == []


async def test_it_comes_back_by_itself(store: Store, impatient: None, server: Valkey) -> None:
    await store.append([stage(1)])
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(StoreAway):
        await store.ping()
    os.kill(server.pid, signal.SIGCONT)
    await store.ping()
    await store.append([stage(2)])
    assert len(await store.read("0-0", 10, 0)) == 2
