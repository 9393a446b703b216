"""Seeded event files with PyTorch's mix of labels and its rhythm of the day, all three events of every job.

    python -m benchmarks.trace --days 1 --seed 1 --out day.jsonl.gz

A weekday has 72,000 jobs (8,500 in the hour of the peak, 2,400 in the quietest), a weekend day 24,000; four weeks
are 1.6 million. Jobs come in runs of up to 256. Every number follows from the seed, the days and the scale alone.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import json
import math
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

DATA = Path(__file__).parent / "data" / "pytorch-runner-load-30d.csv"
START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR_MS = 3_600_000

QUIET_HOUR, WEEKEND_HOUR, PEAK_AT = 2_400, 1_000, 18  # jobs, jobs, hour of the day in UTC
ABOVE_QUIET = {
    0: 6_100,
    1: 3_470,
    2: 640,
    3: 40,
}  # jobs by hours from the peak: 72,000 a weekday in all
PEAK_SHARE = 8_500 / 1_632_000  # of four weeks' jobs that arrive in one hour of the peak
TOGETHER = (
    0.4  # the labels' peaks do not fall together: so many of their sum make the fleet's peak of 2,100 machines
)
RUN_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RUN_WEIGHTS = (40, 20, 14, 10, 7, 5, 2.4, 1.1, 0.5)
SPREAD = 0.8  # sigma of the log-normal durations
SHORTEST_S, LONGEST_S = 20, 160 * 60
HOSTED = "GitHub-hosted runners"
REPOSITORIES = {
    "pytorch/pytorch": 82, "pytorch/executorch": 6, "pytorch/vision": 3, "pytorch/ao": 3, "pytorch/audio": 2,
    "pytorch/helion": 2, "pytorch/test-infra": 1, "pytorch/torchtitan": 1,
}  # fmt: skip
CANCELLED_QUEUED, CANCELLED_RUNNING, FAILED, FORKS = 0.02, 0.03, 0.07, 0.15


@dataclass(frozen=True, slots=True)
class Kind:
    """One runner label: how often, and how long its jobs take on average."""

    label: str
    weight: int
    mean_s: float


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. Times are Unix ms; `started_ms` 0: it was cancelled while it was queued."""

    job_id: int
    run_id: int
    repository: str
    workflow: str
    name: str
    branch: str
    label: str
    fork: bool
    event: str
    queued_ms: int
    started_ms: int
    completed_ms: int
    conclusion: str


def kinds() -> list[Kind]:
    """The self-hosted labels of the table."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["section"] != HOSTED]
    return [Kind(row["runner_label"], int(row["jobs_30d"]), _mean_s(row)) for row in rows]


def _mean_s(row: dict[str, str]) -> float:
    """By Little's law from the peak of concurrent jobs, between 2 and 75 minutes."""
    arrivals_an_hour = int(row["jobs_30d"]) * PEAK_SHARE
    return min(max(TOGETHER * 3600 * int(row["peak_concurrent"]) / arrivals_an_hour, 120.0), 4500.0)


def jobs(days: int, seed: int, scale: float = 1.0) -> Iterator[TraceJob]:
    """All jobs, by the time at which they were queued."""
    dice, known = random.Random(f"trace/{seed}"), kinds()
    weights = list(accumulate(kind.weight for kind in known))
    job_id, run_id = 50_000_000_000 + seed * 10_000_000, 20_000_000_000 + seed * 1_000_000
    for hour in range(days * 24):
        since = START + timedelta(hours=hour)
        left = round(_jobs_in(since) * scale)
        sizes = []
        while left > 0:
            top = dice.choices(RUN_SIZES, RUN_WEIGHTS)[0]
            sizes.append(min(left, dice.randint(top // 2 + 1, top)))
            left -= sizes[-1]
        since_ms = int(since.timestamp() * 1000)
        found: list[TraceJob] = []
        for at_ms in sorted(since_ms + dice.randrange(HOUR_MS - 5_000) for _ in sizes):
            run_id += 1
            found += _run(dice, known, weights, run_id, job_id, at_ms, sizes.pop())
            job_id = found[-1].job_id
        yield from sorted(found, key=lambda job: job.queued_ms)


def _jobs_in(hour: datetime) -> int:
    if hour.weekday() >= 5:
        return WEEKEND_HOUR
    return QUIET_HOUR + ABOVE_QUIET.get(abs(hour.hour - PEAK_AT), 0)


def _run(
    dice: random.Random, known: list[Kind], weights: list[int], run_id: int, job_id: int, at_ms: int, size: int
) -> Iterator[TraceJob]:
    """One workflow run: a few labels, its jobs queued within seconds of each other."""
    repository = dice.choices(list(REPOSITORIES), list(REPOSITORIES.values()))[0]
    fork = dice.random() < FORKS
    event = "pull_request" if fork or dice.random() < 0.5 else dice.choice(("push", "push", "schedule"))
    branch = (
        f"user/patch-{run_id % 997}" if event == "pull_request" else dice.choice(("main", "main", "release/2.9"))
    )
    workflow = dice.choice(("pull", "trunk", "periodic", "inductor", "linux-binary", "lint"))
    few = dice.choices(known, cum_weights=weights, k=1 + size // 12)
    for number in range(size):
        job_id += 1
        kind = dice.choice(few)
        at_ms += dice.randrange(40)
        mu = math.log(kind.mean_s) - SPREAD**2 / 2
        lasts_s = min(max(dice.lognormvariate(mu, SPREAD), SHORTEST_S), LONGEST_S)
        started_ms = at_ms + int(1000 * min(dice.lognormvariate(math.log(70), 0.7), 7200))
        conclusion = "failure" if dice.random() < FAILED else "success"
        chance = dice.random()
        if chance < CANCELLED_QUEUED:
            ends_ms, started_ms, conclusion = at_ms + dice.randrange(5_000, 60_000), 0, "cancelled"
        else:
            if chance < CANCELLED_QUEUED + CANCELLED_RUNNING:
                lasts_s, conclusion = lasts_s * dice.random(), "cancelled"
            ends_ms = started_ms + int(lasts_s * 1000)
        name = f"{workflow} / test (default, {number % 8 + 1}, 8, {kind.label})"
        yield TraceJob(
            job_id, run_id, repository, workflow, name, branch, kind.label, fork, event, at_ms, started_ms,
            ends_ms, conclusion,
        )  # fmt: skip


def lines(jobs: Iterable[TraceJob]) -> Iterator[bytes]:
    """The event file of jobs in the order of their queueing, line by line, in the order of time."""
    heap: list[tuple[int, int, TraceJob, str]] = []
    number = 0
    for job in jobs:
        while heap and heap[0][0] <= job.queued_ms:
            at_ms, _, other, action = heapq.heappop(heap)
            yield _line(other, action, at_ms)
        yield _line(job, "queued", job.queued_ms)
        number += 2
        if job.started_ms:
            heapq.heappush(heap, (job.started_ms, number, job, "in_progress"))
        heapq.heappush(heap, (job.completed_ms, number + 1, job, "completed"))
    while heap:
        at_ms, _, other, action = heapq.heappop(heap)
        yield _line(other, action, at_ms)


ACTIONS = ("queued", "in_progress", "completed")


def _line(job: TraceJob, action: str, at_ms: int) -> bytes:
    started, completed = action != "queued" and job.started_ms, action == "completed"
    line = {
        "at": _rfc3339(at_ms),
        "event": "workflow_job",
        "delivery": f"{job.job_id:012x}-{ACTIONS.index(action)}",
        "payload": {
            "action": action,
            "workflow_job": {
                "id": job.job_id,
                "run_id": job.run_id,
                "run_attempt": 1,
                "labels": [job.label],
                "name": job.name,
                "workflow_name": job.workflow,
                "head_branch": job.branch,
                "status": action,
                "conclusion": job.conclusion if completed else None,
                "created_at": _rfc3339(job.queued_ms),
                "started_at": _rfc3339(job.started_ms) if started else None,
                "completed_at": _rfc3339(job.completed_ms) if completed else None,
                "runner_name": f"i-{job.job_id:x}" if started else None,
            },
            "repository": {"full_name": job.repository},
        },
        "run": {"event": job.event, "fork": job.fork, "ref": f"refs/heads/{job.branch}"},
    }
    return json.dumps(line, separators=(",", ":")).encode()


def _rfc3339(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def write(path: Path, jobs: Iterable[TraceJob]) -> int:
    """Writes the event file, packed where its name ends in .gz. How many lines."""
    # without a time and a name inside, the same trace packs to the same bytes
    with path.open("wb") as raw:
        file = gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
        count = 0
        for line in lines(jobs):
            file.write(line + b"\n")
            count += 1
        if file is not raw:
            file.close()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=1, help="days from a Monday on (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs (default %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=".jsonl or .jsonl.gz")
    args = parser.parse_args()
    print(f"{write(args.out, jobs(args.days, args.seed, args.scale)):,} deliveries", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
