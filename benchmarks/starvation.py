"""Does a flood of one repository's jobs starve another? The same steady trace is run alone and beside the flood.

    python -m benchmarks.starvation [--seeds 5] [--flood 5000] [--runners 500] [--json]

`acme/steady` queues small matrices for five hours; an hour in, `acme/flood` queues all its jobs at once on the
same runner type (`register: repository`, fair share as it is by default, one cap for the fleet). Real evolve and
plan in the backtest's simulated time: nothing here depends on the machine. Aim: with the flood, the p99 wait of
the steady repository is under twice its p99 alone. Exit 1 where it is not. A matrix waits for as many machines of
the flood to end as it has jobs, so in a fleet that is small beside it (`--runners 100`) the ratio is higher.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscaler.backtest import recording, trial
from autoscaler.backtest.tally import NONE
from autoscaler.sandbox.summary import quantiles
from benchmarks import trace

LABEL = "linux.2xlarge"
STEADY, FLOOD = "acme/steady", "acme/flood"
START_MS = int(trace.START.timestamp() * 1000)
HOURS, FLOOD_AT_MS = 5, trace.HOUR_MS
POLICY = """\
version: 1
limits: {{runners: {runners}}}
funds: {{grant: {{credit: 100000 USD, from: 2026-01-01, until: 2027-02-01}}}}
providers: {{aws: {{kind: sim, settings: {{boot_seconds: 40, latency_ms: 1500}}}}}}
defaults: {{access: {{repositories: ["acme/*"], forks: allow}}}}
runner_types: {{{label}: {{labels: [{label}], hardware: {{os: linux, cpus: 8}}}}}}
"""


def job(dice: random.Random, number: int, run: int, repository: str, at_ms: int) -> trace.TraceJob:
    lasts_ms = int(1000 * min(max(dice.lognormvariate(6.0, 0.8), trace.SHORTEST_S), trace.LONGEST_S))
    name, began_ms = f"test ({number % 4})", at_ms + 60_000
    ends_ms = began_ms + lasts_ms
    return trace.TraceJob(
        number, run, repository, "ci", name, "main", LABEL, False, "push", at_ms, began_ms, ends_ms, "success"
    )  # fmt: skip


def steady(seed: int) -> Iterator[trace.TraceJob]:
    """About 120 jobs an hour in matrices of up to 16."""
    dice, at_ms, number, run = random.Random(f"steady/{seed}"), START_MS, 1_000_000, 1_000
    while at_ms < START_MS + HOURS * trace.HOUR_MS:
        run += 1
        for _ in range(dice.choice((1, 2, 4, 8, 16))):
            number += 1
            yield job(dice, number, run, STEADY, at_ms)
        at_ms += int(dice.expovariate(1 / 186_000))


def flood(seed: int, count: int) -> Iterator[trace.TraceJob]:
    dice = random.Random(f"flood/{seed}")
    for number in range(count):
        yield job(dice, 5_000_000 + number, 5_000 + number // 250, FLOOD, START_MS + FLOOD_AT_MS + number)


def waits(jobs: list[trace.TraceJob], policy: Path, folder: Path) -> list[int]:
    """Milliseconds from queued to begun of each job of the steady repository, in order."""
    events = folder / "events.jsonl"
    trace.write(events, sorted(jobs, key=lambda each: each.queued_ms))
    recorded = recording.read(events)
    found = trial.run(recorded, policy, None, 0)
    names = recorded.tables["repository"]
    mine = [wait for row, wait in enumerate(found.tally.wait) if names[recorded.repository[row]] == STEADY]
    if NONE in mine:
        raise SystemExit(f"{mine.count(NONE)} jobs of {STEADY} never began")
    return sorted(mine)


def measure(seed: int, count: int, runners: int, folder: Path) -> dict[str, Any]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(runners=runners, label=LABEL), encoding="utf-8")
    alone = waits(list(steady(seed)), policy, folder)
    beside = waits([*steady(seed), *flood(seed, count)], policy, folder)
    one, other = quantiles(alone), quantiles(beside)
    return {
        "seed": seed,
        "jobs": len(alone),
        "alone_s": {"p50": one["p50"], "p99": one["p99"]},
        "beside_flood_s": {"p50": other["p50"], "p99": other["p99"]},
        "p99_ratio": round(other["p99"] / one["p99"], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--flood", type=int, default=5000, metavar="JOBS")
    parser.add_argument(
        "--runners", type=int, default=100, metavar="N", help="the fleet's cap (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    args = parser.parse_args()
    found = []
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(seed, args.flood, args.runners, Path(folder)))
        print(f"seed {seed} of {args.seeds}: {found[-1]}", file=sys.stderr)
    worst = max(each["p99_ratio"] for each in found)
    if args.json:
        print(json.dumps({"flood": args.flood, "runners": args.runners, "worst_p99_ratio": worst, "seeds": found}))
    else:
        beside = f"{args.flood:,} jobs of {FLOOD} beside {STEADY}, {args.runners} runners"
        print(f"{beside}: worst p99 ratio {worst} (aim < 2)")
    return worst >= 2


if __name__ == "__main__":
    sys.exit(main())
