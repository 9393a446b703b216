"""Strangers who send slowly, or too much: their sockets are closed, and everybody else is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import uvloop

from autoscaler.http import head_guard
from tests.daemon.place import Place


@asynccontextmanager
async def connection(place: Place) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = place.env["AUTOSCALER_LISTEN"].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def closed(reader: asyncio.StreamReader, seconds: float = 5.0) -> bytes:
    """What the server said until it closed the connection; fails if it does not."""
    said = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(seconds):
            while piece := await reader.read(1 << 16):
                said += piece
    return said


async def healthy(place: Place) -> bool:
    async with aiohttp.ClientSession() as session, session.get(f"{place.url}/healthz") as answer:
        return answer.status == 200


async def test_a_head_that_never_ends_is_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_guard, "HEAD_SECONDS", 0.5)
    await place.replica()
    async with connection(place) as (reader, writer):
        trickle = asyncio.create_task(_trickle(writer))
        assert await healthy(place)
        assert await closed(reader) == b""
        trickle.cancel()


async def _trickle(writer: asyncio.StreamWriter) -> None:
    """A header byte now and then, as a slow-loris attack does."""
    writer.write(b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nX-A: ")
    while True:
        writer.write(b"a")
        await asyncio.sleep(0.05)


async def test_a_connection_that_says_nothing_is_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_guard, "HEAD_SECONDS", 0.3)
    await place.replica()
    async with connection(place) as (reader, _):
        assert await closed(reader) == b""


async def test_a_slow_head_within_the_limit_is_served_and_the_connection_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_guard, "HEAD_SECONDS", 0.6)
    await place.replica()
    async with connection(place) as (reader, writer):
        for piece in (b"GET /healthz HTTP/1.1\r\nHo", b"st: x\r\n\r", b"\n"):
            writer.write(piece)
            await asyncio.sleep(0.05)
        assert b" 200 " in await reader.readuntil(b"}")
        await asyncio.sleep(0.8)  # past the limit of a first head: it does not count any more
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"}")


async def test_an_idle_connection_is_closed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscaler.serve.KEEPALIVE_SECONDS", 0.3)
    await place.replica()
    async with connection(place) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await closed(reader)


def test_the_same_on_uvloop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`serve` runs on it, and its transports are their own."""
    monkeypatch.setattr(head_guard, "HEAD_SECONDS", 0.5)

    async def check() -> None:
        place = Place(tmp_path)
        await place.open()
        try:
            await place.replica()
            async with connection(place) as (reader, _):
                assert await healthy(place)
                assert await closed(reader) == b""
        finally:
            await place.close()

    uvloop.run(check())


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 9000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(200)) + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 10_000_000,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 1_000_000,
    ],
    ids=["long line", "long header", "many headers", "a header without end", "headers without end"],
)
async def test_heads_are_bounded_in_size(place: Place, head: bytes) -> None:
    await place.replica()
    async with connection(place) as (reader, writer):
        writer.write(head)
        said = await closed(reader)
    assert b" 200 " not in said
    assert await healthy(place)
