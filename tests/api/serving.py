"""The HTTP API on a real socket, over a world of `worlds.Fleet`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from autoscaler.http import api as http_api
from autoscaler.metrics import Metrics
from autoscaler.settings import ApiToken
from autoscaler.store.store import StoreAway
from autoscaler.views.jobs_and_runners import View
from scheduling import ledger
from scheduling.messages import FundSpentStated, SwitchSet
from tests.api.worlds import Fleet


class FleetSource:
    """What `serve` gives the API, from a fleet in this process. `away`: the store does not answer."""

    def __init__(self, fleet: Fleet, **view: Any) -> None:
        self.fleet, self.options, self.away = fleet, view, False

    async def view(self) -> View:
        if self.away:
            raise StoreAway("redis://127.0.0.1:6379 does not answer")
        return self.fleet.view(**self.options)

    async def state_spent(self, fund: str, amount: int, by: str) -> None:
        period = ledger.period(self.fleet.policy.funds[fund], self.fleet.now_ms)
        self.fleet.tell(FundSpentStated(self.fleet.now_ms, fund, period, amount, self.fleet.now_ms, by))

    async def switch(self, target: str, on: bool, by: str) -> None:
        if self.away:
            raise StoreAway("redis://127.0.0.1:6379 does not answer")
        self.fleet.tell(SwitchSet(self.fleet.now_ms, target, on, by))
        self.fleet.plan()

    async def ready(self) -> bool:
        return not self.away


class Served:
    def __init__(self, source: FleetSource, metrics: Metrics, session: aiohttp.ClientSession, url: str) -> None:
        self.source, self.fleet, self.metrics, self.session, self.url = source, source.fleet, metrics, session, url

    async def get(self, path: str, token: str = "", status: int = 200) -> Any:
        """The JSON answer to GET /api/v1/PATH."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(f"{self.url}/api/v1/{path}", headers=headers) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def post(self, path: str, token: str = "", status: int = 202, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.post(f"{self.url}/api/v1/{path}", headers=headers, **more) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def text(self, path: str) -> str:
        async with self.session.get(f"{self.url}{path}") as answer:
            assert answer.status == 200
            return await answer.text()


def token(name: str, scope: Any) -> ApiToken:
    """A token whose text is `NAME-token`."""
    return ApiToken(name, hashlib.sha256(f"{name}-token".encode()).hexdigest(), scope)


@asynccontextmanager
async def serving(
    fleet: Fleet, tokens: tuple[ApiToken, ...] | None = None, *, leads: bool = True, **view: Any
) -> AsyncIterator[Served]:
    source, metrics = FleetSource(fleet, leading=leads, **view), Metrics()
    metrics.leading(leads)
    app = web.Application()
    http_api.add_to(app, source, metrics, tokens)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Served(source, metrics, session, f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
