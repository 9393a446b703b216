"""JIT configs on their way to the machine: readable with the fleet key only, and only for their runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoscaler.store.keys import MACHINE_LIFE_MS, Keys
from autoscaler.store.sealing import Seal
from autoscaler.store.store import NOBODY, Store
from scheduling.lifecycle import RunnerState

from .conftest import FLEET, FLEET_KEY

RUNNER, OTHER = "r" + "a" * 20, "r" + "b" * 20
CONFIG = "eyJqaXQiOiAic2VjcmV0In0="


async def test_a_look_tells_state_and_config(store: Store, redis: Any) -> None:
    await redis.hset(Keys(FLEET).records["runner"], RUNNER, b'{"id":"r","state":"registering"}')
    await store.put_jit(RUNNER, CONFIG)
    assert await store.look([RUNNER, OTHER]) == {RUNNER: (RunnerState.REGISTERING, CONFIG), OTHER: (None, None)}
    assert await store.look([RUNNER]) == {RUNNER: (RunnerState.REGISTERING, CONFIG)}
    assert await store.look([]) == {}


async def test_a_damaged_record_stops_nobody_else(store: Store, redis: Any) -> None:
    await redis.hset(Keys(FLEET).records["runner"], mapping={RUNNER: b"{", OTHER: b'{"state":"ready"}'})
    assert await store.look([RUNNER, OTHER]) == {RUNNER: (None, None), OTHER: (RunnerState.READY, None)}


async def test_a_dropped_config_is_gone(store: Store) -> None:
    await store.put_jit(RUNNER, CONFIG)
    await store.drop_jit(RUNNER)
    assert await store.look([RUNNER]) == {RUNNER: (None, None)}


async def test_a_leader_lays_it_out_under_its_fence(store: Store) -> None:
    fence = await store.acquire("me", 30)
    await store.put_jit(RUNNER, CONFIG, fence)
    assert await store.look([RUNNER]) == {RUNNER: (None, CONFIG)}


async def test_nothing_readable_lies_in_redis(store: Store, redis: Any) -> None:
    await store.put_jit(RUNNER, CONFIG)
    raw = await redis.get(Keys(FLEET).jit(RUNNER))
    assert CONFIG.encode() not in raw
    assert Seal(FLEET_KEY).unseal(RUNNER, raw) == CONFIG
    assert Seal(FLEET_KEY).unseal(OTHER, raw) is None
    assert Seal(b"another fleet key of 32 bytes and more").unseal(RUNNER, raw) is None


async def test_a_config_of_another_runner_or_a_damaged_one_is_no_config(
    store: Store, redis: Any, open_store: Callable[..., Any]
) -> None:
    await store.put_jit(RUNNER, CONFIG)
    raw = await redis.get(Keys(FLEET).jit(RUNNER))
    await redis.set(Keys(FLEET).jit(OTHER), raw)
    await redis.set(Keys(FLEET).jit(RUNNER), b"short")
    assert await store.look([RUNNER, OTHER]) == {RUNNER: (None, None), OTHER: (None, None)}


async def test_one_machine_speaks_for_a_runner_also_after_a_restart_of_the_daemon(
    store: Store, redis: Any, open_store: Callable[..., Any]
) -> None:
    assert await store.claim(RUNNER, "1" * 32)
    assert await store.claim(RUNNER, "1" * 32)
    assert not await store.claim(RUNNER, "2" * 32)
    assert await store.claim(OTHER, "2" * 32)
    assert not await (await open_store()).claim(RUNNER, "2" * 32)
    assert not await store.claim(RUNNER, NOBODY)
    assert 0 < await redis.pttl(Keys(FLEET).machine(RUNNER)) <= MACHINE_LIFE_MS


async def test_nobody_speaks_for_a_runner_that_was_given_up(store: Store) -> None:
    assert await store.claim(RUNNER, NOBODY)
    assert await store.claim(RUNNER, NOBODY)
    assert not await store.claim(RUNNER, "1" * 32)


async def test_who_goes_on_calling_goes_on_speaking(store: Store, redis: Any) -> None:
    await store.claim(RUNNER, "1" * 32)
    await redis.pexpire(Keys(FLEET).machine(RUNNER), 1000)
    assert not await store.claim(RUNNER, "2" * 32)
    assert await redis.pttl(Keys(FLEET).machine(RUNNER)) <= 1000
    assert await store.claim(RUNNER, "1" * 32)
    assert await redis.pttl(Keys(FLEET).machine(RUNNER)) > 1000


def test_secrets_are_not_shown() -> None:
    store = Store("redis://user:hunter2@redis.example:6379/0", FLEET, FLEET_KEY)
    assert "hunter2" not in repr(store)
    assert "key" not in repr(Seal(FLEET_KEY))
