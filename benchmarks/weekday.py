"""A weekday of PyTorch's CI against GitHub's limits: 80 creations a minute and 12,500 requests an hour an App.

    python -m benchmarks.weekday --apps 1
    python -m benchmarks.weekday --apps 3
    python -m benchmarks.weekday --apps 1 --from-hour 16 --hours 3 --json     # the peak alone

72,000 jobs of `benchmarks.trace` (its labels, repositories, runs, durations and cancellations) in simulated time,
so that the result follows from the seed alone, not from the machine's load. The daemon, its effects, its GitHub
client (budgets, pace, choice of App), webhook receiver, runner API and store are the product's own; Redis is the
simulation's twin, GitHub the sandbox's handlers with their limits, called in process. Machines boot in 3 to 40
simulated seconds and never fail. An App's secondary limit is a sliding minute that shows in no header, and is
answered with 403 without retry-after.

With one App a backlog cannot be helped: 80 a minute are 4,800 an hour, the peak has 8,500 jobs. What counts then
is that the App is used at its limit while jobs wait, and that no job is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from autoscaler import daemon as daemon_module
from autoscaler.http import runner_api as runner_api_module
from autoscaler.sandbox.github_access import Limits
from autoscaler.sandbox.github_records import JobRequest
from benchmarks import trace, weekday_github
from benchmarks.virtual import PRICES, BenchLoop, VirtualFleet
from scheduling.lifecycle import RunnerState
from scheduling.model import Hardware, UnixMs
from scheduling.policy import Access, Forks, Policy, ProviderPolicy, Rule, RunnerType
from tests.core.fleet import credit

CREATIONS, REQUESTS = 80, 12_500
HOUR_MS = 3_600_000
LOOK_S, STORY_S = 5.0, 3600.0
LONGEST_AFTER_S = 6 * 3600.0
BACKLOG = 2 * CREATIONS
"""Runners that wait for their JIT config: so many all through a minute, and it counts as one with a backlog."""
OWNER = "pytorch"


def policy() -> Policy:
    """A runner type for each label of the trace; forks are let in, and one rule needs to know every run's ref."""
    everyone = Access((f"{OWNER}/*",), Forks.ALLOW)
    types = [RunnerType(k.label, (k.label,), Hardware(cpus=2), access=everyone) for k in trace.kinds()]
    return Policy(
        hash="weekday",
        providers={name: ProviderPolicy(name, "sim") for name in PRICES},
        runner_types={each.name: each for each in types},
        funds={"grant": credit("grant", 1_000_000)},
        rules=(Rule(ref=("refs/heads/release/*",), prefer=("west",)),),
    )


class Weekday(VirtualFleet):
    def __init__(self, loop: BenchLoop, apps: int, seed: int, hours: tuple[int, int]) -> None:
        super().__init__(loop, seed, policy(), OWNER, apps, Limits(REQUESTS, CREATIONS))
        self.hours = hours
        self.start_ms: UnixMs = 0
        self.left = 0  # jobs that are still to come
        self.waiting: list[int] = []  # runners that wait for their JIT config, at each look
        self.alive: list[int] = []

    # ---- the day -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the last job has ended and no registration is left."""
        self.replica.start()
        await asyncio.sleep(60)
        self.start_ms = self.clock.now_ms()
        first, last = self.hours
        self._push(first, last)
        end_s = self.loop.now + (last - first) * 3600 + LONGEST_AFTER_S
        began, told_s = time.monotonic(), self.loop.now
        while self.loop.now < end_s and not self.broken and not self._over():
            await asyncio.sleep(LOOK_S)
            self._look()
            if self.loop.now >= told_s + STORY_S:
                told_s = self.loop.now
                self._tell(time.monotonic() - began)

    def _push(self, first: int, last: int) -> None:
        from_ms = int(trace.START.timestamp() * 1000) + first * HOUR_MS
        for _, group in groupby(trace.jobs(1, self.seed), key=lambda job: job.run_id):
            jobs = list(group)
            at_ms = jobs[0].queued_ms - from_ms
            if 0 <= at_ms < (last - first) * HOUR_MS:
                self.left += len(jobs)
                self.loop.call_later(at_ms / 1000, self._add, jobs)

    def _add(self, jobs: list[trace.TraceJob]) -> None:
        first = jobs[0]
        requests = [JobRequest(job.name, (job.label,), _lasts_ms(job)) for job in jobs]
        ref = f"refs/heads/{first.branch}"
        run = self.github.add_run(first.repository, requests, event=first.event, fork=first.fork, ref=ref)
        self.left -= len(jobs)
        for job_id, job in zip(run.jobs, jobs, strict=True):
            if not job.started_ms:
                self.loop.call_later((job.completed_ms - job.queued_ms) / 1000, self._cancel, job_id)

    def _cancel(self, job_id: int) -> None:
        if self.github.state.jobs[job_id].state == "queued":
            self.github.cancel(job_id)

    def _over(self) -> bool:
        state = self.github.state
        return not (self.left or state._queue or state._running or state.registrations)

    def _look(self) -> None:
        self.github.state.sweep(self.clock.now_ms())
        self.server.data.pop("{bench}:journal", None)
        world = self.replica.daemon.world if self.replica.daemon else None
        if world is not None:
            states = world.by_state
            runners = (world.runners[key] for key in states[RunnerState.REGISTERING])
            self.waiting.append(sum(not runner.registration_id for runner in runners))
            self.alive.append(sum(len(keys) for state, keys in states.items() if state is not RunnerState.GONE))

    def _tell(self, took_s: float) -> None:
        state = self.github.state
        print(
            f"hour {(self.clock.now_ms() - self.start_ms) / HOUR_MS:4.1f}: {len(state.jobs):6} jobs so far, "
            f"{len(state._queue):5} queued, {len(state._running):5} running, {self.waiting[-1]:5} runners wait "
            f"for a JIT config, {took_s:5.0f} s spent",
            file=sys.stderr,
            flush=True,
        )

    # ---- what came of it -----------------------------------------------------------------------------------

    def report(self) -> dict[str, object]:
        jobs = list(self.github.state.jobs.values())
        waits = sorted(job.started_ms - job.queued_ms for job in jobs if job.started_ms)
        found: dict[str, object] = {
            "apps": len(self.apps),
            "limits_an_app": f"{CREATIONS} creations/min, {REQUESTS:,} requests/h",
            "jobs": len(jobs),
            "completed": sum(job.conclusion == "success" for job in jobs),
            "cancelled": sum(job.conclusion == "cancelled" for job in jobs),
            "lost": sum(job.conclusion not in ("success", "cancelled") for job in jobs),
            "doubled": sum(job.starts > 1 for job in jobs),
            "machines": sum(cloud.made for cloud in self.clouds.values()),
            "machines_at_most": max(self.alive),
            "wait_for_jit_machine_hours": round(sum(self.waiting) * LOOK_S / 3600),
        }
        for share in (0.5, 0.9, 0.99, 1.0):
            name = "max" if share == 1 else f"p{share * 100:.0f}"
            wait_ms = waits[min(len(waits) - 1, int(share * len(waits)))] if waits else 0
            found[f"queue_{name}_s"] = round(wait_ms / 1000, 1)
        return found | self._pace() | {"broken": "; ".join(self.broken)}

    def _pace(self) -> dict[str, object]:
        """Creations a minute an App, in the minutes all through which runners waited for one."""
        looks = int(60 / LOOK_S)
        minutes = [
            number
            for number in range(len(self.waiting) // looks)
            if min(self.waiting[number * looks : (number + 1) * looks]) >= BACKLOG
        ]
        counts = [weekday_github.by_minute(times, self.start_ms) for times in self.github_wire.made.values()]
        rates = [sum(count[minute] for minute in minutes) / len(minutes) for count in counts if minutes]
        return {
            "backlog_minutes": len(minutes),
            "creations_a_minute_then": ", ".join(f"{rate:.1f}" for rate in rates) or "no backlog",
        }


def _lasts_ms(job: trace.TraceJob) -> int:
    return max(1_000, job.completed_ms - job.started_ms) if job.started_ms else 60_000


def _show(found: dict[str, object], requests: Iterable[tuple[Any, ...]]) -> None:
    for key, value in found.items():
        print(f"{key:28} {value}")
    print(f"{'requests by App (- as itself)':46} counted    free refused")
    for app, kind, *counts in requests:
        print(f"  {app or '-'}: {kind:40}", *(f"{count:7}" for count in counts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", type=int, default=1, help="GitHub Apps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the trace and of everything else (default 1)")
    parser.add_argument("--from-hour", type=int, default=0, help="of the day, UTC (default 0)")
    parser.add_argument("--hours", type=int, default=24, help="of the day (default 24)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    daemon_module.IDLE_S, runner_api_module.LOOK_SECONDS = 8.0, 1.0
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    loop = BenchLoop()
    began = time.process_time()
    day = contextvars.copy_context().run(
        lambda: Weekday(loop, args.apps, args.seed, (args.from_hour, args.from_hour + args.hours))
    )
    loop.run_until_complete(day.run())
    sys.unraisablehook = lambda unraisable: None  # the replica runs until the process ends
    found = day.report()
    found["processor_s"] = round(time.process_time() - began)
    requests = weekday_github.requests(day.github_wire)
    if args.json:
        print(json.dumps(found | {"requests": list(requests)}))
    else:
        _show(found, requests)
    return 1 if found["lost"] or found["doubled"] or day.broken else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", "benchmarks.weekday", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
