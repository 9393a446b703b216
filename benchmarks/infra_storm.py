"""An hour in which 20 to 80% of all requests to clouds and to GitHub fail: nothing lost, nothing killed.

    python -m benchmarks.infra_storm [--speed 30] [--seed 1] [--jobs-a-minute 10]

One replica on real sockets and real Valkey, on a fast clock: 20 minutes of good weather, an hour of storm, then
until the queue is as before. Failures are of all kinds: refused before the work, refused after it was done, the
connection cut before or after it. The share of failures changes every two minutes. What a runner itself asks of
GitHub (its job) is left alone: that is GitHub's own service.

Queue times are simulated time, by the minute at which the job was queued. Normal: p99 of five minutes' jobs at
most half a minute above that of the good weather.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from autoscaler.sandbox.github_faults import Fault
from autoscaler.sandbox.github_records import Job, JobRequest
from providers.base import Instance, LaunchSpec, OutcomeUnknown, Transient
from providers.sim import SimCloud
from tests.daemon.place import LABELS, Place

MINUTE_MS = 60_000
GOOD_MIN, STORM_MIN, AFTER_MIN, CHANGE_MIN, BUCKET_MIN = 20, 60, 45, 2, 5
TOLERANCE_MS = 30_000
API = ("/repos/*", "/orgs/*", "/users/*", "/app*", "/installation/*")
KINDS: tuple[dict[str, Any], ...] = (
    {"status": 500},
    {"status": 502, "applied": True},
    {"drop": True},
    {"drop": True, "applied": True},
)


class StormyCloud:
    """An account of which a share of the requests fails, half of them after the work was done."""

    def __init__(self, cloud: SimCloud, dice: random.Random) -> None:
        self._cloud, self._dice = cloud, dice
        self.share = 0.0
        self.failed = self.asked = 0

    async def create(self, spec: LaunchSpec) -> Instance:
        before = self._fails()
        if before:
            raise Transient("500 Internal Error")
        made = await self._cloud.create(spec)
        if before is None:
            raise OutcomeUnknown("the connection was cut")
        return made

    async def terminate(self, ref: str) -> None:
        before = self._fails()
        if before:
            raise Transient("500 Internal Error")
        await self._cloud.terminate(ref)
        if before is None:
            raise Transient("the connection was cut")

    async def instances(self, fleet: str) -> Sequence[Instance]:
        if self._fails() is not False:
            raise Transient("500 Internal Error")
        return await self._cloud.instances(fleet)

    def _fails(self) -> bool | None:
        """True: before the work; None: after it; False: not at all."""
        self.asked += 1
        if self._dice.random() >= self.share:
            return False
        self.failed += 1
        return True if self._dice.random() < 0.5 else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)


class InfraStorm:
    """Good weather, the storm, and after it."""

    def __init__(self, directory: Path, speed: float, seed: int, jobs_a_minute: float) -> None:
        self.place = Place(directory, speed=speed)
        self.dice = random.Random(seed)
        self.jobs_a_minute = jobs_a_minute
        self.clouds: list[StormyCloud] = []
        self.start_ms = 0
        self.calls = 0

    async def run(self, limit_s: float) -> dict[str, object]:
        began = time.monotonic()
        await self.place.open()
        around = self.place.around
        for name, cloud in list(around.clouds.items()):
            self.clouds.append(StormyCloud(cloud, self.dice))
            around.clouds[name] = self.clouds[-1]  # type: ignore[assignment]
        people: asyncio.Task[None] | None = None
        try:
            await self.place.leading()
            self.start_ms = self.place.clock.now_ms()
            people = asyncio.create_task(self._push())
            async with asyncio.timeout(limit_s):
                await self._until(GOOD_MIN)
                for minute in range(GOOD_MIN, GOOD_MIN + STORM_MIN, CHANGE_MIN):
                    self._blow(self.dice.uniform(0.2, 0.8))
                    await self._until(minute + CHANGE_MIN)
                self._calm()
                await people
                while not self.place.at_rest():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            print(f"given up after {limit_s:g} s", file=sys.stderr)
        finally:
            if people:
                people.cancel()
            found = self._count()
            found["wall_s"] = round(time.monotonic() - began, 1)
            await self.place.close()
        return found

    async def _until(self, minute: float) -> None:
        await self.place.clock.sleep(self.start_ms + int(minute * MINUTE_MS) - self.place.clock.now_ms())

    async def _push(self) -> None:
        end_ms = self.start_ms + (GOOD_MIN + STORM_MIN + AFTER_MIN) * MINUTE_MS
        while self.place.clock.now_ms() < end_ms:
            count = self.dice.choice((1, 1, 2, 4, 8))
            jobs = [JobRequest(f"job {n}", LABELS, self.dice.randint(60_000, 300_000)) for n in range(count)]
            self.place.around.github.add_run("octo/app", jobs)
            await self.place.clock.sleep(int(count / self.jobs_a_minute * MINUTE_MS))

    def _blow(self, share: float) -> None:
        """Each of the four kinds may strike a request; together they strike that share."""
        faults = self.place.around.github.faults
        self.calls += sum(rule.hits for rule in faults.rules)
        faults.clear()
        each = 1 - (1 - share) ** (1 / len(KINDS))
        for kind in KINDS:
            faults.rules += [Fault(path=path, probability=each, **kind) for path in API]
        for cloud in self.clouds:
            cloud.share = share

    def _calm(self) -> None:
        self._blow(0.0)
        self.place.around.github.faults.clear()

    # ---- what came of it -----------------------------------------------------------------------------------

    def _count(self) -> dict[str, object]:
        github, around = self.place.around.github, self.place.around
        jobs = github.jobs()
        p99 = self._p99_by_bucket(jobs)
        normal = max((wait for minute, wait in p99.items() if minute < GOOD_MIN), default=0) + TOLERANCE_MS
        over = GOOD_MIN + STORM_MIN
        late = [minute for minute, wait in p99.items() if minute >= over and wait > normal]
        return {
            "jobs": len(jobs),
            "succeeded": sum(job.conclusion == "success" for job in jobs),
            "lost_or_killed": sum(job.conclusion not in ("", "success") for job in jobs),
            "unfinished": sum(job.state != "completed" for job in jobs),
            "doubled": len(github.doubled()),
            "left": around.left_behind() + len(github.registrations()),
            "github_requests_failed": self.calls,
            "cloud_requests_failed": sum(cloud.failed for cloud in self.clouds),
            "cloud_requests": sum(cloud.asked for cloud in self.clouds),
            "machines": sum(cloud.made for cloud in around.clouds.values()),
            "queue_p99_s_by_5_min": " ".join(f"{minute}:{wait / 1000:.0f}" for minute, wait in p99.items()),
            "normal_p99_s": normal / 1000,
            "minutes_until_normal": (late[-1] + BUCKET_MIN - over) if late else 0,
        }

    def _p99_by_bucket(self, jobs: Sequence[Job]) -> dict[int, int]:
        """Minute -> p99 of the queue times of the jobs queued in the five minutes from then on."""
        buckets: dict[int, list[int]] = {}
        for job in jobs:
            minute = (job.queued_ms - self.start_ms) // MINUTE_MS // BUCKET_MIN * BUCKET_MIN
            if job.started_ms:
                buckets.setdefault(int(minute), []).append(job.started_ms - job.queued_ms)
        return {minute: sorted(waits)[int(0.99 * len(waits))] for minute, waits in sorted(buckets.items())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", type=float, default=30.0, help="of the clock (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--jobs-a-minute", type=float, default=10.0, help="simulated minutes (default 10)")
    parser.add_argument("--minutes", type=float, default=20.0, help="longest real time (default 20)")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)  # failures are what this is made of
    with tempfile.TemporaryDirectory(prefix="infra-") as name:
        found = uvloop.run(
            InfraStorm(Path(name), args.speed, args.seed, args.jobs_a_minute).run(args.minutes * 60)
        )
    for key, value in found.items():
        print(f"{key:24} {value}")
    bad = [found[key] for key in ("lost_or_killed", "unfinished", "doubled", "left")]
    return 1 if any(bad) or int(str(found["minutes_until_normal"])) > 30 else 0


if __name__ == "__main__":
    sys.exit(main())
