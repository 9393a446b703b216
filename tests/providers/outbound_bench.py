"""The bench of `reach: outbound`: a store, the daemon's `/host/v1`, and a host whose program calls it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler.http import host_api
from autoscaler.http.auth import ApiAuth
from autoscaler.http.host_api import HostApi
from autoscaler.store.store import Store
from providers.base import Transient
from providers.conformance import Fault
from providers.ssh import KIND, SshSettings, outbound
from providers.ssh.host import answer
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

JOIN_TOKEN = "alice-may-join"
FLEET_KEY = b"a fleet key of at least 32 bytes"
SKIPPED = {
    Fault.QUOTA: "a donated host has no quota",
    Fault.THROTTLED: "nobody throttles; a host that is away has no capacity",
    Fault.UNAUTHORIZED: "the host presents itself to us, we have no credentials there",
    Fault.LIST_UNAUTHORIZED: "the host presents itself to us, we have no credentials there",
}


class NoSshd(Sshd):
    """What `SshBench` asks of a server, where there is none."""

    fault = ""
    port = 1
    user = "nobody"
    host_key = "ssh-ed25519 AAAA"
    key_file = Path("/nonexistent")

    def __init__(self) -> None:
        """No files."""

    def admit(self, yes: bool) -> None:
        """Nobody logs in."""


class FaultyBoard:
    """The store's board, that can be away."""

    def __init__(self, board: Any) -> None:
        self._board, self.away = board, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    async def read(self, host: str) -> Any:
        if self.away:
            self.away -= 1
            raise Transient("the store is away")
        return await self._board.read(host)


class OutboundBench(SshBench):
    """`program` is the host's; `folder` is where it keeps its slots."""

    def __init__(self, clock: Any, folder: Path) -> None:
        super().__init__(NoSshd(), clock, folder)
        self.host = {"name": "attic", "slots": 2, "cpus": 1, "memory_gib": 1}
        self.root = folder
        self.program: subprocess.Popen[bytes] | None = None
        self.fault: Fault | None = None
        self._late: list[dict[str, Any]] = []

    async def open(self) -> None:
        self.store = Store(f"embedded:{self.root / 'redis'}", "fleet", FLEET_KEY)
        await self.store.open()
        self.board = FaultyBoard(self.store.hosts(self.clock))
        await self.settle(slots=2)
        app = web.Application(middlewares=[self._spoil], client_max_size=2**22)
        self.api = HostApi(self.board, lambda: self.providers, "fleet", FLEET_KEY, ApiAuth(None))  # type: ignore[arg-type]
        app.add_routes(host_api.routes(self.api))
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.start("join", self.url, JOIN_TOKEN, "--name", "attic")
        await self.heard()

    async def settle(self, slots: int) -> None:
        """The policy of a host with so many slots."""
        settings = {
            "reach": "outbound",
            "sponsors": {"alice": hashlib.sha256(JOIN_TOKEN.encode()).hexdigest()},
            "hosts": [{**self.host, "slots": slots}],
            "launcher": "bubblewrap",
            "runner": self.config.settings.runner.model_dump(),
        }
        self.config = replace(self.config, settings=SshSettings.model_validate(settings), board=self.board)  # type: ignore[arg-type]
        self.providers = {"lab": KIND.build(self.config, self.clock)}

    def start(self, *command: str, **env: str) -> None:
        log = (self.root / "host.log").open("ab")
        self.program = subprocess.Popen(
            [sys.executable, "-m", "autoscaler", "host", *command, "--folder", str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **env},
        )
        log.close()

    def stop(self) -> None:
        if self.program is not None:
            self.program.kill()
            self.program.wait()
            self.program = None

    async def heard(self) -> None:
        """Until the host has said what it has, after now."""
        before = (await self.board.read("lab/attic")).reported_ms
        async with asyncio.timeout(30):
            while (await self.board.read("lab/attic")).reported_ms <= before:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    @web.middleware
    async def _spoil(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.fault is Fault.ANSWER_LOST and (await request.read()).find(b'"runner_id"') > 0:
            return web.Response(status=503)
        answered = await handler(request)
        if self.fault is Fault.APPLIED_LATE and request.path.endswith("poll"):
            self._late.append(json.loads(answered.body))
            return web.Response(status=503)
        return answered

    async def inject(self, fault: Fault) -> None:
        if fault in SKIPPED:
            pytest.skip(SKIPPED[fault])
        self.fault = fault
        if fault is Fault.NO_CAPACITY:
            await super().inject(fault)
        elif fault is Fault.REFUSED:
            self.stop()
            self.start("run", PATH="/nonexistent")
            await self.heard()
        elif fault in (Fault.REQUEST_LOST, Fault.LIST_STALE):
            self.stop()
        elif fault is Fault.LIST_THROTTLED_ONCE:
            self.board.away = 1
        elif fault is Fault.LIST_BREAKS:
            self.board.away = 1_000

    async def clear(self) -> None:
        fault, self.fault = self.fault, None
        await super().clear()
        self.board.away = 0
        if fault in (Fault.REFUSED, Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.APPLIED_LATE):
            self.stop()  # and does not wait for its next attempt
            self.start("run")

    async def arrive(self) -> None:
        """What was on its way to the host all the time is done there."""
        for wanted in self._late:
            for runner_id, launch in wanted["launch"].items():
                terms = {**wanted["terms"], "call": "launch", "folder": str(self.folder), "fleet": "fleet"}
                await asyncio.to_thread(answer, {**launch, **terms, "runner_id": runner_id})
        self._late.clear()

    async def fill(self, count: int) -> None:
        self.stop()
        await self.settle(slots=count)
        await super().fill(count)
        for file in self.folder.glob("slots/*/lease.json"):
            lease = json.loads(file.read_text())
            proof = self.api._auth.proof("lab/attic", lease)
            file.write_text(json.dumps({**lease, "proof": proof}))
        self.start("run")
        await self.heard()

    async def end_leaving_a_disk(self, instance: Any) -> None:
        await super().end_leaving_a_disk(instance)
        self.stop()  # a waiting one would tell only in its next call
        self.start("run")
        async with asyncio.timeout(30):
            while any(lease["running"] for lease in (await self.board.read("lab/attic")).report["leases"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def close_all(self) -> None:
        self.stop()
        self.api.close()
        await self._runner.cleanup()
        await self.store.close()
        self.close()


@asynccontextmanager
async def joined(clock: Any, folder: Path) -> AsyncIterator[OutboundBench]:
    """A host that has joined. Whoever is not answered waits 3 s, not 20."""
    bench = OutboundBench(clock, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbound, "ANSWER_S", 3.0)
        try:
            await bench.open()
        except TimeoutError:
            raise AssertionError((folder / "host.log").read_text()) from None
        yield bench
        await bench.close_all()
