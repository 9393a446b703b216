"""The programs of machines: the sandbox's own, speaking to the replicas' and GitHub's handlers in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from autoscaler.sandbox.github_access import Denied
from autoscaler.sandbox.github_runner import RunnerSide
from autoscaler.sandbox.machines import POLL_TIMEOUT, Boot, GivenJob, Program
from providers.sim import Machine
from scheduling.messages import Stage
from tests.simulation.clock import SimClock
from tests.simulation.request import Request

Post = Callable[[str, Request, float], Any]
"""(handler, request, timeout in seconds) -> awaitable of an aiohttp response, or None when nobody answered."""


class Watcher:
    """What the checker wants to know of machines."""

    def handed(self, machine: Machine, config: str) -> None: ...

    def step_begins(self, machine: Machine, job: GivenJob) -> None: ...


@dataclass
class Machines:
    """`run` is every cloud's `on_boot`."""

    clock: SimClock
    side: RunnerSide
    post: Post
    watcher: Watcher
    strikes: Callable[[str], bool]
    running: dict[str, GivenJob] = field(default_factory=dict)  # machine ref -> what its program works on
    _decoder: msgspec.json.Decoder[Boot] = field(default_factory=lambda: msgspec.json.Decoder(Boot))

    async def run(self, machine: Machine) -> None:
        boot = self._decoder.decode(machine.spec.boot)
        handlers = {
            "connect": self.side.connect,
            "job": self.side.job,
            "finish": self.side.finish,
            "disconnect": self.side.disconnect,
        }
        try:
            await SimProgram(boot, machine, None, "github:", self.clock, self, handlers).run()  # type: ignore[arg-type]
        finally:
            self.running.pop(machine.ref, None)


@dataclass
class SimProgram(Program):
    """The sandbox's program; only its sockets are replaced."""

    machines: Machines
    handlers: dict[str, Any]
    job: GivenJob | None = None

    async def config(self) -> str:
        if self.boot.jit:
            self.machines.watcher.handed(self.machine, self.boot.jit)
        return await super().config()

    async def next_job(self, session: str) -> GivenJob | None:
        self.job = await super().next_job(session)
        return self.job

    async def report(self, stage: Stage, detail: str = "") -> None:
        if stage is Stage.STARTED and self.job is not None:
            self.machines.running[self.machine.ref] = self.job
            self.machines.watcher.step_begins(self.machine, self.job)
        elif stage is Stage.FINISHED:
            self.machines.running.pop(self.machine.ref, None)
        if not self.machines.strikes("callback_lost"):
            await super().report(stage, detail)

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        path, _, query = url.partition("?")
        query_map = dict([query.split("=")]) if query else {}
        body = msgspec.json.encode(options.get("json"))
        if path.startswith("github:"):
            await asyncio.sleep(0.05)
            parts = path.split("/")
            request: Any = Request(body, {}, {"session": parts[2]}, query_map)
            try:
                response = await self.handlers[parts[-1]](request)
            except Denied as denied:
                return denied.status, None
        else:
            timeout: aiohttp.ClientTimeout = options.get("timeout", POLL_TIMEOUT)
            parts = path.split("/")
            request = Request(body, options["headers"], {"runner_id": parts[-2]}, query_map)
            response = await self.machines.post(parts[-1], request, timeout.total or 40.0)
            if response is None:
                return 0, None
        answer = msgspec.json.decode(response.body) if response.status == 200 else None
        if response.status == 200 and parts[-1] == "jit":
            self.machines.watcher.handed(self.machine, answer["jit"])
        return response.status, answer
