"""One replica and all that surrounds it in virtual time, for benchmarks of a day or an hour.

The daemon, its effects, GitHub client, webhook receiver, runner API and store are the product's own; Redis is the
simulation's twin, GitHub the sandbox's handlers, called in process; machines boot in 3 to 40 simulated seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.effects import Fleet
from autoscaler.github.client import AppCredentials, GitHub
from autoscaler.sandbox.github import GitHubStandIn
from autoscaler.sandbox.github_access import Limits
from benchmarks import weekday_github
from benchmarks.weekday_github import GitHubWire
from scheduling.model import Hardware, Offer, Purchase
from scheduling.policy import Policy
from tests.core.fleet import USD
from tests.simulation.clock import SimClock
from tests.simulation.clouds import Account, Cloud
from tests.simulation.hooks import Hooks
from tests.simulation.loop import VirtualLoop
from tests.simulation.machines import Machines, Watcher
from tests.simulation.redis_client import RedisWire
from tests.simulation.redis_server import Server
from tests.simulation.replica import Replica
from tests.simulation.request import Request
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire

PRICES = {"east": USD // 5, "west": USD // 4}
REDIS_S = 0.1
"""Each way to Redis, at most: ticks take no simulated time, so this is what lets events come in batches."""


class BenchLoop(VirtualLoop):
    """Work for threads (signing a JWT) is done at once."""

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        done = self.create_future()
        done.set_result(work(*args))
        return done


class VirtualFleet:
    """The world around one replica, as `tests.simulation.replica` wants it: two accounts, `apps` GitHub Apps."""

    def __init__(
        self, loop: VirtualLoop, seed: int, policy: Policy, owner: str, apps: int = 1, limits: Limits | None = None
    ) -> None:
        self.loop, self.seed, self.policy = loop, seed, policy
        self.clock = SimClock(loop)
        self.weather = Weather(random.Random(seed))  # nothing strikes
        self.wire = Wire(loop, random.Random(f"{seed}/wire"))
        self.server = Server(self.clock.now_ms, random.Random(f"{seed}/redis"))
        self.redis = RedisWire(self.wire, self.server, self.weather.strikes)
        self.redis.slow_s = REDIS_S
        self.fleet = Fleet("bench", b"fleet-key-of-thirty-two-bytes-or-more", "http://autoscaler")
        self.webhook_secret = b"webhook-secret"
        self.github = GitHubStandIn(self.clock, seed=seed, limits=limits)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.apps = [AppCredentials(str(n), self.github.new_app(str(n), [owner], key)) for n in range(1, apps + 1)]
        self.github_wire = self.make_github_wire()
        self.hooks = Hooks(self.wire, self.weather, self.webhook_secret, self._webhook)
        self.github.state.on_job = self.hooks.on_job
        self.machines = Machines(self.clock, self.github.runners, self._post, Watcher(), self.weather.strikes)
        self.clouds = {name: Cloud(name, self.clock, self.weather, self.machines.run) for name in PRICES}
        self.replica = Replica(self, "only")
        self.broken: list[str] = []

    # ---- what a benchmark may make otherwise ---------------------------------------------------------------

    def make_github_wire(self) -> GitHubWire:
        return GitHubWire(self.github, random.Random(f"{self.seed}/github"))

    def account(self, name: str) -> Account:
        return Account(*self.account_parts(name))

    def account_parts(self, name: str) -> tuple[Any, ...]:
        """What an `Account` is made of."""
        hardware = Hardware(cpus=8, memory_mib=32_768)
        offer = Offer(name, "r1", "r1-a", "m", Purchase.ON_DEMAND, PRICES[name], hardware)
        told = (lambda spec: None, lambda cloud, ref: None)
        return (self.clouds[name], (offer,), self.fleet.name, self.wire, self.weather, *told)

    # ---- what the replica is built of ----------------------------------------------------------------------

    def github_client(self, clock: SimClock) -> GitHub:
        return weekday_github.client(self.github, self.github_wire, self.apps, clock)

    def died(self, replica: Replica) -> None:
        self.broken.append(f"replica {replica.name} ended")

    def broke(self, process: str, error: Exception) -> None:
        self.broken.append(f"replica {process} ended with {error!r}")

    async def _post(self, handler: str, request: Request, timeout_s: float) -> Any:
        await asyncio.sleep(0.005)
        return await self.replica.serve(handler, request, timeout_s)

    async def _webhook(self, request: Request) -> int:
        response = await self._post("webhook", request, 10.0)
        return response.status if response is not None else 0

    # ---- looking -------------------------------------------------------------------------------------------

    def left_behind(self) -> int:
        """Machines and disks that exist, and registrations."""
        held = sum(len(cloud.machines()) + len(cloud.disks()) for cloud in self.clouds.values())
        return held + len(self.github.state.registrations)
