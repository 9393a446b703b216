"""The figures of a demo from the truth: GitHub's jobs, the accounts' machines, the daemon's ledger."""

from __future__ import annotations

from autoscaler.sandbox.github_records import Job
from autoscaler.sandbox.money import cheapest_list_price, expired
from autoscaler.sandbox.summary import Costs, JobOutcome, Outcome, RunnerCounts
from autoscaler.sandbox.surroundings import Surroundings
from scheduling import ledger
from scheduling.matching import matcher
from scheduling.model import DurationMs, MicroUSD, UnixMs
from scheduling.policy import Policy
from scheduling.world import World


def measure(
    surroundings: Surroundings, world: World, policy: Policy, *, since_ms: UnixMs, wall_ms: DurationMs
) -> Outcome:
    now_ms = surroundings.clock.now_ms()
    jobs = [job for job in surroundings.github.jobs() if matcher(policy).is_ours(job.labels)]
    totals = world.totals
    return Outcome(
        jobs=[_outcome(job, surroundings, policy) for job in jobs],
        runners=RunnerCounts(
            launched=totals.launched,
            failed_launches=totals.failed_launches,
            reaped_unused=totals.reaped_unused,
            leaked_instances=surroundings.left_behind(),
            leaked_registrations=len(surroundings.github.leaked_registrations(f"{world.fleet}-")),
        ),
        costs=Costs(
            list=sum(_list_cost(job, world, policy) for job in jobs),
            by_provider=totals.cost_by_provider,
            by_fund={name: sum(account.settled.values()) for name, account in world.funds.items()},
            cash_funds=frozenset(fund.name for fund in policy.funds.values() if fund.cash),
            expired_credits=expired(world, policy, now_ms),
            boot=totals.boot,
            idle=totals.idle,
            overrun=ledger.overrun_of_all(policy.funds, world.funds),
        ),
        wall_ms=wall_ms,
        simulated_ms=now_ms - since_ms,
    )


def _outcome(job: Job, surroundings: Surroundings, policy: Policy) -> JobOutcome:
    return JobOutcome(
        state=job.state,
        conclusion=job.conclusion,
        provider=surroundings.machines.providers.get(job.runner_name, ""),
        queued_ms=job.queued_ms,
        started_ms=job.started_ms,
        unroutable=not matcher(policy).types(_folded(job)),
    )


def _list_cost(job: Job, world: World, policy: Policy) -> MicroUSD:
    """The job's own time at the cheapest list price that would have served it."""
    if not job.started_ms or not job.completed_ms:
        return 0
    return ledger.price_of(
        cheapest_list_price(matcher(policy).types(_folded(job)), world), job.completed_ms - job.started_ms
    )


def _folded(job: Job) -> tuple[str, ...]:
    return tuple(sorted(job.wanted))
