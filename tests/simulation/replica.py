"""One replica: the real daemon, receiver and runner API in a simulated process that can be killed and stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Protocol

from autoscaler.daemon import Daemon
from autoscaler.effects import Fleet, Parts
from autoscaler.http import runner_api, webhook
from autoscaler.http.runner_api import RunnerApi
from autoscaler.http.webhook import Receiver
from autoscaler.metrics import Metrics
from autoscaler.store.store import Store
from providers.base import Provider
from scheduling.matching import matcher
from scheduling.policy import Policy
from tests.simulation.clock import SimClock
from tests.simulation.loop import WORLD, Process, VirtualLoop
from tests.simulation.redis_client import RedisWire
from tests.simulation.request import Request
from tests.simulation.wire import settle

LEASE_S = 12.0


class Around(Protocol):
    """What stands around replicas. `died` hears of every end of a life, `broke` of one that nobody wanted."""

    seed: int
    loop: VirtualLoop
    fleet: Fleet
    redis: RedisWire
    webhook_secret: bytes
    policy: Policy

    def github_client(self, clock: SimClock) -> Any: ...

    def account(self, name: str) -> Provider: ...

    def died(self, replica: Replica) -> None: ...

    def broke(self, process: str, error: Exception) -> None: ...


class Secrets:
    def __init__(self, *secrets: bytes) -> None:
        self._secrets = secrets

    def active(self) -> tuple[bytes, ...]:
        return self._secrets


class Replica:
    """`start` begins a life; each life is a process of its own."""

    def __init__(self, world: Around, name: str) -> None:
        self.world, self.name = world, name
        self.clock = SimClock(world.loop)
        self.process = Process(name)
        self.process.kill()
        self.lives = 0
        self.daemon: Daemon | None = None
        self._open: dict[asyncio.Future[Any], None] = {}

    @property
    def dead(self) -> bool:
        return self.process.dead

    @property
    def leads(self) -> bool:
        return not self.dead and self.daemon is not None and self.daemon.leader is not None

    def start(self) -> None:
        if not self.dead:
            return
        self.lives += 1
        self.process = Process(f"{self.name}/{self.lives}")
        self.process.on_death.append(self._died)
        self.process.context.run(self._build)

    def _build(self) -> None:
        world = self.world
        store = Store("redis://twin", world.fleet.name, world.fleet.key)
        store._url = world.redis  # type: ignore[assignment]
        github = world.github_client(self.clock)
        parts = self.parts(world.policy)
        seed = random.Random(f"{world.seed}/{self.process.name}")
        self.metrics = Metrics()
        self.daemon = Daemon(
            store, self.clock, github, parts, world.fleet, self.metrics, lease_s=LEASE_S, dice=seed
        )
        daemon = self.daemon
        secrets: Any = Secrets(world.webhook_secret)
        receiver = Receiver(
            store.append, secrets, lambda labels, repository: matcher(daemon.policy).is_ours(labels), self.clock
        )
        self.api = RunnerApi(store, world.fleet.key, self.clock)
        machines_call = {route.path.rpartition("/")[2]: route.handler for route in runner_api.routes(self.api)}
        self._handlers: Mapping[str, Any] = {
            **machines_call,
            "webhook": webhook.routes(receiver)[0].handler,
        }
        world.loop.create_task(self._run(self.process, store, daemon), context=self.process.context)

    async def _run(self, process: Process, store: Store, daemon: Daemon) -> None:
        try:
            await store.open()
            await daemon.run()
            await store.close()
        except Exception as error:
            if not process.dead:  # a killed one says this only because Python frees its coroutines
                self.world.broke(process.name, error)
        process.kill()

    def parts(self, policy: Policy) -> Parts:
        accounts: dict[str, Provider] = {name: self.world.account(name) for name in policy.providers}
        return Parts(policy, accounts)

    def activate(self, policy: Policy) -> None:
        """SIGHUP."""
        if not self.dead and self.daemon is not None:
            daemon = self.daemon
            self.process.context.copy().run(daemon.activate, self.parts(policy))

    def drain(self) -> None:
        """SIGTERM."""
        if not self.dead and self.daemon is not None:
            self.process.context.copy().run(self.api.close)
            self.world.loop.create_task(self.daemon.stop(), context=self.process.context)

    async def serve(self, handler: str, request: Request, timeout_s: float) -> Any:
        """The response; None when nobody answers in time or the connection breaks."""
        if self.dead:
            return None
        loop = self.world.loop
        answer: asyncio.Future[Any] = loop.create_future()
        self._open[answer] = None
        loop.create_task(self._answer(handler, request, answer), context=self.process.context)
        timer = loop.call_later(timeout_s, settle, answer, None, None, context=WORLD)
        try:
            return await answer
        finally:
            timer.cancel()
            self._open.pop(answer, None)

    async def _answer(self, handler: str, request: Request, answer: asyncio.Future[Any]) -> None:
        settle(answer, await self._handlers[handler](request), None)

    def _died(self) -> None:
        for answer in list(self._open):
            settle(answer, None, None)
        self.world.died(self)
