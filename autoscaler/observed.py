"""`--observe`: what this fleet would have done, beside what really happened to jobs that ran on others' runners.

Kept in memory by the replica that leads: a restart or another leader begins anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduling import learning, ledger, placement
from scheduling import messages as m
from scheduling.lifecycle import JobState, RunnerState
from scheduling.matching import matcher
from scheduling.model import DurationMs, Job, MicroUSD, Pool, Runner, UnixMs
from scheduling.placement import Wish
from scheduling.policy import Policy
from scheduling.world import World, job_key

KEPT_JOBS = 10_000
KEPT_WAITS = 2_000
"""The latest waits of a runner type, which its percentiles are of."""


@dataclass(slots=True)
class Instead:
    """One job that ran elsewhere: how long it really waited, and what this fleet would have done with it.

    Without an `offer` it would have gone on waiting, for the reason in `refusal`. `cost` is known at its end: the
    offer's price for the boot and the job's real length.
    """

    runner_type: str
    waited_ms: DurationMs | None
    offer: str = ""
    fund: str = ""
    price: MicroUSD = 0
    boot_ms: DurationMs = 0
    wait_ms: DurationMs = 0
    refusal: str = ""
    cost: MicroUSD | None = None

    @property
    def provider(self) -> str:
        return self.offer.partition("/")[0]


@dataclass(slots=True)
class Tally:
    """Jobs of one runner type: `refused` of them would have waited on. Waits are those of `KEPT_WAITS` jobs."""

    jobs: int = 0
    refused: int = 0
    waited: deque[DurationMs] = field(default_factory=lambda: deque(maxlen=KEPT_WAITS))
    expected: deque[DurationMs] = field(default_factory=lambda: deque(maxlen=KEPT_WAITS))
    cost: MicroUSD = 0


class Observed:
    """Everything compared since this replica began to lead."""

    def __init__(self) -> None:
        self.since_ms: UnixMs = 0
        self.types: dict[str, Tally] = {}
        self.cost_by_provider: dict[str, MicroUSD] = {}
        self.cost_by_fund: dict[str, MicroUSD] = {}
        self.jobs: dict[str, Instead] = {}  # the latest, by key

    def hear(self, event: m.Event, world: World, policy: Policy, now_ms: UnixMs) -> None:
        """Take in a fact that `world` has evolved: what begins or ends elsewhere is compared."""
        self.since_ms = self.since_ms or now_ms
        if not isinstance(event, m.JobReported):
            return
        job = world.jobs.get(job_key(event.job_id, event.run_attempt))
        if job is None or not job.runner_name or job.runner or event.state is not job.state:
            return
        instead = self.jobs.get(job.key) or self._begun(job, world, policy, now_ms)
        if instead and instead.offer and instead.cost is None and job.state is JobState.COMPLETED:
            instead.cost = ledger.price_of(instead.price, instead.boot_ms + job.completed_ms - job.started_ms)
            self._add_cost(instead, instead.cost)

    def _begun(self, job: Job, world: World, policy: Policy, now_ms: UnixMs) -> Instead | None:
        """None for a job that is not this fleet's to run."""
        pools = [world.pools[job.pool]] if job.pool in world.pools else matcher(policy).route(job, now_ms).pools
        if not pools or pools[0].runner_type not in policy.runner_types:
            return None
        waited_ms = max(0, job.started_ms - job.queued_ms) if job.queued_ms else None
        instead = Instead(pools[0].runner_type, waited_ms)
        if planned := _planned(world, job):
            self._choose(instead, world, planned.offer.key, planned.fund, planned.price)
            instead.wait_ms += max(0, planned.planned_ms - (job.queued_ms or planned.planned_ms))
        else:
            self._rank(instead, job, pools[0], world, policy, now_ms)
        self.jobs[job.key] = instead
        while len(self.jobs) > KEPT_JOBS:
            del self.jobs[next(iter(self.jobs))]
        tally = self.types.setdefault(instead.runner_type, Tally())
        tally.jobs += 1
        tally.refused += not instead.offer
        if waited_ms is not None:
            tally.waited.append(waited_ms)
        if instead.offer:
            tally.expected.append(instead.wait_ms)
        return instead

    def _rank(self, instead: Instead, job: Job, pool: Pool, world: World, policy: Policy, now_ms: UnixMs) -> None:
        """The job began before a round of planning saw it: what that would have chosen."""
        taste, expected_ms = matcher(policy).taste(job), learning.job_ms(world, job)
        wish = Wish(policy.runner_types[pool.runner_type], job.repository, pool.providers, taste, expected_ms)
        verdicts = placement.explain(world, policy, wish, now_ms)
        best = next((verdict for verdict in verdicts if not verdict.refusal), None)
        if best is None:
            instead.refusal = f"{verdicts[0].offer}: {verdicts[0].refusal}"
        else:
            self._choose(instead, world, best.offer, best.fund, best.price or 0)

    def _choose(self, instead: Instead, world: World, offer: str, fund: str, price: MicroUSD) -> None:
        instead.offer, instead.fund, instead.price = offer, fund, price
        instead.boot_ms = instead.wait_ms = learning.boot_ms(world, offer)

    def _add_cost(self, instead: Instead, cost: MicroUSD) -> None:
        self.types[instead.runner_type].cost += cost
        _add(self.cost_by_provider, instead.provider, cost)
        _add(self.cost_by_fund, instead.fund, cost)


def _planned(world: World, job: Job) -> Runner | None:
    """The launch that stood for this job, or for another of its pool that waits on now."""
    runners = [world.runners[key] for key in world.supply.get(job.pool, ())]
    planned = [runner for runner in runners if runner.state is RunnerState.PLANNED]
    return next((runner for runner in planned if runner.launched_for == job.key), planned[0] if planned else None)


def _add(sums: dict[str, MicroUSD], name: str, amount: MicroUSD) -> None:
    sums[name] = sums.get(name, 0) + amount


def percentile(values: Iterable[DurationMs], percent: int) -> DurationMs | None:
    """Nearest rank; None of nothing."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None
