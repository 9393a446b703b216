"""What the tests of GitHub's side share: names, a clock, a runner, a webhook receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.github.client import GitHub

OWNER = "octo-org"
REPOSITORY = "octo-org/rocket"
LABELS = ("self-hosted", "Linux", "x64")

Connect = Callable[..., Awaitable[GitHub]]


class StillClock(Clock):
    """Time that moves only when told, or by sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_790_000_000_000

    def now_ms(self) -> int:
        return self.now

    async def sleep(self, ms: int) -> None:
        self.now += max(0, ms)
        await asyncio.sleep(0)


class OthersClock(Clock):
    """The time of a `StillClock` for another party, whose sleeping does not move it."""

    def __init__(self, still: StillClock) -> None:
        super().__init__()
        self.still = still

    def now_ms(self) -> int:
        return self.still.now


@dataclass
class Runner:
    """GitHub's runner, as a machine runs it."""

    http: aiohttp.ClientSession
    url: str
    session: str = ""

    async def connect(self, config: str) -> int:
        async with self.http.post(f"{self.url}/_runner/connect", json={"jit": config}) as answer:
            if answer.status == 200:
                self.session = (await answer.json())["session"]
            return answer.status

    async def job(self, wait: float = 5) -> dict[str, Any] | None:
        async with self.http.get(f"{self.url}/_runner/{self.session}/job?wait={wait}") as answer:
            return await answer.json() if answer.status == 200 else None

    async def finish(self, conclusion: str = "success") -> int:
        url = f"{self.url}/_runner/{self.session}/finish"
        async with self.http.post(url, json={"conclusion": conclusion}) as answer:
            return answer.status

    async def disconnect(self) -> None:
        async with self.http.post(f"{self.url}/_runner/{self.session}/disconnect"):
            pass


@dataclass
class Receiver:
    """A webhook receiver that keeps what it gets and answers `status`."""

    url: str = ""
    status: int = 202
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.status)
