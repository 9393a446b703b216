"""Real Valkey for the store's tests, and a way to lose its answers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from autoscaler.store.embedded import Embedded
from autoscaler.store.store import Store
from autoscaler.store.url import unix_url
from scheduling.messages import Stage, StageReported
from tests.valkey import Valkey, running

FLEET = "test"
FLEET_KEY = b"a fleet key of at least 32 bytes"


def stage(number: int = 0, detail: str = "") -> StageReported:
    """An event that is easily told from others."""
    return StageReported(number, "r" + "a" * 20, Stage.BOOTED, detail)


@pytest.fixture(scope="session")
def shared() -> Iterator[Valkey]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared: Valkey) -> Iterator[Valkey]:
    """A running server, empty. It may be stopped (SIGSTOP), not killed."""
    shared.empty()
    yield shared
    os.kill(shared.pid, signal.SIGCONT)


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    """A server of the product's own, that may be killed."""
    server = Embedded(tmp_path / "redis")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def socket(server: Valkey) -> Path:
    return server.socket


@pytest.fixture
async def redis(socket: Path) -> AsyncIterator[Any]:
    """A plain client, to see what is really there."""
    client = Redis(unix_socket_path=str(socket))
    yield client
    await client.aclose()


@pytest.fixture
async def open_store(socket: Path) -> AsyncIterator[Callable[..., Any]]:
    """Opens stores (replicas) on the server, or on another socket in front of it."""
    stores: list[Store] = []

    async def open_one(path: Path = socket, **options: Any) -> Store:
        store = Store(unix_url(path).text, FLEET, FLEET_KEY, **options)
        await store.open()
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: Callable[..., Any]) -> Store:
    return await open_store()


class Lossy:
    """A relay that can lose the server's next answer: the command is applied, the client hears nothing."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self.losses = 0
        self.lost = 0
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        back, forth = await asyncio.open_unix_connection(str(self._server))

        async def up() -> None:
            while data := await reader.read(1 << 20):
                forth.write(data)

        upward = asyncio.create_task(up())
        try:
            while data := await back.read(1 << 20):
                if self.losses:
                    self.losses -= 1
                    self.lost += 1
                    return
                writer.write(data)
        finally:
            upward.cancel()
            writer.close()
            forth.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def lossy(tmp_path: Path, socket: Path) -> AsyncIterator[Lossy]:
    relay = Lossy(tmp_path / "lossy.sock", socket)
    listener = await asyncio.start_unix_server(relay.relay, str(relay.path))
    yield relay
    listener.close()
    await relay.close()
