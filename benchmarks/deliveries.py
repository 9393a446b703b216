"""Webhooks that come three times, shuffled, or not at all: every job runs once all the same.

    python -m benchmarks.deliveries [--jobs 2000] [--lost 0.3] [--copies 3] [--speed 30] [--seed 1] [--json]

One replica on real sockets and real Valkey, on a fast clock. Of all webhooks `--lost` never arrive: half of these
show as failed at GitHub, so that the failed-delivery scan finds them, the other half are as if never sent, so that
only the sweep does. The rest arrive `--copies` times, each at a random time within a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from autoscaler.sandbox.github_hooks import Delivery, HookSender
from autoscaler.sandbox.github_records import JobRequest
from tests.daemon.place import LABELS, Place

SPREAD_MS = 60_000
WAITING_MAX = 200


@dataclass(slots=True)
class Mail:
    """The post between GitHub and us. `send` replaces the stand-in's own."""

    hooks: HookSender
    dice: random.Random
    lost: float
    copies: int
    vanished: int = 0
    failed: int = 0
    delivered: int = 0

    def put(self, delivery: Delivery) -> None:
        chance = self.dice.random()
        if chance < self.lost / 2:
            self.vanished += 1
        elif chance < self.lost:
            self.failed += 1
            self.hooks._record(delivery, 0)
        else:
            self.delivered += 1
            for _ in range(self.copies):
                again = replace(delivery, id=next(self.hooks._ids))
                self.hooks._held += 1
                self.hooks._spawn(self.hooks._later(again, self.dice.randrange(SPREAD_MS)))


async def replay(
    jobs: int, lost: float, copies: int, speed: float, seed: int, limit_s: float, directory: Path
) -> dict[str, object]:
    """Real seconds. What came of it; `never_ran`, `doubled` and `left` must be 0."""
    place = Place(directory, speed=speed)
    await place.open()
    dice = random.Random(seed)
    github = place.around.github
    mail = Mail(github.hooks, dice, lost, copies)
    github.hooks._put = mail.put  # type: ignore[method-assign]
    began = time.monotonic()
    try:
        await place.leading()
        async with asyncio.timeout(limit_s):
            await _push(place, jobs, dice)
            while not place.at_rest():  # noqa: ASYNC110
                await asyncio.sleep(0.2)
    except TimeoutError:
        print(f"given up after {limit_s:g} s", file=sys.stderr)
    finally:
        truth = github.jobs()
        waits = sorted(job.started_ms - job.queued_ms for job in truth if job.started_ms)
        found: dict[str, object] = {
            "jobs": len(truth),
            "succeeded": sum(job.conclusion == "success" for job in truth),
            "never_ran": len(github.never_ran()),
            "doubled": len(github.doubled()),
            "left": place.around.left_behind() + len(github.registrations()),
            "webhooks_delivered": f"{mail.delivered} x {copies}",
            "webhooks_failed": mail.failed,
            "webhooks_vanished": mail.vanished,
            "machines": sum(cloud.made for cloud in place.around.clouds.values()),
            "queue_p50_s": waits[len(waits) // 2] / 1000 if waits else 0,
            "queue_p99_s": waits[int(len(waits) * 0.99)] / 1000 if waits else 0,
            "simulated_minutes": round((time.monotonic() - began) * speed / 60, 1),
            "wall_s": round(time.monotonic() - began, 1),
        }
        await place.close()
    return found


async def _push(place: Place, jobs: int, dice: random.Random) -> None:
    left = jobs
    while left:
        count = min(left, dice.randint(1, 12))
        requests = [JobRequest(f"job {n}", LABELS, duration_ms=dice.randint(20_000, 90_000)) for n in range(count)]
        place.around.github.add_run(dice.choice(("octo/app", "octo/lib")), requests)
        left -= count
        await place.clock.sleep(count * 1500)
        while _waiting(place) > WAITING_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _waiting(place: Place) -> int:
    return sum(job.state == "queued" for job in place.around.github.state.jobs.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000, help="default 2000")
    parser.add_argument("--lost", type=float, default=0.3, help="share of webhooks (default 0.3)")
    parser.add_argument("--copies", type=int, default=3, help="of each other webhook (default 3)")
    parser.add_argument("--speed", type=float, default=30.0, help="of the clock (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="default 1")
    parser.add_argument("--minutes", type=float, default=20.0, help="longest real time (default 20)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deliveries-") as name:
        found = uvloop.run(
            replay(args.jobs, args.lost, args.copies, args.speed, args.seed, args.minutes * 60, Path(name))
        )
    lines = (f"{key:20} {value}" for key, value in found.items())
    print(json.dumps(found) if args.json else "\n".join(lines))
    whole = found["succeeded"] == args.jobs
    return 0 if whole and not (found["never_ran"] or found["doubled"] or found["left"]) else 1


if __name__ == "__main__":
    sys.exit(main())
