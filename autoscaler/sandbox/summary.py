"""What became of the jobs and what it cost: one JSON document, and the same on a terminal. Pure.

Shared by `demo` and `backtest`. Money is integer micro-dollars here and a decimal string in the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.terminal import dollars, span, table
from scheduling.model import DurationMs, MicroUSD, UnixMs

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job of ours. `provider` is the one that ran it, or empty; times are 0 where it did not come to that."""

    state: str
    conclusion: str
    provider: str
    queued_ms: UnixMs
    started_ms: UnixMs
    unroutable: bool = False

    @property
    def fate(self) -> str:
        """The one of the document's five counts that it belongs to."""
        if self.state != "completed":
            if self.unroutable:
                return "unroutable"
            return "waiting"
        if self.conclusion == "cancelled":
            return "cancelled"
        return "completed" if self.started_ms else "lost"


@dataclass(frozen=True, slots=True)
class RunnerCounts:
    launched: int = 0
    failed_launches: int = 0
    reaped_unused: int = 0
    leaked_instances: int = 0
    leaked_registrations: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """`list`: the same jobs at the cheapest eligible list price. `boot` and `idle` are parts of the whole."""

    list: MicroUSD = 0
    by_provider: Mapping[str, MicroUSD] = field(default_factory=dict)
    by_fund: Mapping[str, MicroUSD] = field(default_factory=dict)
    cash_funds: frozenset[str] = frozenset()
    expired_credits: MicroUSD = 0
    boot: MicroUSD = 0
    idle: MicroUSD = 0
    overrun: MicroUSD = 0

    @property
    def cash(self) -> MicroUSD:
        return sum(cost for fund, cost in self.by_fund.items() if fund in self.cash_funds)

    @property
    def credits(self) -> MicroUSD:
        return sum(cost for fund, cost in self.by_fund.items() if fund not in self.cash_funds)


@dataclass(frozen=True, slots=True)
class FundLine:
    """What is left of a fund, for the terminal. `until_ms` 0: it does not end."""

    name: str
    limit: MicroUSD
    left: MicroUSD
    until_ms: UnixMs = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    jobs: Sequence[JobOutcome]
    runners: RunnerCounts
    costs: Costs
    wall_ms: DurationMs
    simulated_ms: DurationMs


def document(outcome: Outcome) -> dict[str, Any]:
    """The JSON of `demo --exit --json`."""
    fates = Counter(job.fate for job in outcome.jobs)
    ran = Counter(job.provider for job in outcome.jobs if job.fate == "completed" and job.provider)
    return figures(
        fates, ran, waits(outcome.jobs), outcome.runners, outcome.costs, outcome.wall_ms, outcome.simulated_ms
    )


def figures(
    fates: Mapping[str, int],
    ran: Mapping[str, int],
    queue_seconds: Mapping[str, float | None],
    runners: RunnerCounts,
    costs: Costs,
    wall_ms: DurationMs,
    simulated_ms: DurationMs,
) -> dict[str, Any]:
    """The document that `demo` and `backtest` share. `fates` by the names below; `ran`: completed by provider."""
    fates = Counter(fates)
    return {
        "jobs": {
            "total": fates.total(),
            **{fate: fates[fate] for fate in ("completed", "cancelled", "lost", "unroutable", "waiting")},
            "by_provider": dict(sorted(ran.items())),
        },
        "runners": {name: getattr(runners, name) for name in RunnerCounts.__slots__},
        "queue_seconds": dict(queue_seconds),
        "cost_usd": {
            **{
                name: usd(getattr(costs, name))
                for name in ("list", "cash", "credits", "expired_credits", "boot", "idle", "overrun")
            },
            "by_provider": {
                name: usd(costs.by_provider.get(name, 0)) for name in sorted({*ran, *costs.by_provider})
            },
            "by_fund": {name: usd(cost) for name, cost in sorted(costs.by_fund.items()) if cost},
        },
        "wall_seconds": round(wall_ms / 1000, 3),
        "simulated_seconds": round(simulated_ms / 1000, 3),
    }


def healthy(found: Mapping[str, Any]) -> bool:
    """Whether every job of the document ran, nothing was left behind and no fund was overdrawn."""
    jobs, runners = found["jobs"], found["runners"]
    return bool(
        jobs["completed"] + jobs["cancelled"] == jobs["total"]
        and not runners["leaked_instances"]
        and not runners["leaked_registrations"]
        and not Decimal(found["cost_usd"]["overrun"])
    )


def waits(jobs: Sequence[JobOutcome]) -> dict[str, float | None]:
    """Seconds from queued to in progress of the jobs that started, by nearest rank; None without any."""
    return quantiles(sorted(job.started_ms - job.queued_ms for job in jobs if job.started_ms))


def quantiles(found: Sequence[DurationMs]) -> dict[str, float | None]:
    """Seconds by nearest rank of sorted milliseconds; None without any."""
    return {
        name: round(max(0, found[ceil(share * len(found)) - 1]) / 1000, 3) if found else None
        for name, share in QUANTILES.items()
    }


def usd(amount: MicroUSD) -> str:
    """`1.500000`: dollars with six places."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    return f"{sign}{amount // 1_000_000}.{amount % 1_000_000:06d}"


# ---- for people ------------------------------------------------------------------------------------------------


def page(
    found: Mapping[str, Any], funds: Sequence[FundLine], why: RenderableType = "", interrupted: bool = False
) -> RenderableType:
    """The document as a terminal shows it; `why` is one job's story. `interrupted`: what still runs is no leak."""
    parts: list[RenderableType] = [_headline(found, interrupted), _providers(found), _waiting(found), _bill(found)]
    parts += [_funds(found, funds), _machines(found, interrupted)]
    return Group(*(line for part in parts for line in (part, "")), *([why] if why else []))


def _headline(found: Mapping[str, Any], interrupted: bool) -> Text:
    jobs = found["jobs"]
    if interrupted:
        text = Text("Stopped: ", style="bold yellow")
    else:
        text = Text("✔ ", style="bold green") if healthy(found) else Text("✘ ", style="bold red")
    text.append(f"{jobs['completed']} of {jobs['total']} jobs ran", style="bold")
    text.append(f"  ·  {span(found['simulated_seconds'])} simulated in {span(found['wall_seconds'])}", style="dim")
    words = {"cancelled": "yellow", "lost": "bold red", "unroutable": "bold red"}
    words |= {} if interrupted else {"waiting": "bold red"}
    for fate, style in words.items():
        if jobs[fate]:
            text.append(f"  ·  {jobs[fate]} {fate}", style=style)
    return text


def _providers(found: Mapping[str, Any]) -> Table:
    jobs, costs = found["jobs"]["by_provider"], found["cost_usd"]["by_provider"]
    rows = table("Where they ran", "provider", ">jobs", "", ">cost")
    most = max(jobs.values(), default=1)
    for name, count in sorted(jobs.items(), key=lambda item: -item[1]):
        cost = costs[name]
        rows.add_row(
            name,
            str(count),
            Text("█" * ceil(24 * count / most), style="cyan"),
            dollars(cost) if Decimal(cost) else "free",
        )
    return rows


def _waiting(found: Mapping[str, Any]) -> Text:
    waited = found["queue_seconds"]
    if waited["max"] is None:
        return Text("No job started.")
    text = Text("From queued to running  ", style="bold")
    names = {"p50": "half within", "p90": "90% within", "p99": "99% within", "max": "longest"}
    return text.append(
        "  ·  ".join(f"{name} {span(waited[key])}" for key, name in names.items()), style="not bold"
    )


def _bill(found: Mapping[str, Any]) -> Text:
    costs = found["cost_usd"]
    text = Text("The bill  ", style="bold")
    text.append(f"{dollars(costs['cash'])} cash", style="bold green")
    text.append(f" + {dollars(costs['credits'])} of credits", style="not bold")
    text.append(f" (booting {dollars(costs['boot'])}, idle {dollars(costs['idle'])})", style="not bold dim")
    text.append(f"\n          {dollars(costs['list'])}", style="not bold")
    text.append(" at the cheapest list price, for the jobs' own time", style="not bold dim")
    for name, words in (("overrun", "spent beyond a fund"), ("expired_credits", "of credits expired unused")):
        if Decimal(costs[name]):
            text.append(f"\n          {dollars(costs[name])} {words}", style="bold red")
    return text


def _funds(found: Mapping[str, Any], funds: Sequence[FundLine]) -> Table:
    spent = found["cost_usd"]["by_fund"]
    rows = table("Whose money", "fund", ">spent here", ">left", ">of", "ends")
    for fund in funds:
        ends = f"{datetime.fromtimestamp(fund.until_ms / 1000, UTC):%d %b %Y}" if fund.until_ms else "monthly"
        rows.add_row(
            fund.name,
            dollars(spent.get(fund.name, "0")),
            f"${Decimal(fund.left) / 1_000_000:,.2f}",
            f"${Decimal(fund.limit) / 1_000_000:,.0f}",
            ends,
        )
    return rows


def _machines(found: Mapping[str, Any], interrupted: bool) -> Text:
    runners = found["runners"]
    left = runners["leaked_instances"], runners["leaked_registrations"]
    text = Text("Machines  ", style="bold")
    text.append(
        f"{runners['launched']} launched, {runners['failed_launches']} launches failed, "
        f"{runners['reaped_unused']} removed unused; ",
        style="not bold",
    )
    if interrupted:
        return text.append(f"{left[0]} were up", style="not bold")
    if any(left):
        return text.append(f"LEFT BEHIND: {left[0]} machines, {left[1]} registrations", style="bold red")
    return text.append("nothing left behind", style="not bold green")
