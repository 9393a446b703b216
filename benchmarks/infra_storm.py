"""An hour in which 20 to 80% of all requests to clouds and to GitHub fail: nothing lost, nothing killed.

    python -m benchmarks.infra_storm [--share 20-80] [--seed 1] [--jobs-a-minute 10] [--json]

In virtual time, so the figures follow from the seed alone: 20 minutes of good weather, an hour of storm, then
until the queue is as before. The daemon is whole (`benchmarks.virtual`). Failures are of four kinds,
equally often: refused before the work, refused after it was done, the connection cut before or after it. The share
of failures changes every two minutes. What a runner itself asks of GitHub (its job) is left alone: it is GitHub's
own service.

Queue times are by the minute at which the job was queued. Normal: p99 of five minutes' jobs at most half a minute
above that of the good weather.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from autoscaler import daemon as daemon_module
from autoscaler.http import runner_api as runner_api_module
from autoscaler.sandbox.github_records import Job, JobRequest
from benchmarks.virtual import PRICES, BenchLoop, VirtualFleet
from benchmarks.weekday_github import GitHubWire
from providers.base import OutcomeUnknown, Transient
from scheduling.model import Hardware, UnixMs
from scheduling.policy import Access, Forks, Policy, ProviderPolicy, RunnerType
from tests.core.fleet import credit
from tests.simulation.clouds import Account
from tests.simulation.loop import VirtualLoop

MINUTE_MS = 60_000
GOOD_MIN, STORM_MIN, AFTER_MIN, CHANGE_MIN, BUCKET_MIN = 20, 60, 45, 2, 5
TOLERANCE_MS = 30_000
LOOK_S = 5.0
LONGEST_AFTER_S = 4 * 3600.0
LABELS = ("self-hosted", "linux")


class Storm:
    """Which share of requests fails now, and how each one does."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.share = 0.0
        self.asked = self.failed = 0

    def strikes(self) -> tuple[bool, bool]:
        """(before the work, after it); at most one of them."""
        self.asked += 1
        if self._dice.random() >= self.share:
            return False, False
        self.failed += 1
        before = self._dice.random() < 0.5
        return before, not before

    def cuts(self) -> bool:
        """Whether the connection is cut; else the request is refused."""
        return self._dice.random() < 0.5


class StormyGitHub(GitHubWire):
    """The way to GitHub; `storm` begins where nothing fails."""

    storm: Storm

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        before, after = self.storm.strikes()
        answer = None if before else await super().handle_async_request(request)
        if answer is not None and not after:
            return answer
        if self.storm.cuts():
            raise httpx.ReadError("the connection was cut", request=request)
        return httpx.Response(500 if before else 502, json={"message": "the storm"})


class StormyAccount(Account):
    """An account; for the daemon a request that was refused after the work and one that was cut are the same."""

    storm: Storm

    async def _ask(self, act: Callable[[], Any], effect: str = "", slow_s: float = 0.2) -> Any:
        before, after = self.storm.strikes()

        def served() -> Any:
            if before:
                raise Transient("500 Internal Error")
            done = act()
            if after:
                raise (OutcomeUnknown if effect == "create" else Transient)("the connection was cut")
            return done

        return await super()._ask(served, effect, slow_s)


def policy() -> Policy:
    everyone = Access(("octo/*",), Forks.ALLOW)
    return Policy(
        hash="storm",
        providers={name: ProviderPolicy(name, "sim") for name in PRICES},
        runner_types={"linux": RunnerType("linux", LABELS, Hardware(cpus=2), access=everyone)},
        funds={"grant": credit("grant", 1_000_000)},
    )


class InfraStorm(VirtualFleet):
    """Good weather, the storm, and after it. `shares`: least and greatest share of requests that fail."""

    def __init__(self, loop: VirtualLoop, seed: int, shares: tuple[float, float], jobs_a_minute: float) -> None:
        self.at_github, self.at_clouds = (Storm(random.Random(f"{seed}/{name}")) for name in ("github", "clouds"))
        super().__init__(loop, seed, policy(), "octo")
        self.dice = random.Random(seed)
        self.shares, self.jobs_a_minute = shares, jobs_a_minute
        self.start_ms: UnixMs = 0
        self.rested_s = 0.0

    def make_github_wire(self) -> GitHubWire:
        wire = StormyGitHub(self.github, random.Random(f"{self.seed}/wire to GitHub"))
        wire.storm = self.at_github
        return wire

    def account(self, name: str) -> StormyAccount:
        found = StormyAccount(*self.account_parts(name))
        found.storm = self.at_clouds
        return found

    # ---- the hours -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until every job has ended and nothing is left."""
        self.replica.start()
        await asyncio.sleep(60)
        self.start_ms = self.clock.now_ms()
        weather = asyncio.create_task(self._weather())
        people = asyncio.create_task(self._push())
        end_s = self.loop.now + (GOOD_MIN + STORM_MIN + AFTER_MIN) * 60 + LONGEST_AFTER_S
        while self.loop.now < end_s and not self.broken and not (people.done() and self._at_rest()):
            await asyncio.sleep(LOOK_S)
            self.github.state.sweep(self.clock.now_ms())
        await asyncio.gather(weather, people)
        self.rested_s = self.loop.now

    def _at_rest(self) -> bool:
        return not self.left_behind() and all(job.state == "completed" for job in self.github.state.jobs.values())

    async def _weather(self) -> None:
        await asyncio.sleep(GOOD_MIN * 60)
        for _ in range(STORM_MIN // CHANGE_MIN):
            self.at_github.share = self.at_clouds.share = self.dice.uniform(*self.shares)
            await asyncio.sleep(CHANGE_MIN * 60)
        self.at_github.share = self.at_clouds.share = 0.0

    async def _push(self) -> None:
        end_ms = self.start_ms + (GOOD_MIN + STORM_MIN + AFTER_MIN) * MINUTE_MS
        while self.clock.now_ms() < end_ms:
            count = self.dice.choice((1, 1, 2, 4, 8))
            jobs = [JobRequest(f"job {n}", LABELS, self.dice.randint(60_000, 300_000)) for n in range(count)]
            self.github.add_run("octo/app", jobs)
            await asyncio.sleep(count / self.jobs_a_minute * 60)

    # ---- what came of it -----------------------------------------------------------------------------------

    def report(self) -> dict[str, object]:
        jobs = list(self.github.state.jobs.values())
        p99 = self._p99_by_bucket(jobs)
        normal = (
            max((wait for minute, wait in p99.items() if minute < GOOD_MIN - BUCKET_MIN), default=0) + TOLERANCE_MS
        )
        over = GOOD_MIN + STORM_MIN
        late = [minute for minute, wait in p99.items() if minute >= over and wait > normal]
        return {
            "jobs": len(jobs),
            "succeeded": sum(job.conclusion == "success" for job in jobs),
            "lost_or_killed": sum(job.conclusion not in ("", "success") for job in jobs),
            "unfinished": sum(job.state != "completed" for job in jobs),
            "doubled": sum(job.starts > 1 for job in jobs),
            "left": self.left_behind(),
            "github_requests": f"{self.at_github.asked}, of which {self.at_github.failed} failed",
            "cloud_requests": f"{self.at_clouds.asked}, of which {self.at_clouds.failed} failed",
            "machines": sum(cloud.made for cloud in self.clouds.values()),
            "queue_p99_s_by_5_min": " ".join(f"{minute}:{wait / 1000:.0f}" for minute, wait in p99.items()),
            "normal_p99_s": normal / 1000,
            "minutes_until_normal": (late[-1] + BUCKET_MIN - over) if late else 0,
            "broken": "; ".join(self.broken),
        }

    def _p99_by_bucket(self, jobs: Sequence[Job]) -> dict[int, int]:
        """Minute -> p99 of the queue times of the jobs queued in the five minutes from then on."""
        buckets: dict[int, list[int]] = {}
        for job in jobs:
            minute = (job.queued_ms - self.start_ms) // MINUTE_MS // BUCKET_MIN * BUCKET_MIN
            if job.started_ms:
                buckets.setdefault(int(minute), []).append(job.started_ms - job.queued_ms)
        return {minute: sorted(waits)[int(0.99 * len(waits))] for minute, waits in sorted(buckets.items())}


def _shares(text: str) -> tuple[float, float]:
    least, _, most = text.partition("-")
    return int(least) / 100, int(most or least) / 100


def storm(seed: int, shares: tuple[float, float], jobs_a_minute: float = 10.0) -> dict[str, object]:
    """One storm; its figures."""
    loop = BenchLoop()
    fleet = contextvars.copy_context().run(lambda: InfraStorm(loop, seed, shares, jobs_a_minute))
    loop.run_until_complete(fleet.run())
    found = fleet.report()
    loop.bury()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--share", type=_shares, default=(0.2, 0.8), help="%% of requests that fail (default 20-80)"
    )
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--jobs-a-minute", type=float, default=10.0, help="simulated minutes (default 10)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)  # failures are what this is made of
    daemon_module.IDLE_S, runner_api_module.LOOK_SECONDS = 8.0, 1.0
    began = time.process_time()
    found = storm(args.seed, args.share, args.jobs_a_minute)
    found["processor_s"] = round(time.process_time() - began)
    lines = (f"{key:24} {value}" for key, value in found.items())
    print(json.dumps(found) if args.json else "\n".join(lines))
    bad = [found[key] for key in ("lost_or_killed", "unfinished", "doubled", "left", "broken")]
    return 1 if any(bad) or int(str(found["minutes_until_normal"])) > 30 else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "benchmarks.infra_storm", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
