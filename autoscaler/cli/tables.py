"""The lists of a running daemon as a person reads them: one function for each document of `/api/v1`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.terminal import age, ahead, booting, dollars, plain, price, span, state, table

Document = dict[str, Any]
Rendered = Iterator[RenderableType]


def status(found: Document) -> Rendered:
    """`GET summary`."""
    yield _headline(found)
    yield _counts(found)
    if found["pools"]:
        yield _pools(found)
    if found["blocked"]:
        yield _blocked(found)
    yield from providers(found)
    yield from funds(found)
    if found["observed"]:
        yield from _observed(found["observed"], found["at"])
    cooling = [row for row in found["cooldowns"] if row["state"] != "counting"]
    if cooling:
        yield _cooldowns(cooling, found["at"])


def _headline(found: Document) -> Text:
    text = Text(f"fleet {found['fleet']}", style="bold")
    text.append(f"  policy {found['policy']['hash']}", style="not bold dim")
    if not found["leading"]:
        text.append("  (from a replica that does not lead)", style="not bold yellow")
    for switch in found["switches"]:
        words = "paused" if switch["target"] == "fleet" else f"{switch['target']} drained"
        text.append(f"\n{words} by {switch['by']}", style="bold yellow")
    if error := found["policy"]["error"]:
        text.append("\nthe policy file is bad, and the version before it rules:\n", style="bold red")
        text.append_text(plain_lines(error))
    return text


def plain_lines(text: str) -> Text:
    return Text("\n").join(plain(line) for line in text.splitlines())


def _counts(found: Document) -> Text:
    jobs, runners = found["jobs"], found["runners"]
    text = Text("jobs     ", style="dim")
    for name in ("in_progress", "queued", "blocked", "unroutable", "waiting"):
        text.append(f"{jobs[name]} ", style="bold" if jobs[name] else "dim")
        text.append_text(Text(f"{name}  ", style="dim") if not jobs[name] else state(name)).append("  ")
    text.append(f"{jobs['completed']} completed, {jobs['cancelled']} cancelled", style="dim")
    if found["oldest_queued_at"]:
        text.append(f"; the oldest waits {age(found['oldest_queued_at'], found['at'])}", style="dim")
    limit = "" if runners["limit"] is None else f" of {runners['limit']}"
    states = ", ".join(f"{count} {name}" for name, count in runners["by_state"].items())
    text.append("\nrunners  ", style="dim").append(f"{runners['live']}{limit}", style="bold")
    return text.append(f"  {states}", style="dim")


def _pools(found: Document) -> Table:
    grid = table("What waits", "pool", ">queued", ">on their way", ">oldest", "why")
    for row in found["pools"]:
        first = row["refusals"][0] if row["refusals"] else None
        more = f" (and {row['refused'] - 1} more)" if row["refused"] > 1 else ""
        why = plain(f"{first['offer']}: {first['refusal']}{more}") if first else Text("")
        oldest = age(row["oldest_queued_at"], found["at"])
        grid.add_row(plain(row["pool"]), str(row["queued"]), str(row["supply"]), oldest, why)
    return grid


def _blocked(found: Document) -> Table:
    grid = table("Without a pool", ">jobs", "reason", "for example")
    for row in found["blocked"]:
        style = "red" if row["unroutable"] else ""
        reason = plain(row["reason"][:400])
        reason.stylize(style)
        grid.add_row(str(row["jobs"]), reason, row["example"])
    return grid


def _observed(found: Document, at: str) -> Rendered:
    """What jobs on others' runners would have been here."""
    title = f"Observed for {age(found['since'], at)}" if found["since"] else "Observed: nothing yet"
    grid = table(
        title, "runner type", ">jobs", ">waited p50", ">p90", ">here p50", ">p90", ">none here", ">cost here"
    )
    for row in found["runner_types"]:
        waits = [row[kind][name] for kind in ("waited_seconds", "expected_seconds") for name in ("p50", "p90")]
        grid.add_row(
            plain(row["runner_type"]),
            f"{row['jobs']:,}",
            *("" if each is None else span(each) for each in waits),
            f"{row['refused']:,}" if row["refused"] else "",
            dollars(row["cost_usd"]),
        )
    yield grid
    for by in ("provider", "fund"):
        if sums := found[f"cost_by_{by}"]:
            costs = ", ".join(f"{name} {dollars(cost)}" for name, cost in sums.items())
            yield Text.assemble((f"cost here by {by}  ", "dim"), plain(costs))


def _cooldowns(rows: list[Document], at: str) -> Table:
    grid = table("Cooling down", "scope", "until", "why")
    for row in rows:
        until = ahead(row["until"], at) if row["state"] == "cooling" else row["state"].replace("_", " ")
        grid.add_row(plain(row["scope"]), until, plain(row["why"][:300]))
    return grid


def jobs(found: Document) -> Rendered:
    grid = table("", "job", "state", "repository", "name", "type", "provider", ">waited", "queued")
    for row in found["jobs"]:
        name = f"{row['workflow']} / {row['name']}" if row["workflow"] else row["name"]
        waited = "" if row["queue_seconds"] is None else f"{row['queue_seconds']:g} s"
        grid.add_row(
            row["id"],
            state(row["conclusion"] or row["state"]),
            plain(row["repository"]),
            plain(name[:80]),
            plain(row["runner_type"]),
            plain(row["provider"]),
            waited,
            (row["queued_at"] or "")[:19].replace("T", " "),
        )
    yield grid
    yield from _more(found, len(found["jobs"]), "job")


def runners(found: Document) -> Rendered:
    grid = table("", "runner", "state", "type", "offer", ">$/h", "fund", "job", "planned")
    for row in found["runners"]:
        ended = f"{row['state']} ({row['reason']})" if row["reason"] else row["state"]
        boots = booting(row["boot"]) if row["state"] == "starting" else ""
        grid.add_row(
            row["id"],
            state(ended).append(f": {boots[:120]}" if boots else "", style="dim"),
            plain(row["runner_type"]),
            plain(row["offer"]),
            price(row["price_usd_per_hour"]),
            plain(row["fund"]),
            row["running"] or row["launched_for"],
            (row["planned_at"] or "")[:19].replace("T", " "),
        )
    yield grid
    yield from _more(found, len(found["runners"]), "runner")


def _more(found: Document, shown: int, what: str) -> Rendered:
    if not shown:
        yield Text(f"no {what} is like that", style="dim")
    elif found["next"]:
        yield Text(f"the newest {shown}; go on with --after {found['next']}", style="dim")


def providers(found: Document) -> Rendered:
    grid = table("Providers", "provider", "kind", ">runners", "states", ">offers", "prices", ">cost", "now")
    for row in found["providers"]:
        limit = "" if row["limit"] is None else f" of {row['limit']}"
        states = ", ".join(f"{count} {name}" for name, count in row["by_state"].items())
        removed = row["kind"] == "removed"
        closed = "no longer in the policy" if removed else row["closed"]
        offers = "" if removed or row["offers"] is None else str(row["offers"])
        grid.add_row(
            plain(row["name"]),
            row["kind"],
            f"{row['live']}{limit}",
            states,
            offers,
            "" if removed else _prices(row["prices"]),
            "" if removed else dollars(row["cost_usd"]),
            plain(closed) if closed else Text("open", style="green"),
        )
    yield grid


def _prices(found: Document) -> Text:
    """Since when list prices stand, and for how many offers that is too long ago or no price is known."""
    flaws = [f"{found[flaw]} {flaw}" for flaw in ("stale", "unknown") if found[flaw]]
    since = f"since {found['oldest'][:10]}" if found["oldest"] else ""
    return Text(", ".join([since, *flaws] if since else flaws), style="yellow" if flaws else "")


def funds(found: Document) -> Rendered:
    if not found["funds"]:
        yield Text("No funds: only offers with price 0 can be used.", style="yellow")
        return
    grid = table("Funds", "fund", "kind", ">left", ">of", ">held", ">spent here", "until", "now")
    for row in found["funds"]:
        removed = row["kind"] == "removed"
        closed = plain(row["closed"]) if row["closed"] else Text("open", style="green")
        if row["overrun_usd"] != "0.000000":
            closed.append(f"  {dollars(row['overrun_usd'])} over", style="bold red")
        if row.get("expires_unused"):
            closed.append("  would expire unused", style="yellow")
        grid.add_row(
            plain(row["name"]),
            row["kind"],
            "" if removed else dollars(row["left_usd"]),
            "" if removed else dollars(row["limit_usd"]),
            dollars(row["held_usd"]),
            dollars(row["settled_usd"]),
            "" if removed else (row["until"] or row["period"])[:10],
            closed,
        )
    yield grid
    for row in found["funds"]:
        for warning in row.get("warnings", ()):
            yield Text(warning, style="yellow")


HOLDERS = 12


def fund(found: Document) -> Rendered:
    """`why fund:NAME`: the answer, what spent it, what holds it."""
    yield Text(f"fund {found['name']}  ", style="bold").append(plain(found["sentence"]))
    yield Text.assemble(("its dollar  ", "dim"), plain(found["dollar"]))
    if found["spent_source"]:
        yield Text.assemble(("stated spend  ", "dim"), plain(_stated(found)))
    for warning in found["warnings"]:
        yield Text(warning, style="yellow")
    for by, title in (("repository", "Spent by repository"), ("month", "Spent by month")):
        grid = table(title, by, ">jobs", ">machine hours", ">cost")
        for row in found[f"spent_by_{by}"]:
            name = plain(row[by]) if row[by] else Text("machines without a job", style="dim")
            grid.add_row(name, f"{row['jobs']:,}", f"{row['machine_hours']:,.1f}", dollars(row["amount_usd"]))
        if grid.row_count:
            yield grid
    if not found["held_by"]:
        return
    grid = table("Held by live runners", "runner", "state", "offer", "repository", "job", ">held", "until")
    for row in found["held_by"][:HOLDERS]:
        cells = (plain(row[name]) for name in ("runner", "state", "offer", "repository", "job"))
        grid.add_row(*cells, dollars(row["amount_usd"]), row["until"][:16].replace("T", " "))
    yield grid
    if (more := found["held_runners"] - min(HOLDERS, len(found["held_by"]))) > 0:
        yield Text(f"and {more} more", style="dim")


def _stated(found: Document) -> str:
    """What is known of spend from outside, and how old that is."""
    source = found["spent_source"] + (f" ({found['balance']})" if found["balance"] else "")
    ages = [age(found[name], found["at"]) for name in ("spent_said_at", "spent_as_of")]
    return (
        f"{dollars(found['spent_before_usd'])} beside ours, by {source}: said {ages[0]} ago, as of {ages[1]} ago"
    )


def statement(found: Document) -> Rendered:
    grid = table(f"{found['fund']}, {found['month']}", "repository", ">jobs", ">machine hours", ">cost")
    for row in found["repositories"]:
        name = plain(row["repository"]) if row["repository"] else Text("machines without a job", style="dim")
        grid.add_row(name, f"{row['jobs']:,}", f"{row['machine_hours']:,.1f}", dollars(row["amount_usd"]))
    grid.add_section()
    grid.add_row("in all", f"{found['jobs']:,}", f"{found['machine_hours']:,.1f}", dollars(found["amount_usd"]))
    yield grid


TABLES: dict[str, Callable[[Document], Rendered]] = {
    "summary": status,
    "jobs": jobs,
    "runners": runners,
    "providers": providers,
    "funds": funds,
}
"""List of `/api/v1` -> its text form."""
