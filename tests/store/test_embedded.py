"""The embedded server: no port, one a directory, and nothing lost whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from autoscaler.store.embedded import Embedded, EmbeddedError
from autoscaler.store.store import Store

from .conftest import FLEET, FLEET_KEY, stage

APPENDING = Path(__file__).parent / "appending.py"


@contextmanager
def daemon(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that appends, and the pid of its server."""
    command = [sys.executable, str(APPENDING), str(directory), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def kill_after(process: subprocess.Popen[str], acknowledged: int) -> int:
    """kill -9 once that many events are acknowledged; how many were in the end."""
    assert process.stdout
    last = 0
    while last < acknowledged:
        last = int(process.stdout.readline())
    process.kill()
    return max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # a zombie that its new parent has not collected yet
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return sys.platform != "linux"


async def ended(pid: int) -> bool:
    for _ in range(500):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


async def read_all(directory: Path) -> list[int]:
    """What a new daemon finds in the inbox."""
    store = Store(f"embedded:{directory}", FLEET, FLEET_KEY)
    await store.open()
    entries = await store.read("0-0", 1_000_000, 0)
    await store.close()
    return [entry.event.at_ms for entry in entries]  # type: ignore[union-attr]


async def test_it_listens_on_no_port_and_appends_to_a_file(embedded: Embedded) -> None:
    redis = Redis(unix_socket_path=str(embedded.directory / "valkey.sock"))
    said = {
        **await redis.config_get("port"),
        **await redis.config_get("append*"),
        **await redis.config_get("save"),
    }
    assert said["port"] == "0"
    assert (said["appendonly"], said["appendfsync"], said["save"]) == ("yes", "everysec", "")
    await redis.aclose()
    assert (embedded.directory / "valkey.sock").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent on Linux only")
async def test_the_server_ends_with_a_killed_daemon_and_nothing_is_lost(tmp_path: Path) -> None:
    with daemon(tmp_path) as (process, server_pid):
        acknowledged = kill_after(process, 500)
        assert await ended(server_pid)
    assert (await read_all(tmp_path))[:acknowledged] == list(range(acknowledged))


async def test_a_server_left_behind_is_ended_by_the_next_start(tmp_path: Path) -> None:
    with daemon(tmp_path, "orphan") as (process, server_pid):
        acknowledged = kill_after(process, 500)
        process.wait()
        assert alive(server_pid)
        assert (await read_all(tmp_path))[:acknowledged] == list(range(acknowledged))
        assert await ended(server_pid)


async def test_a_restart_at_once_waits_for_the_dying_server(tmp_path: Path) -> None:
    for _ in range(3):
        with daemon(tmp_path) as (process, _pid):
            kill_after(process, 50)
    events = await read_all(tmp_path)
    assert [events.count(number) >= 3 for number in range(50)] == [True] * 50


async def test_a_killed_server_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    store = Store(f"embedded:{tmp_path}", FLEET, FLEET_KEY)
    await store.open()
    assert store._embedded
    acknowledged = []
    for number in range(300):
        if number == 150 and (pid := store._embedded.pid):
            os.kill(pid, signal.SIGKILL)
        await store.append([stage(number)])  # waits for the restart by itself
        acknowledged.append(number)
    await store.close()
    assert await read_all(tmp_path) == acknowledged


async def test_a_torn_tail_of_the_file_is_cut(tmp_path: Path) -> None:
    store = Store(f"embedded:{tmp_path}", FLEET, FLEET_KEY)
    await store.open()
    await store.append([stage(1)])
    await store.append([stage(2)])
    await store.close()
    file = tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"
    file.write_bytes(file.read_bytes()[:-7])
    assert await read_all(tmp_path) == [1]


async def test_a_directory_has_one_daemon(embedded: Embedded) -> None:
    with pytest.raises(EmbeddedError, match="belongs to another running autoscaler") as caught:
        await Embedded(embedded.directory).start()
    assert "AUTOSCALER_REDIS_URL" in str(caught.value)
    assert embedded.pid


async def test_a_stopped_server_can_be_started_again(tmp_path: Path) -> None:
    for _ in range(2):
        server = Embedded(tmp_path)
        await server.start()
        pid = server.pid
        await server.stop()
        assert pid
        assert not alive(pid)


async def test_a_long_path_is_reached_through_a_short_link(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    store = Store(f"embedded:{directory}", FLEET, FLEET_KEY)
    await store.open()
    assert store._embedded
    assert store._embedded._short
    link = Path(store._embedded._short.name)
    await store.append([stage(1)])
    await store.close()
    assert (directory / "appendonlydir").is_dir()
    assert not os.path.lexists(link)  # noqa: ASYNC240
    assert await read_all(directory) == [1]


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match=r"file.*name a directory that this user may write"):
        await Embedded(tmp_path / "file" / "redis").start()


async def test_a_server_that_cannot_start_gives_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("not a manifest\n")
    server = Embedded(tmp_path)
    with pytest.raises(EmbeddedError, match=r"manifest.*valkey\.log"):
        await server.start()
    assert server.pid is None
    await server.stop()


async def test_a_relative_directory_counts_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Embedded(Path("data/redis"))
    url = await server.start()
    monkeypatch.chdir("/")
    client: Any = url.client(1.0)
    assert await client.ping()
    await client.aclose()
    await server.stop()
    assert (tmp_path / "data/redis/appendonlydir").is_dir()


async def test_ctrl_c_is_for_the_daemon(embedded: Embedded) -> None:
    assert embedded.pid
    assert os.getsid(embedded.pid) != os.getsid(0)
