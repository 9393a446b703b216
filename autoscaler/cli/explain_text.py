"""The document of `policy explain` as a terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from autoscaler.cli.terminal import dollars, plain, price, price_age, table

TERMS = ("machine", "waiting", "interruption")

Document = dict[str, Any]


def parts(found: Document) -> Iterator[RenderableType]:
    yield _answer(found)
    for each in found["types"]:
        yield _type(each, alone=len(found["types"]) == 1)
        if not each["offers"]:
            yield Text("no provider sells what it names", style="yellow")
    yield Text(f"Assumed: {'; '.join(found['assumed'])}.", style="dim")


def _answer(found: Document) -> Text:
    launch = found["launch"]
    if not found["ours"]:
        return Text(
            "Not ours: no runner type matches, and `ignore_labels` leaves a label to others.", style="yellow"
        )
    if launch:
        payer = f"paid by {launch['fund']}, {dollars(launch['hold_usd'])} held" if launch["fund"] else "for free"
        text = Text(f"{launch['runner_type']} on {launch['offer']}", style="bold green")
        return text.append(f" at {price(launch['price_usd_per_hour'])}/h, {payer}", style="not bold default")
    if not found["types"]:
        return plain(f"It would not be served: {found['refused']}")
    return Text("It would wait: every offer is refused.", style="yellow")


def _type(each: Document, *, alone: bool) -> Table:
    title = each["runner_type"] + ("  (chosen)" if each["chosen"] and not alone else "")
    grid = table(title, ">#", "offer", ">$/h", "fund", ">machine", ">waiting", ">risk", ">$/job", "now")
    for row in each["offers"]:
        said = "; ".join(part for part in (row["tier"], price_age(row)) if part)
        now = Text("open", style="green").append(f"  {said}", style="dim")
        terms = [dollars(row["terms"][name]) if name in row["terms"] else "" for name in TERMS]
        grid.add_row(
            str(row["rank"] or ""),
            plain(row["offer"]),
            "" if row["price_usd_per_hour"] is None else price(row["price_usd_per_hour"]),
            plain(row["fund"]),
            *terms,
            "" if row["score_usd"] is None else dollars(row["score_usd"]),
            plain(row["refusal"]) if row["refusal"] else now,
        )
    return grid
