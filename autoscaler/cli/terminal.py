"""How ages, amounts and tables look on a terminal: what the text forms of all commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

TEN_CENTS = Decimal("0.1")
STATE_STYLES = {
    "unroutable": "bold red",
    "blocked": "yellow",
    "queued": "cyan",
    "in_progress": "green",
    "busy": "green",
    "gone": "dim",
    "completed": "dim",
}


def console(stderr: bool = False) -> Console:
    """Colours on a terminal only. Into a pipe lines are as long as they need to be."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 160, soft_wrap=False)


def table(title: str, *columns: str) -> Table:
    """`>name` is a column of numbers."""
    found = Table(
        title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
    )
    for column in columns:
        right = column.startswith(">")
        found.add_column(column.lstrip(">"), justify="right" if right else "left", overflow="fold", no_wrap=right)
    return found


def plain(value: object) -> Text:
    """Text from outside: no markup is read in it, and nothing unprintable reaches the terminal."""
    return Text("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value)))


def state(name: str) -> Text:
    return Text(name, style=STATE_STYLES.get(name, ""))


def dollars(amount: str | None) -> str:
    """For people: cents, and more places where there are no cents."""
    if amount is None:
        return "?"
    value = Decimal(amount)
    return f"${value:,.2f}" if abs(value) >= TEN_CENTS or not value else f"${value:,.4f}"


def price(amount: str | None) -> str:
    """An hour's price: three or four places."""
    if amount is None:
        return "?"
    if not Decimal(amount):
        return "free"
    text = f"${Decimal(amount):,.4f}"
    return text.removesuffix("0")


def price_age(row: Mapping[str, Any]) -> str:
    """`price of 2025-03-02` where an offer's list price is stale; else empty."""
    return f"price of {row['price_as_of'][:10]}" if row["price_stale"] else ""


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def age(then: str | None, now: str) -> str:
    """`41 s`, `3 min 20 s`, `1 h 05 min` between two times of a document; empty without the first."""
    return span((when(now) - when(then)).total_seconds()) if then else ""


def ahead(then: str, now: str) -> str:
    """`13:05 UTC (in 4 min 10 s)`."""
    far = (when(then) - when(now)).total_seconds()
    clock = when(then).strftime("%H:%M" if far < 86_400 else "%d %b %H:%M")
    return f"{clock} UTC (in {span(far)})"


def booting(boot: Mapping[str, Any]) -> str:
    """`downloads the runner for 40 s, heard of 5 s ago`; empty for a machine that has said nothing."""
    if boot["seconds"] is None or boot["heard_seconds"] is None:
        return ""
    return f"{boot['doing']} for {span(boot['seconds'])}, heard of {span(boot['heard_seconds'])} ago"


def span(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600:02} h"


def show(parts: Iterable[RenderableType]) -> None:
    """On stdout, a blank line between two parts."""
    out = console()
    for index, part in enumerate(parts):
        if index:
            out.print()
        out.print(part)
