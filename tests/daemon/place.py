"""One place to run replicas in: GitHub's stand-in, simulated accounts, real Valkey, real sockets, fast clocks."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.policy.file import load
from autoscaler.sandbox.github_records import JobRequest
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from scheduling.lifecycle import JobState, RunnerState
from scheduling.model import Runner
from scheduling.world import World

POLICY = """\
version: 1
ignore_labels: ["ubuntu-*"]
funds:
  grant: {{credit: 1000 USD, until: 2030-01-01, spent: {{amount: 0 USD, as_of: {today}}}}}
providers:
  east: {{kind: sim, endpoint: "{clouds}/east", settings: {{boot_seconds: {boot}, instance_types: {types}}}}}
  west: {{kind: sim, endpoint: "{clouds}/west", settings: {{boot_seconds: {boot}, instance_types: {dear}}}}}
defaults: {{boot_timeout: 4m, idle_timeout: 2m, access: {{repositories: ["octo/*"], forks: allow}}}}
runner_types:
  linux: {{labels: [self-hosted, linux], hardware: {{os: linux, arch: x64, cpus: 2}}}}
"""
TYPES = "{t: {cpus: 2, memory_gib: 4, on_demand: 0.1 USD/h}}"
DEAR = "{t: {cpus: 2, memory_gib: 4, on_demand: 0.2 USD/h}}"
LABELS = ("self-hosted", "linux")
DEADLINE_S = 60.0


@dataclass
class Place:
    """Everything around the replicas of one fleet. Times are the clock's, `speed` times faster than ours."""

    directory: Path
    speed: float = 60.0
    boot_seconds: float = 20.0
    policy: str = POLICY
    clock: Clock = field(init=False)
    around: Surroundings = field(init=False)
    env: dict[str, str] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def open(self) -> None:
        self.clock = Clock(self.speed)
        self.around = Surroundings(self.clock, self.directory, seed=1, fleet="test")
        await self.around.start(self._policy, ["octo"])
        self.env = self.around.environment()
        self.around.announce_to(self.url)

    def _policy(self, clouds: str) -> str:
        today = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d")
        return self.policy.format(clouds=clouds, today=today, boot=self.boot_seconds, types=TYPES, dear=DEAR)

    @property
    def url(self) -> str:
        return f"http://{self.env['AUTOSCALER_LISTEN']}"

    async def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        for replica in self.replicas:
            await replica.stop()
        await self.around.close()

    # ---- replicas ------------------------------------------------------------------------------------------

    async def replica(
        self,
        observe: bool = False,
        poll: tuple[str, ...] = (),
        record: Path | None = None,
        clock: Clock | None = None,
        **env: str,
    ) -> Replica:
        """A replica in this process; its first one listens where GitHub announces jobs."""
        clock = clock or self.clock
        loaded = load(self.around.policy_path, clock.now_ms())
        replica = Replica(from_env({**self.env, **env}), loaded, clock, "all", observe, poll, record)
        self.replicas.append(replica)
        await replica.start()
        return replica

    async def leading(self, record: Path | None = None, clock: Clock | None = None, **env: str) -> Replica:
        """One that leads and has seen all its providers."""
        replica = await self.replica(record=record, clock=clock, **env)
        await until(lambda: ready(replica))
        return replica

    async def process(self) -> asyncio.subprocess.Process:
        """`autoscaler serve` as a process of its own."""
        log = (self.directory / f"serve-{len(self.processes)}.log").open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "autoscaler", "serve", env={**os.environ, **self.env}, stdout=log, stderr=log
        )
        log.close()
        self.processes.append(process)
        return process

    # ---- what happens --------------------------------------------------------------------------------------

    def push(self, count: int = 1, seconds: float = 60.0, labels: tuple[str, ...] = LABELS) -> list[int]:
        """A workflow run with that many jobs of that length. Their job ids."""
        jobs = [JobRequest(f"job {n}", labels, duration_ms=int(seconds * 1000)) for n in range(count)]
        run = self.around.github.add_run("octo/app", jobs)
        return [job.id for job in self.around.github.jobs() if job.run_id == run.id]

    def done(self) -> bool:
        return all(job.state == "completed" for job in self.around.github.jobs())

    def at_rest(self) -> bool:
        """Every job ended; no machine, disk or registration is left."""
        return self.done() and not self.around.left_behind() and not self.around.github.registrations()


@asynccontextmanager
async def in_real_time() -> AsyncIterator[Place]:
    """For a daemon that is a process of its own."""
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        found = Place(Path(name), speed=1.0, boot_seconds=0.5)
        await found.open()
        yield found
        await found.close()


def ready(replica: Replica) -> bool:
    world = replica.daemon.world
    return world is not None and not world.gates and set(world.offers) == set(replica.daemon.policy.providers)


def live(world: World | None) -> list[Runner]:
    return [] if world is None else [r for r in world.runners.values() if r.state is not RunnerState.GONE]


def queued(world: World | None) -> int:
    return 0 if world is None else sum(job.state is JobState.QUEUED for job in world.jobs.values())


async def until(true: Callable[[], object], seconds: float = DEADLINE_S) -> None:
    """Wait for a condition; a test that waits in vain fails here, by name."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110  - what is waited for is outside of our own code
                await asyncio.sleep(0.02)
            return
    raise AssertionError(f"did not happen within {seconds:g} s")
