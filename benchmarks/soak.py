"""A hundred thousand queued jobs, a tenth of which can never run, and one healthy pool beside them.

    python -m benchmarks.soak [--jobs 0,10000,100000] [--idle SECONDS] [--json]

For each size a fresh replica as a process of its own, with a real Valkey process. Nine tenths of the jobs wait in
a pool whose runners are all busy (`max_runners`), one twentieth fits no runner type, one twentieth a type that
nobody sells. Measured: how long until all are taken in; memory of daemon and Redis, also for each job; CPU while
nothing happens; the reaction of another, healthy pool: from a signed webhook to the create call at the account.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoscaler.sandbox.github_records import JobRequest
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.store.keys import Keys
from autoscaler.store.store import Store
from benchmarks.replica import shared_clock
from benchmarks.storm_parts import ReplicaProcess, Server, read_or_none
from scheduling import messages as m
from scheduling.lifecycle import JobState

FLEET = "soak"
POLICY = """\
version: 1
providers:
  east: {{kind: sim, endpoint: "{clouds}/east", price: 0 USD/h, settings: {settings}}}
defaults: {{max_lifetime: 20h, access: {{repositories: ["octo/*"], forks: allow}}}}
runner_types:
  full: {{labels: [self-hosted, full], max_runners: 20, hardware: {{os: linux, cpus: 2}}}}
  unsold: {{labels: [self-hosted, unsold], hardware: {{os: linux, cpus: 64}}}}
  healthy: {{labels: [self-hosted, healthy], hardware: {{os: linux, cpus: 2}}}}
"""
SETTINGS = "{boot_seconds: 1, instance_types: {t: {cpus: 2, memory_gib: 4, on_demand: 0.1 USD/h}}}"
A_RUN = 100
BATCH = 2000
IDLE_S = 130.0  # every periodic look of the daemon falls into it once
REACTIONS = 40
SETTLED_S = 300.0


@dataclass(slots=True)
class Figures:
    """Of one size of queue. Milliseconds and MB (10^6 bytes)."""

    jobs: int
    never: int = 0
    taken_in_s: float = 0.0
    daemon_mb: float = 0.0
    redis_mb: float = 0.0
    daemon_bytes_a_job: int = 0
    redis_bytes_a_job: int = 0
    idle_cpu_percent: float = 0.0
    reaction_p50_ms: float = 0.0
    reaction_max_ms: float = 0.0


class Soak:
    """One size of queue."""

    def __init__(self, jobs: int, directory: Path, idle_s: float) -> None:
        self.figures = Figures(jobs)
        self.idle_s = idle_s
        self.directory = directory
        epoch_ms = int(time.time() * 1000)
        self.clock = shared_clock(epoch_ms, 1.0)
        self.around = Surroundings(self.clock, directory, fleet=FLEET)
        self.server = Server(directory / "redis")
        self.env: dict[str, str] = {}
        options = ("--epoch-ms", str(epoch_ms), "--lease", "6")
        self.replica = ReplicaProcess(self.env, options, directory / "replica.log")
        self.keys = Keys(FLEET)

    async def run(self) -> Figures:
        await self.around.start(self._policy, ["octo"])
        await self.server.start()
        self.env.update(self.around.environment(self.replica.port))
        self.env["AUTOSCALER_REDIS_URL"] = self.server.url
        self.redis: Any = self.server.client()
        try:
            await self.replica.start()
            await self._until(self._leads, 60)
            self.around.announce_to(f"http://127.0.0.1:{self.replica.port}")
            self.around.github.add_run("octo/app", [_request("full", 10**8)] * 20)
            await self._until(self._full, 60)
            before = await self._memory()
            await self._queue()
            await self._idle()
            after = await self._memory()
            self._compare(before, after)
            await self._react()
        finally:
            await self.replica.stop()
            await self.redis.aclose()
            await self.around.close()
            await self.server.kill()
        return self.figures

    # ---- filling the queue ---------------------------------------------------------------------------------

    async def _queue(self) -> None:
        """The jobs are in GitHub, where sweeps find them, and in the inbox, as webhooks would bring them."""
        began = time.monotonic()
        github, events = self.around.github, []
        announce, github.state.on_job = github.state.on_job, lambda action, job: None
        for number in range(self.figures.jobs // A_RUN):
            kind = {18: "unsold", 19: "strange"}.get(number % 20, "full")
            self.figures.never += A_RUN * (kind != "full")
            run = github.add_run("octo/app", [_request(kind, 60_000)] * A_RUN)
            events += [self._event(github.state.jobs[key], run.id) for key in run.jobs]
        github.state.on_job = announce
        store = Store(self.server.url, FLEET, b"only appends, so that any key will do")
        await store.open()
        for first in range(0, len(events), BATCH):
            await store.append(events[first : first + BATCH])
            await asyncio.sleep(0)
        await store.close()
        await self._until(self._taken_in, SETTLED_S)
        self.figures.taken_in_s = round(time.monotonic() - began, 1)

    def _event(self, job: Any, run_id: int) -> m.JobReported:
        return m.JobReported(
            self.clock.now_ms(), JobState.QUEUED, job.id, run_id, 1, job.repository, job.labels,
            name=job.name, workflow="CI", branch="main", created_ms=job.queued_ms, delivery="72d3162e-cc78-11e3",
        )  # fmt: skip

    async def _leads(self) -> bool:
        """It leads and has seen what the account sells: its gate is open once an inventory was taken."""
        lease = await read_or_none(self.redis.get(self.keys.lease))
        return bool(self.replica.holder and lease)

    async def _full(self) -> bool:
        return len(self.around.existing()) == 20 and not self._waiting("full", 0)

    def _waiting(self, kind: str, more_than: int) -> bool:
        jobs = self.around.github.state.jobs.values()
        return sum(kind in job.labels and job.state == "queued" for job in jobs) > more_than

    async def _taken_in(self) -> bool:
        known = await read_or_none(self.redis.hlen(self.keys.records["job"]))
        left = await read_or_none(self.redis.xlen(self.keys.inbox))
        return known == self.figures.jobs + 20 and left == 0

    # ---- measuring -----------------------------------------------------------------------------------------

    async def _memory(self) -> tuple[int, int]:
        """Resident bytes of the daemon, used bytes of Redis."""
        assert self.replica.process
        pages = int(_proc(self.replica.process.pid, "statm").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), int((await self.redis.info("memory"))["used_memory"])

    def _compare(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        figures = self.figures
        figures.daemon_mb, figures.redis_mb = (round(size / 1e6, 1) for size in after)
        if figures.jobs:
            figures.daemon_bytes_a_job, figures.redis_bytes_a_job = (
                (new - old) // figures.jobs for old, new in zip(before, after, strict=True)
            )

    async def _idle(self) -> None:
        await asyncio.sleep(5.0)
        used, began = self._cpu_s(), time.monotonic()
        await asyncio.sleep(self.idle_s)
        self.figures.idle_cpu_percent = round(100 * (self._cpu_s() - used) / (time.monotonic() - began), 1)

    def _cpu_s(self) -> float:
        assert self.replica.process
        fields = _proc(self.replica.process.pid, "stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def _react(self) -> None:
        """Jobs of the healthy pool, one at a time."""
        times = []
        cloud = self.around.clouds["east"]
        for _ in range(REACTIONS):
            launches, began = cloud.launches, time.monotonic()
            self.around.github.add_run("octo/app", [_request("healthy", 1000)])
            while cloud.launches == launches and time.monotonic() < began + 30:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            times.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(0.1)
        self.figures.reaction_p50_ms = round(statistics.median(times), 1)
        self.figures.reaction_max_ms = round(max(times), 1)

    async def _until(self, true: Any, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not await true():  # noqa: ASYNC110  the replica is another process
                await asyncio.sleep(0.1)

    def _policy(self, clouds: str) -> str:
        return POLICY.format(clouds=clouds, settings=SETTINGS)


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def _request(kind: str, duration_ms: int) -> JobRequest:
    return JobRequest("job", ("self-hosted", kind), duration_ms=duration_ms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="0,10000,100000", help="sizes of the queue (default %(default)s)")
    parser.add_argument(
        "--idle", type=float, default=IDLE_S, help="seconds in which nothing happens (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    found = []
    for jobs in map(int, args.jobs.split(",")):
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            found.append(asdict(asyncio.run(Soak(jobs, Path(name), args.idle).run())))
        print(f"{jobs} jobs done", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    for key in found[0]:
        print(f"{key:22}" + "".join(f"{each[key]:>12}" for each in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
