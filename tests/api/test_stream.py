"""`GET /api/v1/stream`: the newest summary to every listener, on change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from autoscaler.http import stream
from tests.api.serving import Served, serving
from tests.api.worlds import Fleet


async def summary(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next one; comments are passed over."""
    async with asyncio.timeout(5):
        async for line in answer.content:
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found
    raise AssertionError("the stream ended")


async def test_a_listener_sees_the_state_and_each_change(served: Served) -> None:
    async with served.session.get(f"{served.url}/api/v1/stream") as answer:
        assert answer.content_type == "text/event-stream"
        first = await summary(answer)
        assert first == await served.get("summary")
        served.fleet.job(9000)
        served.fleet.plan()
        assert (await summary(answer))["jobs"]["queued"] == first["jobs"]["queued"] + 1


async def test_a_second_listener_need_not_wait_for_a_change(served: Served) -> None:
    async with served.session.get(f"{served.url}/api/v1/stream") as one:
        await summary(one)
        async with served.session.get(f"{served.url}/api/v1/stream") as two:
            assert (await summary(two))["fleet"] == "ci"


async def test_a_quiet_stream_tells_the_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.5)
    async with served.session.get(f"{served.url}/api/v1/stream") as answer:
        first = await summary(answer)
        served.fleet.now_ms += 100
        assert (await summary(answer))["at"] != first["at"]


async def test_a_store_that_is_away_is_told_and_found_again(served: Served) -> None:
    async with served.session.get(f"{served.url}/api/v1/stream") as answer:
        await summary(answer)
        served.source.away = True
        assert "does not answer" in (await summary(answer))["away"]
        served.source.away = False
        assert "jobs" in await summary(answer)


async def test_listeners_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LISTENERS_MAX", 1)
    async with served.session.get(f"{served.url}/api/v1/stream") as answer:
        await summary(answer)
        async with served.session.get(f"{served.url}/api/v1/stream") as refused:
            assert refused.status == 503
            assert refused.headers["Retry-After"]


async def test_a_stopping_daemon_does_not_wait_for_listeners(fleet: Fleet) -> None:
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        async with serving(fleet) as served:
            answer = await session.get(f"{served.url}/api/v1/stream")
            await summary(answer)
            began = loop.time()
        assert loop.time() - began < 1
        assert b"data" not in await answer.content.read()
