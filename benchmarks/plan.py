"""One tick of the core: 100 new events at 5,000 live runners and 500 offers, at growing queues.

    python -m benchmarks.plan [--ticks N] [--json]

The world is one that PyTorch might have: 50 runner types, 40 repositories, 10 providers, caps reached, so that
the queue stays. A tick is `evolve` of 100 facts (jobs that come and go, callbacks, ends, proofs), `plan` and
`pending`, in processor time of this process, with garbage collected as the daemon collects it.
Flat means: the figure at 100,000 queued jobs over the one at 1,000. No sockets, no store, one thread.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from datetime import UTC, datetime
from itertools import islice

from autoscaler import collector
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState, RunnerState
from scheduling.model import Hardware, Job, Offer, Purchase
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import Access, Forks, Fund, Policy, ProviderPolicy, RunnerType
from scheduling.world import World

NOW = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)
TYPES, REPOSITORIES, PROVIDERS, LIVE = 50, 40, 10, 5_000
LIVES, CANCELLED = 6, 23
"""A tick's 100 facts: 6 machines at each of the 8 of a life, 29 jobs that come and 23 that are cancelled."""
USD = 1_000_000
SIZES = (1_000, 10_000, 100_000)


def policy() -> Policy:
    access = Access(("org/*",), Forks.ALLOW)
    types = {
        f"t{n}": RunnerType(
            f"t{n}", ("self-hosted", "linux", f"t{n}"), Hardware(cpus=2 + n % 16), access=access, max_runners=100
        )
        for n in range(TYPES)
    }
    funds = {
        f"f{n}": Fund(
            f"f{n}",
            cash=False,
            limit=50_000_000 * USD,
            until_ms=NOON_PLUS_YEAR,
            pays=frozenset({f"p{n}", f"p{(n + 1) % PROVIDERS}"}),
            spent=0,
            spent_as_of_ms=NOW,
        )
        for n in range(PROVIDERS)
    }
    return Policy("bench", {f"p{n}": ProviderPolicy(f"p{n}", "sim") for n in range(PROVIDERS)}, types, funds)


NOON_PLUS_YEAR = NOW + 365 * 24 * 3_600_000


def offers(provider: str) -> tuple[Offer, ...]:
    """50 offers: 5 zones of 5 instance types on demand and spot."""
    return tuple(
        Offer(
            provider,
            "r",
            f"r-{zone}",
            f"m{size}",
            purchase,
            (50_000 + 40_000 * size) * (10 - 3 * spot) // 10,
            Hardware(cpus=4 * (size + 1), memory_mib=8192 * (size + 1)),
        )
        for zone in range(5)
        for size in range(5)
        for spot, purchase in enumerate((Purchase.ON_DEMAND, Purchase.SPOT))
    )


class Bench:
    """A world with `queued` waiting jobs and `LIVE` runners, and the facts of its next ticks."""

    def __init__(self, queued: int) -> None:
        self.dice, self.now = random.Random(1), NOW
        self.policy, self.world, self.job_id = policy(), World("bench"), 0
        self.tell(m.LeadershipTaken(NOW, (), "bench"), m.PolicyActivated(NOW, "bench"))
        for name in self.policy.providers:
            self.tell(m.OffersListed(NOW, name, offers(name)))
        while len(self.world.runners) < LIVE:
            self.tell(*(self.queued(n % TYPES) for n in range(LIVE // 2)))
            plan(self.world, self.policy, self.now)
        for runner in list(self.world.runners.values()):
            self.tell(m.MachineCreated(NOW, runner.id, f"i-{runner.id}"))
            self.tell(m.StageReported(NOW, runner.id, m.Stage.BOOTED))
            key = next(iter(self.world.queued[runner.pool]))
            self.tell(self.started(key, runner.id))
        waiting = [self.world.jobs[key] for queue in self.world.queued.values() for key in queue]
        for job in waiting[: max(0, len(waiting) - queued)]:
            self.tell(self.ended(job, "cancelled", ""))
        while sum(map(len, self.world.queued.values())) < queued:
            self.tell(*(self.queued(self.dice.randrange(TYPES)) for _ in range(1000)))
            plan(self.world, self.policy, self.now)

    def tell(self, *events: m.Event) -> None:
        for event in events:
            evolve(self.world, event, self.now)

    def queued(self, number: int) -> m.JobReported:
        self.job_id += 1
        labels = ("self-hosted", "linux", f"t{number}")
        repository = f"org/repo{self.job_id % REPOSITORIES}"
        return m.JobReported(
            self.now, JobState.QUEUED, self.job_id, self.job_id // 20, 1, repository, labels, created_ms=self.now
        )

    def ended(self, job: Job, conclusion: str, runner_name: str) -> m.JobReported:
        return m.JobReported(
            self.now,
            JobState.COMPLETED,
            job.job_id,
            job.run_id,
            1,
            job.repository,
            job.labels,
            conclusion=conclusion,
            runner_name=runner_name,
        )

    def started(self, key: str, runner_id: str) -> m.JobReported:
        job = self.world.jobs[key]
        return m.JobReported(
            self.now,
            JobState.IN_PROGRESS,
            job.job_id,
            job.run_id,
            1,
            job.repository,
            job.labels,
            runner_name=f"bench-{runner_id}",
        )

    def facts(self) -> list[m.Event]:
        """100 facts as a busy second brings them: as many jobs come as go, as many machines as end."""
        world, dice, found = self.world, self.dice, list[m.Event]()
        found += [self.queued(dice.randrange(TYPES)) for _ in range(CANCELLED + LIVES)]
        queues = list(world.queued.values())
        heads = dict.fromkeys(next(iter(dice.choice(queues))) for _ in range(2 * CANCELLED))
        found += [self.ended(world.jobs[key], "cancelled", "") for key in list(heads)[:CANCELLED]]
        for runner_id in dice.sample(list(world.by_state[RunnerState.BUSY]), LIVES):
            found.append(self.ended(world.jobs[world.runners[runner_id].running], "success", f"bench-{runner_id}"))
        found += [m.RegistrationDeleted(self.now, runner_id) for runner_id in self.some(RunnerState.LEAVING)]
        for runner_id in self.some(RunnerState.STOPPING):
            found.append(m.StopAccepted(self.now, runner_id))
            found += [m.MachineAbsent(self.now + n, runner_id) for n in (1_000, 20_000)]
        for runner_id in self.some(RunnerState.PLANNED):
            found.append(m.MachineCreated(self.now, runner_id, f"i-{runner_id}"))
            found.append(m.StageReported(self.now, runner_id, m.Stage.BOOTED))
        for runner_id in self.some(RunnerState.REGISTERING):
            queue = world.queued.get(world.runners[runner_id].pool)
            idle = m.StageReported(self.now, runner_id, m.Stage.REGISTERED)
            found.append(self.started(next(reversed(queue)), runner_id) if queue else idle)
        return found

    def some(self, state: RunnerState) -> list[str]:
        """As many as end in a tick, the longest in this state first."""
        return list(islice(self.world.by_state[state], LIVES))

    def tick(self) -> float:
        """Milliseconds of one tick."""
        self.now += 1_000
        events = self.facts()
        began = time.process_time()
        for event in events:
            evolve(self.world, event, self.now)
        plan(self.world, self.policy, self.now)
        pending(self.world, self.now)
        return (time.process_time() - began) * 1000


def measure(queued: int, ticks: int) -> dict[str, float]:
    bench = Bench(queued)
    for _ in range(20):
        bench.tick()
    times = sorted(bench.tick() for _ in range(ticks))
    return {
        "queued": sum(map(len, bench.world.queued.values())),
        "live": bench.world.live_count(""),
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[int(0.99 * len(times))], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=200, help="ticks measured at each size (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    collector.spare_the_old()
    found = []
    for size in SIZES:
        found.append(measure(size, args.ticks))
        print(found[-1], file=sys.stderr)
    flat = round(found[-1]["p50_ms"] / found[0]["p50_ms"], 2)
    if args.json:
        print(json.dumps({"sizes": found, "growth_p50": flat}, indent=2))
    else:
        print(f"p50 at {SIZES[-1]:,} queued is {flat} x that at {SIZES[0]:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
