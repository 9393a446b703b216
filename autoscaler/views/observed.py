"""What `--observe` found: waits and costs of jobs that ran elsewhere, beside what they would have been here."""

from __future__ import annotations

from autoscaler.observed import Instead, Observed, percentile
from autoscaler.views.jobs_and_runners import Document
from autoscaler.views.values import seconds, time, usd, usd_or_none
from scheduling.ledger import usd as short_usd
from scheduling.model import DurationMs


def summary(observed: Observed | None) -> Document | None:
    """None without `--observe`. `refused`: jobs that would have waited on here."""
    if observed is None:
        return None
    types = observed.types.values()
    return {
        "since": time(observed.since_ms),
        "jobs": sum(tally.jobs for tally in types),
        "refused": sum(tally.refused for tally in types),
        "cost_usd": usd(sum(tally.cost for tally in types)),
        "cost_by_provider": {name: usd(cost) for name, cost in sorted(observed.cost_by_provider.items())},
        "cost_by_fund": {name: usd(cost) for name, cost in sorted(observed.cost_by_fund.items()) if name},
        "runner_types": [
            {
                "runner_type": name,
                "jobs": tally.jobs,
                "refused": tally.refused,
                "waited_seconds": {f"p{p}": _seconds(percentile(tally.waited, p)) for p in (50, 90)},
                "expected_seconds": {f"p{p}": _seconds(percentile(tally.expected, p)) for p in (50, 90)},
                "cost_usd": usd(tally.cost),
            }
            for name, tally in sorted(observed.types.items(), key=lambda item: (-item[1].jobs, item[0]))
        ],
    }


def instead_document(instead: Instead) -> Document:
    """What one job would have been here; `cost_usd` null until it has ended."""
    return {
        "runner_type": instead.runner_type,
        "offer": instead.offer,
        "fund": instead.fund,
        "price_usd_per_hour": usd(instead.price) if instead.offer else None,
        "waited_seconds": _seconds(instead.waited_ms),
        "expected_seconds": _seconds(instead.wait_ms) if instead.offer else None,
        "cost_usd": usd_or_none(instead.cost),
        "refusal": instead.refusal,
    }


def sentence(instead: Instead) -> str:
    """To follow the one that says where it really ran."""
    if not instead.offer:
        return f"Here it would have gone on waiting: {instead.refusal}."
    payer = f"paid by {instead.fund}" if instead.fund else "for free"
    text = f"Here it would have begun after about {seconds(instead.wait_ms):.0f} s on {instead.offer}, {payer}"
    if instead.waited_ms is not None:
        text += f" (it waited {seconds(instead.waited_ms):.0f} s)"
    return text + (f", for {short_usd(instead.cost)}." if instead.cost else ".")


def _seconds(ms: DurationMs | None) -> float | None:
    return None if ms is None else seconds(ms)
