"""A TCP proxy that can stall: it accepts, takes what it is sent, and brings nothing anywhere until it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class Stall:
    """Before a server at a port of this machine or at a unix socket. What it holds back arrives late, in order."""

    def __init__(self, target: int | Path) -> None:
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.held = 0  # bytes that came in while it stalled

    def stall(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            await self._flows.wait()
            if isinstance(self._target, Path):
                back, forth = await asyncio.open_unix_connection(str(self._target))
            else:
                back, forth = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
        except OSError:
            writer.close()
        finally:
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """To the end of what was sent, also when its sender has given up: that is how a stall makes calls late."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self._flows.is_set():
                    self.held += len(data)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def stall_before(target: int | Path) -> AsyncIterator[Stall]:
    found = Stall(target)
    server = await asyncio.start_server(found.relay, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.end()
