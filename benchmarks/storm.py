"""A storm of kills on three replicas and their Redis, while jobs run: nothing lost, doubled or leaked.

    python -m benchmarks.storm [--jobs 5000] [--kills 200] [--speed 10] [--lease 1] [--seed 1] [--keep DIR]

Real: three replica processes, one Valkey process (append-only file, fsync each second), HTTP between all of them.
Simulated, in this process: GitHub, two cloud accounts, machines. Each leader is killed (SIGKILL) within 3 s of its
takeover: by this process at a random moment, or by itself before or after an effect or a write; one in
twelve is stopped past its lease (SIGSTOP) and wakes up deposed. The server is killed every 20 s. Where the jobs
take longer than the kills, leaders then live up to 30 s; the kills end with the last push.

The clock of jobs and machines runs `--speed` times faster than real time; the lease, sockets and kills do not.
Time to repair: from the kill of a leader or of the server to the first commit under a newer fence, in real time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.store import codec
from autoscaler.store.keys import Keys
from benchmarks import storm_jobs
from benchmarks.replica import BOUNDARIES, shared_clock
from benchmarks.storm_parts import Door, ReplicaProcess, Server, read_or_none
from benchmarks.storm_report import Report, Storm, lost
from scheduling import ledger
from scheduling.model import FundAccount

FLEET = "storm"
LOOK_S = 0.02
TAKEOVER_S = 3.0
ABATED_S = 30.0
WAITING_MAX = 150
BOUNDARY_SHARE = 0.6
PAUSE_SHARE = 1 / 12
FUNDS_S = 2.0
AGAIN_S = 60.0
ALL_BOUNDARIES = 100
"""From so many kills on, a boundary that none of them reached is a failure too."""


class Run:
    """One storm in a directory of its own."""

    def __init__(self, storm: Storm, directory: Path) -> None:
        self.storm, self.directory = storm, directory
        self.dice = random.Random(storm.seed)
        epoch_ms = int(time.time() * 1000)
        self.clock = shared_clock(epoch_ms, storm.speed)
        self.around = Surroundings(self.clock, directory, seed=storm.seed, fleet=FLEET)
        self.server = Server(directory / "redis")
        options = ("--epoch-ms", str(epoch_ms), "--speed", str(storm.speed), "--lease", str(storm.lease_s))
        self.env: dict[str, str] = {}
        self.replicas = [ReplicaProcess(self.env, options, directory / f"replica-{n}.log") for n in range(3)]
        self.door = Door(self.replicas)
        self.keys = Keys(FLEET)
        self.report = Report()
        self.boundaries: Counter[str] = Counter()
        self.hurt: list[tuple[float, int]] = []  # kills that no newer fence has committed after yet: when, fence
        self.repairs: list[float] = []
        self.leader, self.committed = "", 0  # the lease as it reads, the fence of the last commit
        self.pushed = False
        self.over = asyncio.Event()

    # ---- the whole -----------------------------------------------------------------------------------------

    async def run(self, say: Callable[[str], object]) -> Report:
        began = time.monotonic()
        async with self._running():
            try:
                async with asyncio.timeout(self.storm.limit_s):
                    await self._storm(say)
                    await self._until_rest(say)
            except TimeoutError:
                say(f"given up after {self.storm.limit_s:g} s")
            await self._look_at_funds()
            self._count(time.monotonic() - began)
        return self.report

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        await self.around.start(lambda clouds: storm_jobs.policy(clouds, self.clock.now_ms()), ["octo"])
        await self.server.start()
        await self.door.start()
        url = f"http://127.0.0.1:{self.door.port}"
        self.env.update(self.around.environment(port=self.door.port))
        self.env |= {"AUTOSCALER_REDIS_URL": self.server.url, "AUTOSCALER_PUBLIC_URL": url}
        self.around.announce_to(url)
        self.redis: Any = self.server.client()
        try:
            yield
        finally:
            await asyncio.gather(*(replica.stop() for replica in self.replicas))
            await self.redis.aclose()
            await self.door.close()
            await self.around.close()
            await self.server.kill()

    async def _storm(self, say: Callable[[str], object]) -> None:
        for replica in self.replicas:
            await replica.start()
        people = asyncio.create_task(self._push())
        duties = [
            asyncio.create_task(duty)
            for duty in (self._watch(), self._hunt(), self._revive(), self._kill_server(), self._check_funds())
        ]
        try:
            while not (self.pushed and self.report.leader_kills >= self.storm.kills):
                for task in (people, *duties):
                    if task.done():
                        task.result()
                say(self._words())
                await asyncio.sleep(1.0)
        finally:
            self.over.set()
            people.cancel()
            await asyncio.gather(people, *duties, return_exceptions=True)
        for replica in self.replicas:
            if not replica.alive:
                await replica.ended()
                await replica.start()

    async def _until_rest(self, say: Callable[[str], object]) -> None:
        """From here nothing is hurt any more. A job that failed with its machine has a while to be run again."""
        self.over.clear()
        watching = asyncio.create_task(self._watch())
        rested_s = 0.0
        try:
            while not self._at_rest() or (rested_s < AGAIN_S and lost(self.around.github.jobs())):
                say(f"calm  {self._words()}")
                await asyncio.sleep(1.0)
                rested_s = rested_s + 1.0 if self._at_rest() else 0.0
        finally:
            self.over.set()
            await asyncio.gather(watching, return_exceptions=True)

    def _at_rest(self) -> bool:
        jobs = self.around.github.state.jobs.values()
        done = all(job.state == "completed" for job in jobs)
        left = self.around.left_behind() or self.around.github.registrations() or self.hurt
        return done and not left

    # ---- what happens --------------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        """Not past the end of the storm: what somebody does is done to its end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    async def _push(self) -> None:
        """All jobs, spread over the time that the kills will take; none while many wait already."""
        span_s = self.storm.kills * (self.storm.lease_s + 2.0)
        left = self.storm.jobs
        while left:
            count = storm_jobs.push(self.around.github, self.dice, left, self.storm.spot_share)
            left -= count
            await asyncio.sleep(span_s * count / self.storm.jobs)
            while self._waiting() > WAITING_MAX:  # noqa: ASYNC110  the replicas are other processes
                await asyncio.sleep(LOOK_S)
        self.pushed = True

    def _waiting(self) -> int:
        return sum(job.state == "queued" for job in self.around.github.state.jobs.values())

    async def _watch(self) -> None:
        """Follow lease and commits; a kill is repaired once a newer fence has committed."""
        while not self.over.is_set():
            lease = await read_or_none(self.redis.get(self.keys.lease))
            self.leader = lease.decode() if isinstance(lease, bytes) else ""
            n = await read_or_none(self.redis.hget(self.keys.head, "n"))
            self.committed = int(n) if isinstance(n, bytes) else self.committed
            now = time.monotonic()
            self.repairs += [now - at for at, fence in self.hurt if self.committed > fence]
            self.hurt = [(at, fence) for at, fence in self.hurt if self.committed <= fence]
            await self._pause(LOOK_S)

    def _fence(self) -> int:
        return int(self.leader.split("/")[1]) if self.leader else self.committed

    async def _hunt(self) -> None:
        """Each leader has at most 3 s; once enough were killed, at most 30 s, until all jobs are pushed."""
        hunted = 0
        while not self.over.is_set():
            await self._pause(LOOK_S)
            prey = next((r for r in self.replicas if r.holder and self.leader.endswith(f"/{r.holder}")), None)
            if prey is None or self._fence() <= hunted or not prey.alive:
                continue
            hunted, process = self._fence(), prey.process
            abated = self.report.leader_kills >= self.storm.kills
            await self._pause(self.dice.uniform(0, ABATED_S if abated else TAKEOVER_S))
            if prey.process is not process or not prey.alive or self.over.is_set():
                continue  # it was faster than us
            if self.dice.random() < PAUSE_SHARE:
                self.report.pauses += 1
                self.hurt.append((time.monotonic(), hunted))
                prey.signal(signal.SIGSTOP)
                await asyncio.sleep(2 * self.storm.lease_s)
                prey.signal(signal.SIGCONT)
            else:
                prey.signal(signal.SIGKILL)

    async def _revive(self) -> None:
        """What died is counted and started again, sometimes with a boundary at which it will end."""
        while not self.over.is_set():
            for replica in self.replicas:
                if replica.alive:
                    continue
                if replica.process is not None:
                    await replica.ended()
                    self._count_death(replica)
                doomed = self.dice.random() < BOUNDARY_SHARE
                await replica.start(*(("--die", self._boundary()) if doomed else ()))
            await self._pause(LOOK_S)

    def _boundary(self) -> str:
        """One of those at which the fewest have died so far."""
        fewest = min(self.boundaries[name] for name in BOUNDARIES)
        return self.dice.choice([name for name in BOUNDARIES if self.boundaries[name] == fewest])

    def _count_death(self, replica: ReplicaProcess) -> None:
        """Only leaders are killed, by us or by themselves."""
        self.report.leader_kills += 1
        self.boundaries[replica.died_at or "any moment"] += 1
        fence = self._fence() if self.leader.endswith(f"/{replica.holder}") else self.committed
        self.hurt.append((time.monotonic(), fence))

    async def _kill_server(self) -> None:
        while not self.over.is_set():
            await self._pause(self.storm.server_s)
            if self.over.is_set():
                return
            self.hurt.append((time.monotonic(), max(self._fence(), self.committed)))
            await self.server.kill()
            await self.server.start()

    # ---- what is checked -----------------------------------------------------------------------------------

    async def _check_funds(self) -> None:
        while not self.over.is_set():
            await self._look_at_funds()
            await self._pause(FUNDS_S)

    async def _look_at_funds(self) -> None:
        found = await read_or_none(self.redis.hgetall(self.keys.records["fund"]))
        for raw in found.values() if isinstance(found, dict) else ():
            account: FundAccount = codec.decode_record("fund", raw)
            limit = self.around.policy.funds[account.name].limit
            used = max((ledger.used(account, period) for period in {*account.held, *account.settled}), default=0)
            over = used - limit
            self.report.over_a_fund_micro_usd = max(self.report.over_a_fund_micro_usd, over)
            if account.name == "grant":
                self.report.most_of_grant_used = max(self.report.most_of_grant_used, round(used / limit, 3))

    def _count(self, wall_s: float) -> None:
        report, github = self.report, self.around.github
        report.wall_s = round(wall_s, 1)
        report.count_jobs(github.jobs())
        report.leaked_machines = self.around.left_behind()
        report.leaked_registrations = len(github.leaked_registrations(f"{FLEET}-"))
        report.server_kills = self.server.kills
        report.boundaries = dict(sorted(self.boundaries.items()))
        report.not_reached = [name for name in BOUNDARIES if not self.boundaries[name]]
        report.machines = sum(cloud.made for cloud in self.around.clouds.values())
        report.count_repairs(self.repairs, unrepaired=len(self.hurt))

    def _words(self) -> str:
        jobs = Counter(job.state for job in self.around.github.state.jobs.values())
        return (
            f"{jobs['completed']}/{self.storm.jobs} jobs  {jobs['in_progress']} running  {jobs['queued']} waiting"
            f"  {len(self.around.existing())} machines  {self.report.leader_kills}/{self.storm.kills} leaders"
            f" killed  server {self.server.kills}"
        )


async def storm(asked: Storm, directory: Path, say: Callable[[str], object] = lambda words: None) -> Report:
    """Run one storm; logs and data stay in the directory."""
    return await Run(asked, directory).run(say)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Storm()
    for name, default, text in (
        ("jobs", usual.jobs, "jobs to run"),
        ("kills", usual.kills, "leaders to kill"),
        ("speed", usual.speed, "of the clock of jobs and machines"),
        ("lease", usual.lease_s, "real seconds"),
        ("seed", usual.seed, "of everything drawn"),
    ):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default})")
    parser.add_argument("--minutes", type=float, default=40.0, help="longest real time (default 40)")
    parser.add_argument("--keep", type=Path, help="new directory that keeps logs and data")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    asked = Storm(args.jobs, args.kills, args.speed, args.lease, args.seed, args.minutes * 60)
    with tempfile.TemporaryDirectory(prefix="storm-") as name:
        report = asyncio.run(_until_stopped(storm(asked, args.keep or Path(name), _progress)))
    document = asdict(report)
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        for key, value in document.items():
            print(f"{key:24} {value}")
    missed = report.not_reached and args.kills >= ALL_BOUNDARIES
    return 1 if report.broken or missed else 0


async def _until_stopped(work: Coroutine[Any, Any, Report]) -> Report:
    """SIGTERM and Ctrl-C end the processes of the storm too."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


def _progress(words: str) -> None:
    with suppress(OSError):
        print(f"\r{words:<120}" if sys.stderr.isatty() else words, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
