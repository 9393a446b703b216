"""One schedule: the outside world and its replicas, from the first job to rest."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscaler import daemon as daemon_module
from autoscaler.effects import Fleet
from autoscaler.http import runner_api as runner_api_module
from autoscaler.policy.file import PolicyError, load
from autoscaler.sandbox.github_runner import RunnerSide
from scheduling.policy import Policy
from tests.simulation import faults
from tests.simulation.checker import Checker
from tests.simulation.clock import SimClock
from tests.simulation.clouds import Account, Cloud
from tests.simulation.github import CANARY, GitHubClient, Truth
from tests.simulation.hooks import Hooks
from tests.simulation.looks import Violation
from tests.simulation.loop import WORLD, VirtualLoop
from tests.simulation.machines import Machines
from tests.simulation.redis_client import RedisWire
from tests.simulation.redis_server import Server
from tests.simulation.replica import Replica
from tests.simulation.request import Request
from tests.simulation.scenario import Submission, scenario
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire

FLEET = "sim"
BAD_POLICY = Path(__file__).with_name("bad_policy.yaml")
FAULTS_END_S = faults.LATEST_S + faults.LONGEST_S
LIVENESS_BOUND_S = 90 * 60.0
"""After the last fault: a cooldown (30 min), a wrong clock (10 min), sweeps, the longest life (20 min)."""
LOOK_S = 5.0
STEPS_MAX = 500_000
"""Twenty times the steps of a long schedule."""


@dataclass(slots=True)
class Outcome:
    """What a schedule came to. `violations` empty: every promise was kept."""

    seed: int
    steps: int = 0
    jobs: int = 0
    replicas: int = 0
    faults: int = 0  # that were drawn
    simulated_s: float = 0.0
    recovery_s: float = 0.0
    hits: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


class SimWorld:
    """All parts of one schedule, wired."""

    def __init__(self, seed: int, loop: VirtualLoop, kinds: tuple[str, ...] | None = None) -> None:
        self.seed, self.loop = seed, loop
        self.dice = random.Random(seed)
        self.scenario = scenario(self.dice)
        self.strikes = faults.draw(self.dice, faults.DRAWN if kinds is None else kinds)
        self.policy = self.scenario.policy
        self.clock = SimClock(loop)
        self.weather = Weather(random.Random(f"{seed}/weather"))
        self.wire = Wire(loop, random.Random(f"{seed}/wire"))
        self.wire.killed = self._killed
        self.fleet = Fleet(FLEET, f"{CANARY}-fleet-key-of-32-bytes-or-more".encode(), "http://autoscaler")
        self.webhook_secret = f"{CANARY}-webhook-secret".encode()
        self.server = Server(self.clock.now_ms, random.Random(f"{seed}/redis"))
        self.redis = RedisWire(self.wire, self.server, self.weather.strikes)
        self.truth = Truth(seed)
        self.side = RunnerSide(self.truth, self.clock)
        self.hooks = Hooks(self.wire, self.weather, self.webhook_secret, self._post_webhook)
        self.truth.on_job = self._on_job
        self.checker = Checker(self)
        self.machines = Machines(self.clock, self.side, self._post, self.checker, self.weather.strikes)
        self.clouds = {
            name: Cloud(name, self.clock, self.weather, self.machines.run) for name in self.policy.providers
        }
        self.replicas = [Replica(self, name) for name in ("a", "b", "c")[: self.dice.choice((2, 2, 2, 3))]]

    # ---- what replicas are built of -------------------------------------------------------------------------

    def github_client(self, clock: SimClock) -> GitHubClient:
        return GitHubClient(self.truth, self.clock, clock, self.wire, self.weather, self.hooks.redeliver)

    def account(self, name: str) -> Account:
        return Account(
            self.clouds[name],
            self.scenario.offers[name],
            FLEET,
            self.wire,
            self.weather,
            self.checker.creating,
            self.checker.terminated,
        )

    # ---- the wire -------------------------------------------------------------------------------------------

    async def _post(self, handler: str, request: Request, timeout_s: float) -> Any:
        await asyncio.sleep(0.005)
        return await self.dice.choice(self.replicas).serve(handler, request, timeout_s)

    async def _post_webhook(self, request: Request) -> int:
        response = await self._post("webhook", request, 10.0)
        return response.status if response is not None else 0

    def _on_job(self, action: str, job: Any) -> None:
        self.checker.job_event(action, job)
        self.hooks.on_job(action, job)

    # ---- replicas -------------------------------------------------------------------------------------------

    def _killed(self, when: str, effect: str) -> None:
        self.weather.hits[f"kill_{when}_{effect}"] += 1

    def died(self, replica: Replica) -> None:
        self.checker.replica_died(replica)
        self.loop.call_later(self.dice.uniform(0.5, 25.0), replica.start, context=WORLD)

    def broke(self, process: str, error: Exception) -> None:
        self.checker.fail("I12", f"replica {process} ended with {error!r}")

    def activate(self, policy: Policy) -> None:
        self.policy = policy
        for replica in self.replicas:
            replica.activate(policy)

    def read_bad_policy(self) -> bool:
        """SIGHUP on a file that is no policy: the old one stays."""
        try:
            self.activate(load(BAD_POLICY, self.clock.now_ms()).policy)
        except PolicyError:
            return True
        return False

    # ---- the schedule ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until rest; raises `Violation`."""
        for replica in self.replicas:
            self.loop.call_later(self.dice.uniform(0, 0.5), replica.start)
        for submission in self.scenario.submissions:
            self.loop.call_later(submission.at_s, self._submit, submission)
        for strike in self.strikes:
            self.loop.call_later(strike.at_s, faults.begin, self, strike)
        end_s = self._faults_end()
        while self.loop.now < end_s:
            await self._look()
        self._calm()
        while not self.checker.at_rest():
            if self.loop.now > end_s + LIVENESS_BOUND_S:
                self.checker.not_at_rest()
            await self._look()
        self.checker.finish()

    def _faults_end(self) -> float:
        ends = [strike.at_s + strike.lasts_s for strike in self.strikes]
        return max([*ends, self.scenario.submissions[-1].at_s + 210.0])

    def _calm(self) -> None:
        self.weather.clear()
        self.wire.kill_before.clear()
        self.wire.kill_after.clear()
        for replica in self.replicas:
            replica.process.fuse = 0
            replica.clock.skew_ms = 0

    async def _look(self) -> None:
        await asyncio.sleep(LOOK_S)
        self.truth.sweep(self.clock.now_ms())
        self.checker.look()
        if self.loop.steps > STEPS_MAX:
            self.checker.fail("I12", f"somebody asks without a pause: {self.loop.steps} steps")
        if self.checker.violations:
            raise Violation(self.checker.violations[0])

    def _submit(self, submission: Submission) -> None:
        run = self.truth.add_run(
            submission.repository, submission.jobs, now_ms=self.clock.now_ms(), fork=submission.fork
        )
        for job_id, cancel_s, rerun in zip(list(run.jobs), submission.cancels_s, submission.reruns, strict=True):
            if cancel_s is not None:
                self.loop.call_later(cancel_s, self._cancel, job_id)
            elif rerun:
                self.loop.call_later(200.0, self._rerun, job_id)

    def _cancel(self, job_id: int) -> None:
        self.truth.cancel(job_id, self.clock.now_ms())

    def _rerun(self, job_id: int) -> None:
        if self.truth.jobs[job_id].state == "completed":
            self.truth.rerun(job_id, self.clock.now_ms())


def simulate(seed: int, kinds: tuple[str, ...] | None = None, story: bool = False) -> Outcome:
    """Run one schedule to its end. `kinds`: only faults of these kinds; `story`: keep every log line."""
    daemon_module.IDLE_S = 8.0
    runner_api_module.LOOK_SECONDS = 2.0
    loop = VirtualLoop()
    outcome = Outcome(seed)
    world = SimWorld(seed, loop, kinds)
    try:
        loop.run_until_complete(_run(world, outcome, story))
    finally:
        for replica in world.replicas:
            replica.process.dead = True  # what its coroutines do as they are freed is nobody's any more
        logging.disable(logging.CRITICAL)
        loop.bury()
        logging.disable(logging.NOTSET)
    return outcome


async def _run(world: SimWorld, outcome: Outcome, story: bool) -> None:
    handler = world.checker.listen(story)
    try:
        await world.run()
    except Violation as violation:
        outcome.violations.append(str(violation))
    finally:
        logging.getLogger().removeHandler(handler)
        outcome.steps = world.loop.steps
        outcome.jobs, outcome.replicas = len(world.truth.jobs), len(world.replicas)
        outcome.faults = len(world.strikes)
        outcome.simulated_s = world.loop.now
        outcome.recovery_s = world.loop.now - world._faults_end()
        outcome.hits, outcome.rows = world.weather.hits, world.checker.rows
        outcome.violations += [v for v in world.checker.violations if v not in outcome.violations]
        outcome.story = world.checker.story
