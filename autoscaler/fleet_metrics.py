"""The samples of every fleet metric, from one view. Names and labels are those of `metrics.TABLE`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autoscaler.views.funds import fund_closed
from autoscaler.views.jobs_and_runners import View, job_state, unfinished
from autoscaler.views.values import UNROUTABLE
from scheduling import ledger
from scheduling.lifecycle import LIVE, JobState
from scheduling.model import FundAccount, MicroUSD

Sample = tuple[str, tuple[str, ...], float]


def samples(view: View) -> Iterator[Sample]:
    """(metric, label values, value). Prometheus knows only floats: the one place where money is one."""
    yield "autoscaler_policy_info", (view.policy.hash,), 1
    yield from _jobs(view)
    yield from _runners(view)
    for name in view.policy.funds:
        yield from _fund(view, name)
    for provider, cost in view.world.totals.cost_by_provider.items():
        yield "autoscaler_cost_usd_total", (provider,), _usd(cost)
    cooling = Counter(c.scope.partition(":")[0] for c in view.world.cooldowns.values() if c.until_ms > view.now_ms)
    for scope in ("offer", "region", "provider", "image"):
        yield "autoscaler_cooldowns", (scope,), cooling[scope]
    for target in view.world.switches:
        yield "autoscaler_switches", (target,), 1
    for budget in view.budgets:
        labels = (budget.app, budget.owner, budget.resource)
        yield "autoscaler_github_budget", labels, budget.remaining
        yield "autoscaler_github_budget_limit", labels, budget.limit


def _jobs(view: View) -> Iterator[Sample]:
    world = view.world
    counts = Counter((job_state(job), job.runner_type) for job in unfinished(world))
    for labels, count in counts.items():
        yield "autoscaler_jobs", labels, count
    yield "autoscaler_unroutable_jobs", (), counts[UNROUTABLE, ""]
    yield "autoscaler_blocked_jobs", (), counts["blocked", ""]
    oldest_ms = min(
        (world.jobs[next(iter(queue))].queued_ms for queue in world.queued.values()), default=view.now_ms
    )
    yield "autoscaler_oldest_queued_seconds", (), max(0, view.now_ms - oldest_ms) / 1000
    rule = view.policy.on_deadline
    late_ms = view.now_ms - rule.after_ms if rule else 0
    late = sum(job.state is JobState.QUEUED and job.queued_ms <= late_ms for job in unfinished(world))
    yield "autoscaler_jobs_past_deadline", (), late
    yield "autoscaler_jobs_ended_total", ("completed",), world.totals.completed
    yield "autoscaler_jobs_ended_total", ("cancelled",), world.totals.cancelled


def _runners(view: View) -> Iterator[Sample]:
    world, policy, totals = view.world, view.policy, view.world.totals
    runners = (world.runners[key] for state in LIVE for key in world.by_state[state])
    counts = Counter((each.state.value, each.offer.provider, each.runner_type) for each in runners)
    for labels, count in counts.items():
        yield "autoscaler_runners", labels, count
    limits = {"fleet": policy.max_runners}
    limits |= {f"provider:{name}": provider.max_runners for name, provider in policy.providers.items()}
    limits |= {f"type:{name}": rtype.max_runners for name, rtype in policy.runner_types.items()}
    for scope, limit in limits.items():
        yield "autoscaler_runners_live", (scope,), world.live_count("" if scope == "fleet" else scope)
        if limit is not None:
            yield "autoscaler_runners_limit", (scope,), limit
    yield "autoscaler_runners_launched_total", (), totals.launched
    yield "autoscaler_launches_failed_total", (), totals.failed_launches
    yield "autoscaler_runners_reaped_unused_total", (), totals.reaped_unused


def _fund(view: View, name: str) -> Iterator[Sample]:
    fund, account = view.policy.funds[name], view.world.funds.get(name) or FundAccount(name)
    period = ledger.period(fund, view.now_ms)
    yield "autoscaler_fund_limit_usd", (name,), _usd(fund.limit)
    yield "autoscaler_fund_left_usd", (name,), _usd(max(0, ledger.available(fund, account, view.now_ms)))
    yield "autoscaler_fund_held_usd", (name,), _usd(account.held.get(period, 0))
    yield "autoscaler_fund_settled_usd", (name,), _usd(account.settled.get(period, 0))
    yield "autoscaler_fund_overrun_usd", (name,), _usd(ledger.overrun(fund, account, period))
    yield "autoscaler_fund_open", (name,), not fund_closed(fund, account, view.now_ms)


def _usd(amount: MicroUSD) -> float:
    return amount / 1_000_000
