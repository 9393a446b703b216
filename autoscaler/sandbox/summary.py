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

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from scheduling.model import DurationMs, MicroUSD, UnixMs

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}
TEN_CENTS = Decimal("0.1")


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
    """The JSON of `demo --exit --json` and `backtest --json`."""
    fates = Counter(job.fate for job in outcome.jobs)
    ran = Counter(job.provider for job in outcome.jobs if job.fate == "completed" and job.provider)
    costs, runners = outcome.costs, outcome.runners
    return {
        "jobs": {
            "total": len(outcome.jobs),
            **{fate: fates[fate] for fate in ("completed", "cancelled", "lost", "unroutable", "waiting")},
            "by_provider": dict(sorted(ran.items())),
        },
        "runners": {name: getattr(runners, name) for name in RunnerCounts.__slots__},
        "queue_seconds": waits(outcome.jobs),
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
        "wall_seconds": round(outcome.wall_ms / 1000, 3),
        "simulated_seconds": round(outcome.simulated_ms / 1000, 3),
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
    found = sorted(job.started_ms - job.queued_ms for job in jobs if job.started_ms)
    return {
        name: round(max(0, found[ceil(share * len(found)) - 1]) / 1000, 3) if found else None
        for name, share in QUANTILES.items()
    }


def usd(amount: MicroUSD) -> str:
    """`1.500000`: dollars with six places."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    return f"{sign}{amount // 1_000_000}.{amount % 1_000_000:06d}"


# ---- for people ------------------------------------------------------------------------------------------------


def page(found: Mapping[str, Any], funds: Sequence[FundLine], why: RenderableType = "") -> RenderableType:
    """The document as a terminal shows it; `why` is one job's story."""
    parts: list[RenderableType] = [_headline(found), _providers(found), _waiting(found), _bill(found)]
    parts += [_funds(found, funds), _machines(found)]
    return Group(*(line for part in parts for line in (part, "")), *([why] if why else []))


def show(renderable: RenderableType) -> None:
    """On stdout."""
    Console(highlight=False).print(renderable)


def _headline(found: Mapping[str, Any]) -> Text:
    jobs, good = found["jobs"], healthy(found)
    text = Text("✔ " if good else "✘ ", style="bold green" if good else "bold red")
    text.append(f"{jobs['completed']} of {jobs['total']} jobs ran", style="bold")
    text.append(f"  ·  {span(found['simulated_seconds'])} of CI in {span(found['wall_seconds'])}", style="dim")
    for fate in ("cancelled", "lost", "unroutable", "waiting"):
        if jobs[fate]:
            text.append(f"  ·  {jobs[fate]} {fate}", style="yellow" if fate == "cancelled" else "bold red")
    return text


def _providers(found: Mapping[str, Any]) -> Table:
    jobs, costs = found["jobs"]["by_provider"], found["cost_usd"]["by_provider"]
    table = _table("Where they ran", "provider", ">jobs", "", ">cost")
    most = max(jobs.values(), default=1)
    for name, count in sorted(jobs.items(), key=lambda item: -item[1]):
        cost = Decimal(costs[name])
        table.add_row(
            name, str(count), Text("█" * ceil(24 * count / most), style="cyan"), dollars(cost) if cost else "free"
        )
    return table


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
    costs = {name: Decimal(value) for name, value in found["cost_usd"].items() if isinstance(value, str)}
    text = Text("The bill  ", style="bold")
    text.append(f"{dollars(costs['cash'])} cash", style="bold green")
    text.append(f" + {dollars(costs['credits'])} of credits", style="not bold")
    text.append(f" (booting {dollars(costs['boot'])}, idle {dollars(costs['idle'])})", style="not bold dim")
    text.append(f"\n          {dollars(costs['list'])}", style="not bold")
    text.append(" at the cheapest list price, for the jobs' own time", style="not bold dim")
    for name, words in (("overrun", "spent beyond a fund"), ("expired_credits", "of credits expired unused")):
        if costs[name]:
            text.append(f"\n          {dollars(costs[name])} {words}", style="bold red")
    return text


def _funds(found: Mapping[str, Any], funds: Sequence[FundLine]) -> Table:
    spent = found["cost_usd"]["by_fund"]
    table = _table("Whose money", "fund", ">spent here", ">left", ">of", "ends")
    for fund in funds:
        ends = f"{datetime.fromtimestamp(fund.until_ms / 1000, UTC):%d %b %Y}" if fund.until_ms else "monthly"
        table.add_row(
            fund.name,
            dollars(Decimal(spent.get(fund.name, 0))),
            f"${Decimal(fund.left) / 1_000_000:,.2f}",
            f"${Decimal(fund.limit) / 1_000_000:,.0f}",
            ends,
        )
    return table


def _machines(found: Mapping[str, Any]) -> Text:
    runners = found["runners"]
    left = runners["leaked_instances"], runners["leaked_registrations"]
    text = Text("Machines  ", style="bold")
    text.append(
        f"{runners['launched']} launched, {runners['failed_launches']} launches failed, "
        f"{runners['reaped_unused']} removed unused; ",
        style="not bold",
    )
    if any(left):
        return text.append(f"LEFT BEHIND: {left[0]} machines, {left[1]} registrations", style="bold red")
    return text.append("nothing left behind", style="not bold green")


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
    )
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return table


def dollars(amount: Decimal) -> str:
    """For people: cents, and more places where there are no cents."""
    return f"${amount:,.2f}" if amount >= TEN_CENTS or not amount else f"${amount:,.4f}"


def span(seconds: float) -> str:
    """`41 s`, `3 min 20 s`, `1 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
