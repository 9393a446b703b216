"""What this scheduler spends beyond the cash that had to be spent, over seeded months; and what others would.

    python -m benchmarks.regret [--seeds N] [--scenario NAME] [--jobs PROCESSES] [--json]

Regret share = (cash - bound) / (cash of cheapest list price - bound): 0 is clairvoyant, 1 is no better than the
price list. The bound is a linear programme (`regret_bound`), this scheduler runs through the real evolve and plan
(`regret_drive`), the others are flattered (`regret_rivals`). Needs SciPy (extra `planner`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from autoscaler.planner.outlook import outlook
from autoscaler.planner.planner import value_funds
from benchmarks.regret_bound import least_cash
from benchmarks.regret_drive import Drive, Outcome
from benchmarks.regret_month import SCENARIOS, month
from benchmarks.regret_rivals import STRATEGIES, Rival
from scheduling.messages import FundsValued
from scheduling.model import UnixMs
from scheduling.policy import Policy
from scheduling.world import World

OURS, CHEAPEST = "this scheduler", "cheapest list price"
ABUNDANT = "abundant"


def planner(world: World, policy: Policy, now_ms: UnixMs) -> FundsValued:
    return value_funds(outlook(world, policy, now_ms), now_ms)


def measure(task: tuple[str, int]) -> dict[str, Any]:
    """One month: the bound and every strategy."""
    scenario, seed = task
    began = time.monotonic()
    found = month(scenario, seed)
    outcomes: dict[str, Outcome] = {OURS: Drive(found, planner).run()}
    outcomes |= {name: Rival(found, order).run() for name, order in STRATEGIES.items()}
    bound = least_cash(found) / 1e6
    cheapest = outcomes[CHEAPEST]
    rows = {}
    for name, outcome in outcomes.items():
        cash, span = outcome.cash / 1e6, cheapest.cash / 1e6 - bound
        rows[name] = {
            "cash": round(cash),
            "credit": round(outcome.credit / 1e6),
            "regret": round((cash - bound) / span, 3) if span > 0 else None,
            "p99_s": round(outcome.wait_ms(0.99) / 1000),
            "unfinished": outcome.unfinished,
            "unspent": round(sum(outcome.left.values()) / 1e6),
            "in_holds": round(sum(outcome.held.values()) / 1e6),
            "overrun": round(outcome.overrun / 1e6, 2),
        }
    bill = (cheapest.cash + cheapest.credit) / 1e6
    return {
        "scenario": scenario, "seed": seed, "bound": round(bound), "list_bill": round(bill), "strategies": rows,
        "seconds": round(time.monotonic() - began),
    }  # fmt: skip


def summary(months: list[dict[str, Any]]) -> dict[str, Any]:
    """Over the months whose bound is above zero; the abundant ones apart."""
    judged = [one for one in months if one["scenario"] != ABUNDANT and one["bound"] > 0]
    abundant = [one for one in months if one["scenario"] == ABUNDANT]
    rows = {}
    for name in months[0]["strategies"] if judged else ():
        mine = [one["strategies"][name] for one in judged]
        regrets = sorted(row["regret"] for row in mine if row["regret"] is not None)
        rows[name] = {
            "median_regret": statistics.median(regrets),
            "worst_regret": regrets[-1],
            "cash_by_bound": round(
                statistics.median(r["cash"] / o["bound"] for r, o in zip(mine, judged, strict=True)), 2
            ),
            "worst_p99_s": max(row["p99_s"] for row in mine),
            "unfinished": sum(row["unfinished"] for row in mine),
        }
    cash_share = [one["strategies"][OURS]["cash"] / one["list_bill"] for one in abundant]
    return {
        "months": len(judged),
        "strategies": rows,
        "abundant_cash_of_list_bill": round(max(cash_share), 4) if cash_share else None,
        "stranded": {
            "unspent": sum(one["strategies"][OURS]["unspent"] for one in judged),
            "in_holds": sum(one["strategies"][OURS]["in_holds"] for one in judged),
        },
    }


def show(one: dict[str, Any]) -> str:
    mine = one["strategies"]
    others = "  ".join(f"{name} {row['cash']:,}" for name, row in mine.items() if name != OURS)
    ours = mine[OURS]
    return (
        f"{one['scenario']}/{one['seed']}: cash ${ours['cash']:,}, bound {one['bound']:,}, "
        f"regret {ours['regret']}, p99 {ours['p99_s']} s ({others}; {one['seconds']} s)"
    )


def table(found: dict[str, Any]) -> Iterable[str]:
    yield f"{'strategy':26}{'median regret':>14}{'worst':>8}{'cash/bound':>12}{'p99 wait':>10}"
    for name, row in found["strategies"].items():
        yield (
            f"{name:26}{row['median_regret']:14.3f}{row['worst_regret']:8.3f}{row['cash_by_bound']:12.2f}"
            f"{row['worst_p99_s']:8} s"
        )
    share = found["abundant_cash_of_list_bill"]
    if share is not None:
        yield f"abundant: cash is {share:.2%} of the list bill"
    stranded = found["stranded"]
    yield f"credit left at the funds' ends ${stranded['unspent']:,}, of it ${stranded['in_holds']:,} in holds"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="months, round the scenarios (default %(default)s)")
    parser.add_argument("--scenario", choices=(*SCENARIOS, ABUNDANT), help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    names = [args.scenario] if args.scenario else list(SCENARIOS)
    tasks = [(names[seed % len(names)], seed) for seed in range(args.seeds)]
    if not args.scenario:
        tasks.append((ABUNDANT, 0))
    months = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for one in pool.map(measure, tasks):
            months.append(one)
            print(show(one), file=sys.stderr, flush=True)
    found = summary(months)
    print(json.dumps({"summary": found, "months": months}, indent=2) if args.json else "\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
