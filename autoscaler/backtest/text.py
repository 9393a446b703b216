"""A backtest on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.backtest.difference import Difference
from autoscaler.backtest.recording import Recording
from autoscaler.backtest.trial import NOT_MODELLED, Trial
from autoscaler.cli.terminal import dollars, plain, span, table

CAUSES_SHOWN = 8


def page(recorded: Recording, trials: Sequence[Trial], compared: Difference | None) -> list[RenderableType]:
    parts: list[RenderableType] = [_headline(recorded), _figures(trials), _payers(trials)]
    if compared is not None:
        parts.append(_causes(compared))
    parts.append(_notes(trials))
    return parts


def names(trials: Sequence[Trial]) -> list[str]:
    """What the policies are called: A and B where there are two."""
    return (
        [f"{letter} {each.name}" for letter, each in zip("AB", trials, strict=False)]
        if trials[1:]
        else [trials[0].name]
    )


def rows(document: dict[str, Any]) -> Iterable[tuple[str, Any, str]]:
    """(words, value, `count`, `seconds` or `usd`) of everything that two policies are compared by."""
    jobs, waits, costs, runners = (document[key] for key in ("jobs", "queue_seconds", "cost_usd", "runners"))
    for key in ("completed", "cancelled", "waiting", "lost", "unroutable"):
        yield f"jobs {key}", jobs[key], "count"
    yield "jobs that are not ours (ignore_labels)", document["not_ours"], "count"
    for key, words in (
        ("p50", "half started within"),
        ("p90", "90% within"),
        ("p99", "99% within"),
        ("max", "longest"),
    ):
        yield words, waits[key], "seconds"
    yield "cash", costs["cash"], "usd"
    yield "credits", costs["credits"], "usd"
    yield "of that booting", costs["boot"], "usd"
    yield "of that idle", costs["idle"], "usd"
    yield "at the cheapest list price, the jobs' own time", costs["list"], "usd"
    yield "credits that expired unused", costs["expired_credits"], "usd"
    for key, words in (
        ("launched", "machines launched"),
        ("failed_launches", "launches that failed"),
        ("reaped_unused", "machines that ran nothing"),
        ("interrupted", "jobs whose machine was taken"),
        ("refused_at_start", "jobs refused when they started"),
    ):
        yield words, runners[key], "count"


def words_of(value: Any, kind: str) -> str:
    if value is None:
        return "-"
    if kind == "usd":
        return dollars(value)
    return span(value) if kind == "seconds" else f"{value:,}"


def change_of(a: Any, b: Any, kind: str) -> str:
    """B less A with its sign; empty where nothing changed."""
    change = Decimal(str(b or 0)) - Decimal(str(a or 0))
    if not change:
        return ""
    sign = "+" if change > 0 else "\N{MINUS SIGN}"
    size = abs(change)
    return sign + (
        dollars(str(size)) if kind == "usd" else span(float(size)) if kind == "seconds" else f"{size:,}"
    )


def _headline(recorded: Recording) -> Text:
    since, until = (datetime.fromtimestamp(at / 1000, UTC) for at in (recorded.first_ms, recorded.last_ms))
    text = Text(f"{len(recorded):,} recorded jobs", style="bold")
    return text.append(f"  ·  {since:%d %b %Y %H:%M} to {until:%d %b %Y %H:%M} UTC", style="not bold dim")


def _figures(trials: Sequence[Trial]) -> Table:
    columns = ["", *(f">{name}" for name in names(trials)), *([">B less A"] if trials[1:] else [])]
    found = table("What would have happened", *columns)
    for lines in zip(*(rows(each.document) for each in trials), strict=True):
        words, _, kind = lines[0]
        values = [value for _, value, _ in lines]
        if not any(value not in (0, None, "0.000000") for value in values):
            continue
        cells = [words_of(value, kind) for value in values]
        found.add_row(words, *cells, *([change_of(values[0], values[1], kind)] if trials[1:] else []))
    return found


def calibration(found: dict[str, Any] | None) -> list[RenderableType]:
    """The document of `calibration.comparison`; nothing of none."""
    return [_calibrated(found), ""] if found else []


def _calibrated(found: dict[str, Any]) -> Table:
    lines = table("Recorded and simulated", f"{found['jobs']:,} jobs", ">recorded", ">simulated", ">apart")
    waits = found["queue_seconds"]
    for name, words in (("p50", "half started within"), ("p90", "90% within"), ("p99", "99% within")):
        _beside(lines, words, waits["recorded"][name], waits["simulated"][name], "seconds")
    costs = found["cost_usd"]
    if costs is None:
        lines.add_row("cost", "not recorded", "", "")
        return lines
    _beside(lines, "cost", costs["recorded"], costs["simulated"], "usd")
    for by in ("by_provider", "by_fund"):
        for name, each in costs[by].items():
            _beside(lines, f"  {by.removeprefix('by_')} {name}", each["recorded"], each["simulated"], "usd")
    _beside(lines, "machines", costs["machines"]["recorded"], costs["machines"]["simulated"], "count")
    return lines


def _beside(lines: Table, words: str, recorded: Any, simulated: Any, kind: str) -> None:
    before = Decimal(str(recorded or 0))
    apart = f"{abs(Decimal(str(simulated or 0)) - before) / before:.1%}" if before else ""
    lines.add_row(plain(words), words_of(recorded, kind), words_of(simulated, kind), apart)


def _payers(trials: Sequence[Trial]) -> Group:
    tables = []
    for name, each in zip(names(trials), trials, strict=True):
        found = table(f"Whose money{f': {name}' if trials[1:] else ''}", "fund", ">spent", ">left", ">of", "ends")
        for fund in each.lines:
            ends = f"{datetime.fromtimestamp(fund.until_ms / 1000, UTC):%d %b %Y}" if fund.until_ms else "monthly"
            spent = each.document["cost_usd"]["by_fund"].get(fund.name, "0")
            found.add_row(plain(fund.name), dollars(spent), _usd(fund.left), _usd(fund.limit), ends)
        tables.append(found)
    return Group(*(part for each in tables for part in (each, "")))


def _causes(compared: Difference) -> Group:
    document = compared.document()
    cost, waited = document["cost_usd"], document["waited_seconds"]
    money = table("Where the dollars come from", "cause", ">jobs", ">B less A")
    for part in cost["parts"][:CAUSES_SHOWN]:
        money.add_row(plain(part["cause"]), f"{part['jobs']:,}", _signed(part["usd"]))
    rest = sum((Decimal(part["usd"]) for part in cost["parts"][CAUSES_SHOWN:]), Decimal(0))
    if rest:
        money.add_row("all others", "", _signed(str(rest)))
    money.add_row(Text("the whole", style="bold"), "", Text(_signed(cost["whole"]), style="bold"))
    time = table("Where the waiting comes from", "cause", ">B less A, of all jobs")
    for part in waited["parts"]:
        time.add_row(plain(part["cause"]), change_of(0, part["seconds"], "seconds"))
    time.add_row(Text("the whole", style="bold"), change_of(0, waited["whole"], "seconds") or "0 s")
    return Group(money, "", time)


def _notes(trials: Sequence[Trial]) -> Group:
    lines = [Text("Assumed", style="bold")]
    lines += [
        Text(f"  · {line}", style="dim") for line in dict.fromkeys(n for each in trials for n in each.assumptions)
    ]
    lines += [Text("Not modelled", style="bold"), *(Text(f"  · {line}", style="dim") for line in NOT_MODELLED)]
    return Group(*lines)


def _usd(amount: int) -> str:
    return f"${Decimal(amount) / 1_000_000:,.2f}"


def _signed(amount: str) -> str:
    return change_of("0", amount, "usd") or "$0.00"
