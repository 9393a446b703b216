"""The figures of a demo from the truth: GitHub's jobs, the accounts' machines, the daemon's ledger."""

from __future__ import annotations

from autoscaler.sandbox.github_records import Job
from autoscaler.sandbox.summary import Costs, FundLine, JobOutcome, Outcome, RunnerCounts
from autoscaler.sandbox.surroundings import Surroundings
from scheduling import ledger
from scheduling.matching import fits, matcher, selected
from scheduling.model import DurationMs, MicroUSD, UnixMs
from scheduling.policy import Policy, RunnerType
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
            expired_credits=sum(_expired(name, world, policy, now_ms) for name in policy.funds),
            boot=totals.boot,
            idle=totals.idle,
            overrun=sum(account.overrun for account in world.funds.values()),
        ),
        wall_ms=wall_ms,
        simulated_ms=now_ms - since_ms,
    )


def fund_lines(world: World, policy: Policy, now_ms: UnixMs) -> list[FundLine]:
    """What is left of each fund, without what is held; credit that ends first comes first, cash last."""
    lines = []
    for fund in sorted(policy.funds.values(), key=lambda fund: (fund.cash, fund.until_ms or now_ms * 2)):
        account = world.funds.get(fund.name)
        period = ledger.period(fund, now_ms)
        held = account.held.get(period, 0) if account else 0
        left = ledger.available(fund, account, now_ms) + held
        lines.append(FundLine(fund.name, fund.limit, left, fund.until_ms or 0))
    return lines


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
    prices = [price for rtype in matcher(policy).types(_folded(job)) for price in _list_prices(rtype, world)]
    return ledger.price_of(min(prices, default=0), job.completed_ms - job.started_ms)


def _list_prices(rtype: RunnerType, world: World) -> list[MicroUSD]:
    return [
        offer.list_price
        for offers in world.offers.values()
        for offer in offers
        if offer.list_price is not None
        and selected(rtype, offer)
        and not fits(rtype.hardware, offer.hardware, offer.elastic_disk)
    ]


def _expired(name: str, world: World, policy: Policy, now_ms: UnixMs) -> MicroUSD:
    fund, account = policy.funds[name], world.funds.get(name)
    if fund.cash or fund.until_ms is None or now_ms < fund.until_ms or account is None:
        return 0
    return max(0, fund.limit - ledger.used(account, ""))


def _folded(job: Job) -> tuple[str, ...]:
    return tuple(sorted(job.wanted))
