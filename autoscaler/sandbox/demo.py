"""`autoscaler demo`: the unmodified daemon in a seeded world, over real sockets, with nothing else installed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from autoscaler.clock import Clock
from autoscaler.policy_file import load
from autoscaler.sandbox import summary
from autoscaler.sandbox.demo_world import FLEET, OWNERS, demo_runs, endless_runs, policy_text
from autoscaler.sandbox.outcome import fund_lines, measure
from autoscaler.sandbox.summary import Outcome
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from scheduling.lifecycle import RunnerState
from scheduling.model import DurationMs
from scheduling.world import World

LOOK_SECONDS = 0.25  # real
REST_MS: DurationMs = 90 * 60_000  # after the last job was queued everything must be over by then
REST_SECONDS = 30.0  # and this much real time more
DOUBLED_DELIVERIES = 0.05


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`speed` scales the daemon's clock and the world's, not sockets or the lease. `port` 0: a free one."""

    jobs: int = 200
    seed: int = 1
    speed: float = 60.0
    port: int = 0
    exit: bool = False
    json: bool = False


async def run_demo(options: DemoOptions) -> int:
    """Runs until all jobs are done and everything is at rest (`exit`), or until Ctrl-C. The exit code."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoscaler-demo-")))
        demo = Demo(options, directory)
        stack.push_async_callback(demo.close)
        await demo.start()
        stopped = _stop_signal(stack)
        talk(f"Dashboard  {demo.url}/")
        started_s = asyncio.get_running_loop().time()
        with _progress() as progress:
            await demo.until_done(stopped, progress)
        wall_ms = int((asyncio.get_running_loop().time() - started_s) * 1000)
        found = summary.document(demo.outcome(wall_ms))
        if options.json:
            print(json.dumps(found, indent=2))
        else:
            summary.show(summary.page(found, demo.funds(), await demo.why()))
        return 0 if summary.healthy(found) or (stopped.is_set() and not options.exit) else 1


class Demo:
    """The daemon, its surroundings, and the people who push."""

    def __init__(self, options: DemoOptions, directory: Path) -> None:
        self.options = options
        self.clock = Clock(options.speed)
        self.start_ms = self.clock.now_ms()
        self.surroundings = Surroundings(self.clock, directory, seed=options.seed, fleet=FLEET)
        self.surroundings.github.faults.webhooks.double = DOUBLED_DELIVERIES
        self.url = ""
        self._replica: Replica | None = None
        self._world: World | None = None
        self._people: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.surroundings.start(self._policy_text, OWNERS)
        env = self.surroundings.environment(self.options.port)
        self.url = f"http://{env['AUTOSCALER_LISTEN']}"
        loaded = load(self.surroundings.policy_path, self.start_ms)
        self._replica = Replica(from_env(env), loaded, self.clock)
        await self._replica.start()
        self.surroundings.announce_to(self.url)
        self._people = asyncio.create_task(self._push(), name="people")

    async def close(self) -> None:
        if self._people:
            self._people.cancel()
            await asyncio.gather(self._people, return_exceptions=True)
        if self._replica:
            await self._replica.stop()
        await self.surroundings.close()

    async def until_done(self, stopped: asyncio.Event, progress: Progress) -> None:
        """Returns when all is done and at rest (`exit`), when time is up, or when somebody stops it."""
        bar = progress.add_task("jobs", total=self.options.jobs if self.options.exit else None, now="")
        patience_s: float | None = None
        while not stopped.is_set():
            progress.update(bar, completed=self._done(), now=self._now())
            if self.options.exit and self._people and self._people.done():
                self._people.result()
                now_s = asyncio.get_running_loop().time()
                patience_s = patience_s or now_s + self.clock.real_seconds(REST_MS) + REST_SECONDS
                if self._at_rest() or now_s > patience_s:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), LOOK_SECONDS)

    @property
    def world(self) -> World:
        """The daemon's, as last seen: it has none while it does not lead."""
        seen = self._replica.daemon.world if self._replica else None
        self._world = seen or self._world or World(FLEET)
        return self._world

    def outcome(self, wall_ms: DurationMs) -> Outcome:
        return measure(
            self.surroundings,
            self.world,
            self.surroundings.policy,
            since_ms=self.start_ms,
            wall_ms=wall_ms,
        )

    def funds(self) -> list[summary.FundLine]:
        return fund_lines(self.world, self.surroundings.policy, self.clock.now_ms())

    def _policy_text(self, clouds_url: str) -> str:
        return policy_text(seed=self.options.seed, clouds_url=clouds_url, now_ms=self.start_ms)

    async def _push(self) -> None:
        """Queue the runs at their times; without `exit` for ever."""
        options = self.options
        while self.world.gates or set(self.world.offers) < set(self.surroundings.clouds):
            await self.clock.sleep(1000)  # the daemon still looks around: it knows no prices yet
        self.start_ms = self.clock.now_ms()
        for run in demo_runs(options.seed, options.jobs) if options.exit else endless_runs(options.seed):
            await self.clock.sleep(self.start_ms + run.after_ms - self.clock.now_ms())
            self.surroundings.github.add_run(
                run.repository, run.jobs, event=run.event, ref=run.ref, workflow=run.workflow
            )

    def _done(self) -> int:
        return sum(job.state == "completed" for job in self.surroundings.github.state.jobs.values())

    def _at_rest(self) -> bool:
        """No job open, no machine, no registration, every cost booked."""
        around = self.surroundings
        return not (
            around.left_behind()
            or around.github.registrations()
            or any(job.state != "completed" for job in around.github.state.jobs.values())
            or any(runner.state is not RunnerState.GONE for runner in self.world.runners.values())
        )

    def _now(self) -> str:
        jobs = Counter(job.state for job in self.surroundings.github.state.jobs.values())
        machines = len(self.surroundings.existing())
        past = summary.span((self.clock.now_ms() - self.start_ms) / 1000)
        return f"{jobs['in_progress']} running · {jobs['queued']} waiting · {machines} machines · {past} of CI"


def talk(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs  [dim]{task.fields[now]}"))
    return Progress(*columns, console=Console(stderr=True))


def _stop_signal(stack: AsyncExitStack) -> asyncio.Event:
    """Set by Ctrl-C or SIGTERM; a second one ends the process as usual."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
        stack.callback(loop.remove_signal_handler, number)
    return stopped
