"""`autoscaler demo`: the unmodified daemon in a seeded world, over real sockets, with nothing else installed."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from autoscaler.cli import terminal
from autoscaler.clock import Clock
from autoscaler.policy.file import load
from autoscaler.sandbox import summary
from autoscaler.sandbox.demo_world import FLEET, OWNERS, demo_runs, endless_runs, policy_text
from autoscaler.sandbox.github_records import Job
from autoscaler.sandbox.money import fund_lines
from autoscaler.sandbox.outcome import measure
from autoscaler.sandbox.summary import Outcome
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from autoscaler.store.embedded import EmbeddedError
from autoscaler.views import why_text
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
    logging.getLogger().setLevel(logging.ERROR)  # the faults of this world are part of the show, not news
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoscaler-demo-")))
        demo = Demo(options, directory)
        stack.push_async_callback(demo.close)
        try:
            await demo.start()
        except (OSError, EmbeddedError) as error:
            talk(f"autoscaler: the demo cannot start at {demo.url}: {error}")
            talk("If the port is taken, name another with --port, or none.")
            return 1
        stopped = _stop_signal(stack)
        talk(f"Dashboard  {demo.url}/")
        talk(f"Commands   AUTOSCALER_API_URL={demo.url} .venv/bin/autoscaler status")
        if not options.exit:
            talk("Jobs keep coming until Ctrl-C; --exit ends after --jobs of them.")
        with _progress() as progress:
            bar = progress.add_task("jobs", total=options.jobs if options.exit else None, now="")
            await demo.until_done(stopped, lambda done, now: progress.update(bar, completed=done, now=now))
        found = summary.document(demo.outcome())
        if options.json:
            print(json.dumps(found, indent=2))
        else:
            terminal.show([summary.page(found, demo.funds(), await demo.why(), interrupted=stopped.is_set())])
        return 0 if summary.healthy(found) or not options.exit else 1


class Demo:
    """The daemon, its surroundings, and the people who push."""

    def __init__(self, options: DemoOptions, directory: Path) -> None:
        self.options = options
        self.clock = Clock(options.speed)
        self.start_ms = self.clock.now_ms()
        self.surroundings = Surroundings(self.clock, directory, seed=options.seed, fleet=FLEET)
        self.surroundings.github.faults.webhooks.double = DOUBLED_DELIVERIES
        self.url = ""
        self._began_s = 0.0
        self._replica: Replica | None = None
        self._world: World | None = None
        self._people: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._began_s = asyncio.get_running_loop().time()
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

    async def until_done(self, stopped: asyncio.Event, report: Callable[[int, str], object] | None = None) -> None:
        """Returns when all is done and at rest (`exit`), when time is up, or when somebody stops it.

        `report(done, words)` is called a few times a second.
        """
        loop = asyncio.get_running_loop()
        patience_s: float | None = None
        while not stopped.is_set():
            if report:
                report(self._done(), self._now())
            if self._people and self._people.done():
                self._people.result()
                patience_s = patience_s or loop.time() + self.clock.real_seconds(REST_MS) + REST_SECONDS
                if self._at_rest() or loop.time() > patience_s:
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), LOOK_SECONDS)

    @property
    def world(self) -> World:
        """The daemon's, as last seen: it has none while it does not lead."""
        seen = self._replica.daemon.world if self._replica else None
        self._world = seen or self._world or World(FLEET)
        return self._world

    def outcome(self) -> Outcome:
        wall_ms = int((asyncio.get_running_loop().time() - self._began_s) * 1000)
        policy = self.surroundings.policy
        return measure(self.surroundings, self.world, policy, since_ms=self.start_ms, wall_ms=wall_ms)

    def funds(self) -> list[summary.FundLine]:
        return fund_lines(self.world, self.surroundings.policy, self.clock.now_ms())

    async def why(self) -> RenderableType:
        """What the daemon answers about one job: of those with the widest choice of payers, the longest wait."""
        runners = self.world.runners

        def tells(job: Job) -> tuple[int, DurationMs]:
            runner = runners.get(job.runner_name.removeprefix(f"{FLEET}-"))
            payers = {verdict.fund for verdict in runner.placement} if runner else set()
            return len(payers), job.started_ms - job.queued_ms

        started = [job for job in self.surroundings.github.jobs() if job.started_ms]
        if not started:
            return ""
        job = max(started, key=tells)
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.get(f"{self.url}/api/v1/jobs/{job.id}") as answer,
        ):
            screen = why_text.screen(await answer.json())
        return Group(Text(f"$ autoscaler why {job.id}", style="bold"), "", screen)

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
        past = terminal.span((self.clock.now_ms() - self.start_ms) / 1000)
        return f"{jobs['in_progress']} running · {jobs['queued']} waiting · {machines} machines · {past} simulated"


def talk(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("jobs  [dim]{task.fields[now]}"))
    return Progress(*columns, console=terminal.console(stderr=True))


def _stop_signal(stack: AsyncExitStack) -> asyncio.Event:
    """Set by Ctrl-C or SIGTERM; a second one ends the process as usual."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
        stack.callback(loop.remove_signal_handler, number)
    return stopped
