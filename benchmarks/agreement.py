"""The live daemon, sped up, against the backtest: the same jobs, the same policy, the same offers?

    python -m benchmarks.agreement [--jobs 2000] [--speed 4] [--seed 1] [--json]

A seeded afternoon of jobs runs through one whole replica (webhooks over HTTP, Valkey, simulated accounts, GitHub's
stand-in) with a fast clock; then what GitHub's stand-in saw is an event file for `backtest` with the same policy.
Compared: the offer of every job, and the median and 90th percentile of waiting. Exit 1 when under 95% of the
offers agree or the times are over 10% apart. A call takes its real time: `--speed` times that on the fast clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoscaler.backtest import recording, trial
from autoscaler.backtest import tally as t
from autoscaler.clock import Clock
from autoscaler.policy.file import load
from autoscaler.sandbox.github_records import Job, JobRequest
from autoscaler.sandbox.summary import quantiles
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from scheduling.model import Runner

FLEET = "agree"
OFFERS_AGREE, TIMES_DIFFER = 0.95, 0.10
RUNS_A_MINUTE = 22.0
POLICY = """\
version: 1
ignore_labels: ["ubuntu-*"]
funds:
  grant: {{credit: 100000 USD, until: {year}-01-01, pays: [aws], spent: {{amount: 0 USD, as_of: {today}}}}}
  gift: {{credit: 5000 USD, until: {year}-01-01, pays: [gcp], spent: {{amount: 0 USD, as_of: {today}}}}}
  cash: {{cash: 2000 USD/month, pays: [arm], spent: {{amount: 0 USD, as_of: {today}}}}}
providers:
  aws: {{kind: sim, endpoint: "{clouds}/aws", settings: {{boot_seconds: 45, latency_ms: 2000, instance_types: {{
    c5.large: {{cpus: 2, memory_gib: 4, on_demand: 0.085 USD/h, spot: 0.034 USD/h}},
    c5.4xlarge: {{cpus: 16, memory_gib: 32, on_demand: 0.68 USD/h}}}}}}}}
  gcp: {{kind: sim, endpoint: "{clouds}/gcp", settings: {{boot_seconds: 35, latency_ms: 2000, instance_types: {{
    e2-standard-2: {{cpus: 2, memory_gib: 8, on_demand: 0.067 USD/h}}}}}}}}
  arm: {{kind: sim, endpoint: "{clouds}/arm", settings: {{boot_seconds: 60, latency_ms: 2000, instance_types: {{
    cax31: {{cpus: 8, memory_gib: 16, arch: arm64, on_demand: 0.0242 USD/h}}}}}}}}
defaults: {{boot_timeout: 5m, idle_timeout: 2m, access: {{repositories: ["octo/*"], forks: allow}}}}
runner_types:
  small: {{labels: [self-hosted, linux, small], hardware: {{os: linux, cpus: 2, memory: 4 GiB}},
          offers: [{{provider: gcp}}, {{provider: aws, purchase: [spot, on_demand]}}]}}
  large: {{labels: [self-hosted, linux, large], hardware: {{os: linux, cpus: 16, memory: 32 GiB}},
          offers: [{{provider: aws}}]}}
  arm64: {{labels: [self-hosted, linux, arm64], hardware: {{os: linux, arch: arm64, cpus: 8, memory: 16 GiB}},
          offers: [{{provider: arm}}]}}
"""
LABELS = {name: ("self-hosted", "linux", name) for name in ("small", "large", "arm64")}
REPOSITORIES = ("octo/engine", "octo/models", "octo/docs")


@dataclass(frozen=True, slots=True)
class Push:
    after_ms: int
    repository: str
    jobs: list[JobRequest]


def pushes(count: int, seed: int) -> list[Push]:
    """Runs of one to four jobs, evenly random in time."""
    dice, found, at_ms = random.Random(f"agreement/{seed}"), [], 0.0
    while count > 0:
        at_ms += dice.expovariate(RUNS_A_MINUTE) * 60_000
        size = min(count, dice.choice((1, 1, 2, 4)))
        count -= size
        kinds = dice.choices(list(LABELS), (6, 2, 2), k=size)
        jobs = [
            JobRequest(f"job {n}", LABELS[kind], int(1000 * min(dice.lognormvariate(5.2, 0.6), 1800)))
            for n, kind in enumerate(kinds)
        ]
        found.append(Push(int(at_ms), dice.choice(REPOSITORIES), jobs))
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """One job in the live run. `marks`: when its machine was planned, created, booted and registered."""

    job: Job
    offer: str
    marks: tuple[int, ...]


async def live(plan: list[Push], speed: float, directory: Path) -> list[Seen]:
    """Through the daemon. Every job must end."""
    clock, runners = Clock(speed), dict[str, Runner]()
    async with AsyncExitStack() as stack:
        around = Surroundings(clock, directory, seed=1, fleet=FLEET)
        stack.push_async_callback(around.close)
        today = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        await around.start(
            lambda clouds: POLICY.format(clouds=clouds, today=f"{today:%Y-%m-%d}", year=today.year + 2), ["octo"]
        )
        env = around.environment()
        replica = Replica(from_env(env), load(around.policy_path, clock.now_ms()), clock)
        await replica.start()
        stack.push_async_callback(replica.stop)
        around.announce_to(f"http://{env['AUTOSCALER_LISTEN']}")
        await until(lambda: ready(replica))
        begin_ms = clock.now_ms()
        for push in plan:
            await clock.sleep(begin_ms + push.after_ms - clock.now_ms())
            around.github.add_run(push.repository, push.jobs)
            print(f"\r{len(around.github.state.jobs)} jobs queued ", end="", file=sys.stderr)
        await until(lambda: all(job.state == "completed" for job in around.github.jobs()))
        world = replica.daemon.world
        for runner in world.runners.values() if world else ():
            runners[f"{FLEET}-{runner.id}"] = runner
        return [_seen(job, runners.get(job.runner_name)) for job in around.github.jobs()]


def _seen(job: Job, runner: Runner | None) -> Seen:
    if runner is None:
        return Seen(job, "", ())
    return Seen(
        job,
        runner.offer.key,
        (runner.planned_ms, runner.created_ms, runner.booted_ms, runner.registered_ms),
    )


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - there is no one event for it
        await asyncio.sleep(0.1)


def ready(replica: Replica) -> bool:
    world = replica.daemon.world
    return world is not None and not world.gates and set(world.offers) == set(replica.daemon.policy.providers)


def event_file(seen: list[Seen], path: Path) -> None:
    """What GitHub would have delivered."""
    lines: list[tuple[int, str]] = []
    for each in seen:
        job = each.job
        known: dict[str, Any] = {
            "id": job.id, "run_id": job.run_id, "run_attempt": 1, "labels": list(job.labels), "name": job.name,
            "created_at": stamp(job.queued_ms), "runner_name": "",
        }  # fmt: skip
        over = {"started_at": stamp(job.started_ms), "completed_at": stamp(job.completed_ms), "runner_name": "x"}
        for action, at_ms in (("queued", job.queued_ms), ("completed", job.completed_ms)):
            more = over | {"conclusion": job.conclusion} if action == "completed" else {}
            line = {
                "at": stamp(at_ms),
                "event": "workflow_job",
                "delivery": f"{job.id}-{action}",
                "payload": {
                    "action": action,
                    "workflow_job": known | more,
                    "repository": {"full_name": job.repository},
                },
            }
            lines.append((at_ms, json.dumps(line)))
    path.write_text("\n".join(line for _, line in sorted(lines)) + "\n", encoding="utf-8")


def compare(seen: list[Seen], found: trial.Trial, recorded: recording.Recording) -> dict[str, Any]:
    tally = found.tally
    offers = {
        recorded.job_id[row]: tally.offers[tally.offer[row]]
        for row in range(len(recorded))
        if tally.offer[row] != t.NONE
    }
    same = sum(offers.get(each.job.id) == _short(each.offer) for each in seen)
    waited = quantiles(sorted(each.job.started_ms - each.job.queued_ms for each in seen))
    simulated = found.document["queue_seconds"]
    apart = {name: round(abs(simulated[name] - waited[name]) / (waited[name] or 1), 4) for name in ("p50", "p90")}
    marked = [each for each in seen if each.marks]
    stages = t.Tally(0, 0, len(marked))
    for row, each in enumerate(marked):
        stages.began(row, each.job.started_ms, each.job.queued_ms, each.marks)
    return {
        "jobs": len(seen),
        "same_offer": round(same / len(seen), 4),
        "live_seconds": waited,
        "backtest_seconds": {name: simulated[name] for name in waited},
        "live_stages": {n: round(sum(s) / len(marked) / 1000, 2) for n, s in stages.stages.items()},
        "backtest_stages": found.document["queue_stage_seconds"],
        "apart": apart,
        "agree": same / len(seen) >= OFFERS_AGREE and max(apart.values()) <= TIMES_DIFFER,
    }


def _short(offer: str) -> str:
    provider, _, instance_type, purchase = offer.split("/") if offer else ("", "", "", "")
    return f"{provider}/{instance_type}/{purchase}"


def stamp(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--speed", type=float, default=4.0, help="of the live clock (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="autoscaler-agreement-") as name:
        directory = Path(name)
        seen = asyncio.run(live(pushes(args.jobs, args.seed), args.speed, directory))
        events, world = directory / "events.jsonl", directory / "world.yaml"
        event_file(seen, events)
        world.write_text("register: 1s\n", encoding="utf-8")  # the stand-in's runners are online at once
        recorded = recording.read(events)
        found = compare(seen, trial.run(recorded, directory / "policy.yaml", world, args.seed), recorded)
    print(file=sys.stderr)
    print(json.dumps(found, indent=2) if args.json else _words(found))
    return 0 if found["agree"] else 1


def _words(found: dict[str, Any]) -> str:
    live_, simulated = found["live_seconds"], found["backtest_seconds"]
    return "\n".join(
        [
            f"{found['jobs']} jobs, {found['same_offer']:.1%} at the same offer",
            *(
                f"{name}: live {live_[name]} s, backtest {simulated[name]} s, {found['apart'][name]:.1%} apart"
                for name in ("p50", "p90")
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
