"""The `why` document on one screen: at most 40 lines of 100 columns."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autoscaler.cli.terminal import age, ahead, dollars, plain, price, price_age, span, state

Document = dict[str, Any]

OFFERS = 10
LOG_LINES = 6
TEXT = 600
"""Characters of one refusal or sentence: strangers' labels may be in it."""


def screen(found: Document) -> RenderableType:
    """`found` as in `why.job_document`."""
    why = found["why"]
    parts: list[RenderableType] = [_head(found), Padding(plain(why["sentence"][:TEXT]), (1, 0, 1, 0))]
    parts.append(_facts(found))
    if why["offers"]:
        parts += ["", _offers(found)]
    if why["runner"]:
        parts += ["", _choice(why["runner"])]
    if why["failed_boot"]:
        parts += ["", _failed_boot(why["failed_boot"])]
    if len(why["timeline"]) > 1:
        parts += ["", _timeline(why["timeline"])]
    return Group(*parts)


def as_text(found: Document) -> str:
    """The screen as plain ASCII lines, for a job's log."""
    out = io.StringIO()
    Console(file=out, width=100, color_system=None, force_terminal=False).print(screen(found))
    lines = out.getvalue().replace("\u00b7", "-").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _head(found: Document) -> Text:
    text = Text(f"job {found['id']}  ", style="bold")
    text.append_text(state(found["state"]))
    if found["conclusion"]:
        text.append(f" ({found['conclusion'][:40]})")
    name = " / ".join(part for part in (found["repository"], found["workflow"], found["name"]) if part)
    text.append("  ").append_text(plain(name[:120]))
    if found["state"] in ("queued", "blocked", "unroutable") and found["queued_at"]:
        text.append(f"  queued {age(found['queued_at'], found['at'])} ago", style="not bold dim")
    return text


def _facts(found: Document) -> Table:
    """Labels, types, pool: one line each, as far as there is something to say."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in _fact_rows(found):
        grid.add_row(name, value)
    return grid


def _fact_rows(found: Document) -> Iterator[tuple[str, Text]]:
    why = found["why"]
    yield "labels", plain((", ".join(found["labels"]) or "none")[:TEXT])
    for index, rtype in enumerate(why["types"]):
        mark = " (chosen)" if rtype["chosen"] and len(why["types"]) > 1 else ""
        if index == 0 and len(why["types"]) > 1:
            yield "matches", plain(f"{len(why['types'])} runner types; the one with the best placement serves it")
        yield "type", plain(f"{rtype['runner_type']}{mark}{_best(rtype['best'])}")
    for near in why["nearest"]:
        yield "near", plain(f"{near['runner_type']} lacks {', '.join(near['lacks'])}"[:200])
    for part in why["waited"]:
        detail = f" ({part['detail']})" if part["detail"] else ""
        yield "waited", plain(f"{span(part['seconds'])} for {part['for']}{detail}"[:200])
    if pool := why["pool"]:
        yield "pool", plain(pool["pool"])
        yield "queue", plain(f"number {pool['place']} of {pool['queued']}; {_supply(pool)}")
        caps = (
            f"{row['scope']} {row['live']} of {row['limit']}" for row in pool["limits"] if row["limit"] is not None
        )
        if github := why["github"]:
            rate, ways = github["registrations_per_minute"], github["on_their_way"]
            yield "GitHub", plain(f"{rate} registrations a minute at {github['owner']}, {ways} on their way")
        yield "expected", plain(f"about {span(pool['expected_seconds'])} for a job like it")
        if limits := ", ".join(caps):
            yield "caps", plain(limits)
        if pool["switches"]:
            yield "switches", Text(", ".join(pool["switches"]), style="yellow")


def _best(best: Document | None) -> str:
    if best is None:
        return ""
    if best["refusal"]:
        return f": {' '.join(part for part in (best['offer'], best['refusal']) if part)}"[:200]
    payer = f" from {best['fund']}" if best["fund"] else ""
    hourly, each = price(best["price_usd_per_hour"]), dollars(best["score_usd"])
    return f": best {best['offer']} at {hourly}/h{payer}, {each} a job"


def _supply(pool: Document) -> str:
    if not pool["supply"]:
        return "no runner is on its way"
    shown = ", ".join(f"{each['runner']} {each['state']}" for each in pool["on_their_way"][:2])
    more = f" and {pool['supply'] - 2} more" if pool["supply"] > 2 else ""
    return f"on their way: {shown}{more}"


def _offers(found: Document) -> RenderableType:
    """The first offers in rank order."""
    why = found["why"]
    rows = why["offers"][:OFFERS]
    left = why["offers_total"] - len(rows)
    grid = _offer_grid("now", [[*_offer_cells(row), _now(row, found["at"])] for row in rows])
    return Group(grid, Text(f"and {left} more: --json lists them", style="dim")) if left > 0 else grid


def _offer_grid(last: str, rows: list[list[Text]]) -> Table:
    """One line a row: only the last column gives way on a narrow screen."""
    grid = Table(box=None, header_style="dim", pad_edge=False)
    for index, name in enumerate(("#", "offer", "$/h", "fund", "$/job")):
        width = min(44, max(cell_len(row[index].plain) for row in rows))
        grid.add_column(
            name,
            justify="left" if name in ("offer", "fund") else "right",
            min_width=width,
            no_wrap=True,
            overflow="ellipsis",
        )
    grid.add_column(last, no_wrap=True, overflow="ellipsis")
    for row in rows:
        grid.add_row(*row)
    return grid


def _offer_cells(row: Document) -> list[Text]:
    rank = str(row["rank"]) if row.get("rank") else ""
    score = "" if row["score_usd"] is None else dollars(row["score_usd"])
    hourly = "" if row["price_usd_per_hour"] is None else price(row["price_usd_per_hour"])
    return [Text(rank), plain(_offer_name(row)), Text(hourly), plain(row["fund"]), Text(score)]


def _offer_name(row: Document) -> str:
    """`aws/us-east-1a/c5.large spot`; on-demand goes without saying."""
    return str(row["offer"]).replace("/on_demand", "").replace("/spot", " spot")


def _now(row: Document, at: str) -> Text:
    if not row["refusal"]:
        terms = "; ".join(part for part in (row["tier"], row["scarce"], price_age(row)) if part)
        return Text("open", style="green").append(f"  {terms}", style="dim")
    until = f"until {ahead(row['until'], at)}: " if row["until"] else ""
    return Text(until).append_text(plain(row["refusal"][:TEXT]))


def _choice(runner: Document) -> RenderableType:
    """The offer that a job got, and those before and after it in its placement."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    fund = runner["fund"] or "nothing to pay"
    booked = "" if runner["state"] == "gone" else f"; {dollars(runner['hold_usd'])} held; cost so far"
    lines.add_row("runner", plain(f"{runner['id']}  {runner['state']}"))
    lines.add_row("offer", plain(f"{runner['offer']} at {price(runner['price_usd_per_hour'])}/h"))
    lines.add_row("fund", plain(f"{fund}{booked or '; cost'} {dollars(runner['cost_usd'])}"))
    lines.add_row("why there", plain(runner["won"][:TEXT]))
    if runner["detail"]:
        lines.add_row("detail", plain(runner["detail"][:300]))
    rows: list[list[Text]] = []
    for number, row in enumerate(runner["verdicts"][:OFFERS], 1):
        won = not row["refusal"] and all(before["refusal"] for before in runner["verdicts"][: number - 1])
        last = Text("chosen", style="green") if won else plain(row["refusal"] or "ranked after it")
        rows.append([*_offer_cells({**row, "rank": number}), last])
    return Group(lines, "", _offer_grid("then", rows)) if rows else lines


def _failed_boot(boot: Document) -> RenderableType:
    """The last words of a machine that did not boot."""
    more = f" ({boot['count']} did not boot)" if boot["count"] > 1 else ""
    image = f", image {boot['image']}" if boot["image"] else ""
    said = boot["detail"] or "it never called"
    head = Text("did not boot  ", style="yellow").append_text(
        plain(f"{boot['runner']} at {boot['offer']}{image}{more}")
    )
    lines = [plain(f"  {line}"[:100]) for line in boot["log"][-LOG_LINES:]]
    return Group(head, plain(f"  {said}"[:300]), *(line for line in lines if line.plain.strip() != said))


def _timeline(stages: list[Document]) -> Text:
    text = Text()
    for index, stage in enumerate(stages):
        at = stage["seconds"]
        offset = f"-{span(-at)}" if at < 0 else f"+{span(at)}" if index else stage["at"][:19].replace("T", " ")
        text.append("  ·  " if index else "", style="dim").append(f"{stage['stage']} ").append(offset, style="dim")
    return text
