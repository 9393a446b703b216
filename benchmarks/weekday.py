"""A weekday of PyTorch's CI against GitHub's limits: 80 creations a minute and 12,500 requests an hour an App.

    python -m benchmarks.weekday [--apps 1] [--part 20] [--speed 90] [--hours 24] [--from-hour 0]

The daemon, its GitHub client, Valkey and all sockets are real; the clock runs `--speed` times faster. Real sockets
do not carry 72,000 jobs at that speed, so the day is scaled: jobs, GitHub's two limits, the pace with which our
client begins and grows, and the periodic looks that cost the same at any size are divided by `--part` (jobs keep
their arrival, sizes of runs and durations). What takes real time (HTTP, Redis) counts `speed` times in the queue
times: 100 ms are 9 s at 90. `--part 1 --speed 4 --from-hour 15 --hours 8` is the peak unscaled, in two hours.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import uvloop

from autoscaler import reconcile, sweep
from autoscaler.github.budget import JitPace
from autoscaler.http import runner_api
from autoscaler.sandbox.github_access import Limits
from autoscaler.sandbox.github_records import Job, JobRequest
from benchmarks import trace
from tests.daemon.place import LABELS, Place

CREATIONS, REQUESTS = 80, 12_500
HOUR_MS = 3_600_000


def scale(part: int) -> Limits:
    """Divide GitHub's limits and our client's own pace alike."""
    for name in ("START", "GROWTH", "FLOOR", "CEILING"):
        setattr(JitPace, name, max(1.0 if name == "FLOOR" else 0.1, getattr(JitPace, name) / part))
    sweep.CHECKS_A_ROUND = max(1, sweep.CHECKS_A_ROUND // part)  # looks that cost the same at any size
    reconcile.REGISTRATIONS_MS *= part
    runner_api.LOOK_SECONDS = 0.02  # real time, which would count many times over
    return Limits(per_hour=REQUESTS // part, creations=max(1, CREATIONS // part))


class Weekday:
    def __init__(self, directory: Path, apps: int, part: int, speed: float, hours: tuple[int, int]) -> None:
        self.place = Place(directory, speed=speed)
        self.apps, self.part, self.hours = apps, part, hours
        self.limits = scale(part)
        self.start_ms = 0

    async def run(self, limit_s: float) -> dict[str, object]:
        began = time.monotonic()
        await self.place.open()
        github = self.place.around.github
        github.access.limits = self.limits
        self._add_apps()
        try:
            await self.place.leading()
            self.start_ms = self.place.clock.now_ms()
            async with asyncio.timeout(limit_s):
                await self._push()
                while not self.place.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
        except TimeoutError:
            print(f"given up after {limit_s:g} s", file=sys.stderr)
        finally:
            found = self._count(github.jobs())
            found["wall_s"] = round(time.monotonic() - began, 1)
            await self.place.close()
        return found

    def _add_apps(self) -> None:
        """The surroundings have one App; each further one has limits of its own."""
        lines = [f"- {{app_id: 1, private_key_file: {self.place.directory / 'app.pem'}}}\n"]
        for number in range(2, self.apps + 1):
            path = self.place.directory / f"app{number}.pem"
            path.write_text(self.place.around.github.new_app(str(number), ["octo"]))
            lines.append(f"- {{app_id: {number}, private_key_file: {path}}}\n")
        (self.place.directory / "apps.yaml").write_text("".join(lines))

    async def _push(self) -> None:
        """Workflow runs at their times, all for one runner type: GitHub's limits are what is measured."""
        first, last = self.hours
        from_ms = int(trace.START.timestamp() * 1000) + first * HOUR_MS
        day = trace.jobs(1, 1, 1 / self.part)
        for _, group in groupby(day, key=lambda job: job.run_id):
            jobs = list(group)
            at_ms = jobs[0].queued_ms - from_ms
            if not 0 <= at_ms < (last - first) * HOUR_MS:
                continue
            await self.place.clock.sleep(self.start_ms + at_ms - self.place.clock.now_ms())
            requests = [JobRequest("job", LABELS, _lasts_ms(job)) for job in jobs]
            self.place.around.github.add_run("octo/app", requests)

    def _count(self, jobs: Sequence[Job]) -> dict[str, object]:
        github = self.place.around.github
        waits = sorted(job.started_ms - job.queued_ms for job in jobs if job.started_ms)
        answers = [window.used for window in github.access._windows.values()]
        found: dict[str, object] = {
            "apps": self.apps,
            "limits_an_app": f"{self.limits.creations} creations/min, {self.limits.per_hour} requests/h",
            "jobs": len(jobs),
            "succeeded": sum(job.conclusion == "success" for job in jobs),
            "never_ran": len(github.never_ran()),
            "doubled": len(github.doubled()),
            "requests_in_last_hour": sum(answers),
        }
        for share in (0.5, 0.9, 0.99):
            wait_s = waits[min(len(waits) - 1, int(share * len(waits)))] / 1000 if waits else 0.0
            found[f"queue_p{share * 100:.0f}_s"] = round(wait_s, 1)
        return found


def _lasts_ms(job: trace.TraceJob) -> int:
    return min(max(20_000, job.completed_ms - job.started_ms), 2 * HOUR_MS) if job.started_ms else 60_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", type=int, default=1, help="GitHub Apps (default 1)")
    parser.add_argument("--part", type=int, default=20, help="divides jobs and limits (default 20)")
    parser.add_argument("--speed", type=float, default=90.0, help="of the clock (default 90)")
    parser.add_argument("--from-hour", type=int, default=0, help="of the day, UTC (default 0)")
    parser.add_argument("--hours", type=int, default=24, help="of the day (default 24)")
    parser.add_argument("--minutes", type=float, default=40.0, help="longest real time (default 40)")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    hours = (args.from_hour, args.from_hour + args.hours)
    with tempfile.TemporaryDirectory(prefix="weekday-") as name:
        day = Weekday(Path(name), args.apps, args.part, args.speed, hours)
        found = uvloop.run(day.run(args.minutes * 60))
    for key, value in found.items():
        print(f"{key:24} {value}")
    return 1 if found["never_ran"] or found["doubled"] else 0


if __name__ == "__main__":
    sys.exit(main())
