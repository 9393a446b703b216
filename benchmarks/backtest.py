"""How fast recorded events go through a policy: a PyTorch weekday, and as many jobs as a month at three sizes.

    python -m benchmarks.backtest [--days 1] [--scales 0.25,0.5,1] [--json]

Processor seconds of one process, reading the event file apart; each also as a ratio to a floor measured in the
same run: a loop of plain dictionary work. Growth: seconds a job at the largest size over those at the smallest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autoscaler.backtest import recording, trial
from benchmarks import trace

FLOOR_STEPS = 3_000_000


def policy() -> str:
    """A type for each of the trace's labels; three providers, two grants and cash."""
    types = []
    for kind in trace.kinds():
        lab = "rocm" in kind.label
        sells = "[{provider: lab}]" if lab else "[{provider: gcp}, {provider: aws, purchase: [spot, on_demand]}]"
        labels = f'[self-hosted, linux, "{kind.label}"]'
        types.append(f'  "{kind.label}": {{labels: {labels}, hardware: {{os: linux, cpus: 8}}, offers: {sells}}}')
    return POLICY + "\n".join(types) + "\n"


POLICY = """\
version: 1
ignore_labels: ["ubuntu-*"]
limits: {runners: 4000}
funds:
  aws-2026: {credit: 1000000 USD, from: 2026-01-01, until: 2027-02-01, pays: [aws]}
  gcp-gift: {credit: 5000 USD, until: 2026-12-31, pays: [gcp]}
  cash: {cash: 200000 USD/month, pays: [aws], purchase: [spot]}
providers:
  aws: {kind: sim, regions: [us-east-1], settings: {zones: 2, boot_seconds: 40, latency_ms: 1500}}
  gcp: {kind: sim, regions: [us-central1], settings: {boot_seconds: 30, latency_ms: 1500}}
  lab: {kind: sim, price: 0 USD/h, max_runners: 400, settings: {boot_seconds: 8}}
defaults: {access: {repositories: ["pytorch/*"], forks: allow}}
runner_types:
"""


def floor() -> float:
    """Processor seconds of plain dictionary work, the unit in which other machines may compare."""
    began, table = time.process_time(), dict[int, int]()
    for step in range(FLOOR_STEPS):
        table[step & 1023] = table.get(step & 511, 0) + step
    return time.process_time() - began


def measure(events: Path, policy_path: Path) -> dict[str, Any]:
    before = floor()
    began = time.process_time()
    recorded = recording.read(events)
    read = time.process_time()
    found = trial.run(recorded, policy_path, None, 0)
    done = time.process_time()
    unit = (before + floor()) / 2
    jobs = found.document["jobs"]
    return {
        "jobs": len(recorded),
        "completed": jobs["completed"],
        "read_s": round(read - began, 2),
        "backtest_s": round(done - read, 2),
        "jobs_per_s": round(len(recorded) / (done - read)),
        "us_per_job": round((done - read) / len(recorded) * 1e6, 1),
        "floor_s": round(unit, 3),
        "backtest_in_floors": round((done - read) / unit, 1),
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=1, help="1: a weekday; 28: a month (default %(default)s)")
    parser.add_argument("--scales", default="0.25,0.5,1", help="times as many jobs (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    sizes = []
    with tempfile.TemporaryDirectory(prefix="autoscaler-backtest-") as name:
        policy_path = Path(name) / "policy.yaml"
        policy_path.write_text(policy(), encoding="utf-8")
        for scale in map(float, args.scales.split(",")):
            events = Path(name) / "events.jsonl"
            trace.write(events, trace.jobs(args.days, args.seed, scale))
            with multiprocessing.get_context("spawn").Pool(1) as pool:  # its own memory
                sizes.append(pool.apply(measure, (events, policy_path)))
            print(sizes[-1], file=sys.stderr)
    growth = round(
        sizes[-1]["backtest_in_floors"] / sizes[-1]["jobs"] / (sizes[0]["backtest_in_floors"] / sizes[0]["jobs"]),
        3,
    )
    found = {"days": args.days, "seed": args.seed, "sizes": sizes, "growth_per_job": growth}
    print(json.dumps(found, indent=2) if args.json else f"growth of the time a job: {growth}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
