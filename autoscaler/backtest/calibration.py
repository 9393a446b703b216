"""`backtest --compare-live`: what the simulation makes of a recorded window beside what happened in it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from autoscaler.backtest import tally as t
from autoscaler.backtest.recording import UNKNOWN, Recording
from autoscaler.backtest.trial import Trial
from autoscaler.sandbox.summary import quantiles
from autoscaler.views.values import usd


def comparison(recorded: Recording, trial: Trial) -> dict[str, Any]:
    """Waiting of the jobs that began in both, and cost, each `{recorded, simulated}`.

    Cost is null where the recording tells of no machine: `serve --record` on the leader writes them, GitHub's
    history has none. The policy must be the one that ruled in the window.
    """
    both = [
        (recorded.waited(row), wait)
        for row, wait in enumerate(trial.tally.wait)
        if wait != t.NONE and recorded.waited(row) != UNKNOWN
    ]
    document: dict[str, Any] = {
        "jobs": len(both),
        "queue_seconds": {
            "recorded": quantiles(sorted(max(0, actual) for actual, _ in both)),
            "simulated": quantiles(sorted(wait for _, wait in both)),
        },
        "cost_usd": None,
    }
    live = recorded.live
    if live.machines:
        costs = trial.document["cost_usd"]
        document["cost_usd"] = {
            "recorded": usd(live.total),
            "simulated": str(Decimal(costs["cash"]) + Decimal(costs["credits"])),
            "by_provider": _sides({name: usd(cost) for name, cost in live.cost.items()}, costs["by_provider"]),
            "by_fund": _sides({name: usd(cost) for name, cost in live.paid.items() if name}, costs["by_fund"]),
            "machines": {"recorded": live.machines, "simulated": trial.document["runners"]["launched"]},
        }
    return document


def _sides(recorded: dict[str, str], simulated: dict[str, str]) -> dict[str, dict[str, str]]:
    names = sorted(recorded.keys() | simulated.keys())
    zero = usd(0)
    return {name: {"recorded": recorded.get(name, zero), "simulated": simulated.get(name, zero)} for name in names}
