"""Where the difference between two policies comes from: dollars and seconds by cause. The parts sum to the whole.

Dollars: each job's machine cost price x life; what changes with the price is one part, what changes with the life
another. Seconds: each job's wait is the sum of its stages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from autoscaler.backtest import tally as t
from autoscaler.backtest.recording import Recording
from autoscaler.backtest.tally import Tally
from autoscaler.views.values import usd
from scheduling.model import HOUR_MS

Amounts = Counter[str]

STAGE_WORDS = {
    "launch": "until a machine was decided on: money, caps, cooldowns",
    "create": "create calls",
    "boot": "boots",
    "register": "registrations",
    "pick": "GitHub's choice of a runner",
}


@dataclass(slots=True)
class Difference:
    """B less A, by cause. Money in micro-dollars, waits in ms; `jobs` counts the jobs behind a cause."""

    dollars: Amounts
    seconds: Amounts
    jobs: Counter[str]
    moved: Counter[tuple[str, str]]  # (paid by under A, under B) -> jobs
    by_labels: Counter[str]  # ms of waiting by the labels of the jobs

    def document(self) -> dict[str, Any]:
        """As JSON; the parts of each list sum to its whole."""
        return {
            "cost_usd": {
                "whole": usd(self.dollars.total()),
                "parts": [
                    {"cause": cause, "usd": usd(amount), "jobs": self.jobs[cause]}
                    for cause, amount in largest(self.dollars)
                ],
            },
            "waited_seconds": {
                "whole": _seconds(self.seconds.total()),
                "parts": [
                    {"cause": cause, "seconds": _seconds(amount)} for cause, amount in largest(self.seconds)
                ],
                "by_labels": [
                    {"labels": labels, "seconds": _seconds(amount)} for labels, amount in largest(self.by_labels)
                ],
            },
            "payers": [{"a": a, "b": b, "jobs": count} for (a, b), count in sorted(self.moved.items(), key=_most)],
        }


def difference(recording: Recording, a: Tally, b: Tally) -> Difference:
    found = Difference(Counter(), Counter(), Counter(), Counter(), Counter())
    for row in range(len(recording)):
        _dollars(found, a, b, row)
        _waits(found, recording, a, b, row)
    unused = sum(b.unused.values()) - sum(a.unused.values())
    _add(found, "machines that ran no job, or are still up at the end", unused, 0)
    return found


def _dollars(found: Difference, a: Tally, b: Tally, row: int) -> None:
    in_a, in_b = a.offer[row] != t.NONE, b.offer[row] != t.NONE
    if not in_a and not in_b:
        return
    if not in_b:
        _add(found, "jobs that ran under A only", -a.cost[row], free_too=True)
    elif not in_a:
        _add(found, "jobs that ran under B only", b.cost[row], free_too=True)
    else:
        _both(found, a, b, row)
    payer_a = a.funds[a.fund[row]] or "free" if in_a else "not run"
    payer_b = b.funds[b.fund[row]] or "free" if in_b else "not run"
    if payer_a != payer_b:
        found.moved[payer_a, payer_b] += 1


def _both(found: Difference, a: Tally, b: Tally, row: int) -> None:
    whole = b.cost[row] - a.cost[row]
    price = (b.price[row] - a.price[row]) * a.life[row] // HOUR_MS
    before = b.price[row] * (b.before[row] - a.before[row]) // HOUR_MS
    ran = b.price[row] * (b.ran[row] - a.ran[row]) // HOUR_MS
    from_, to = _place(a.offers[a.offer[row]]), _place(b.offers[b.offer[row]])
    if price or from_ != to:
        move = f"{from_} \N{RIGHTWARDS ARROW} {to}" if from_ != to else f"other instance types at {to}"
        _add(found, move, price, free_too=from_ != to)
    _add(found, "longer or shorter boots and idle times", before)
    _add(found, "longer or shorter runs of jobs", ran)
    _add(found, "between a job's end and its machine's, and rounding", whole - price - before - ran)


def _add(found: Difference, cause: str, amount: int, jobs: int = 1, *, free_too: bool = False) -> None:
    if amount or free_too:
        found.dollars[cause] += amount
        found.jobs[cause] += jobs


def _place(offer: str) -> str:
    provider, _, rest = offer.partition("/")
    purchase = rest.rpartition("/")[2]
    return provider if purchase == "on_demand" else f"{provider} {purchase}"


def _waits(found: Difference, recording: Recording, a: Tally, b: Tally, row: int) -> None:
    in_a, in_b = a.wait[row] != t.NONE, b.wait[row] != t.NONE
    whole = (b.wait[row] if in_b else 0) - (a.wait[row] if in_a else 0)
    if in_a and in_b:
        for name, words in STAGE_WORDS.items():
            if change := b.stages[name][row] - a.stages[name][row]:
                found.seconds[words] += change
    elif in_a:
        found.seconds["jobs that started under A only"] += whole
    elif in_b:
        found.seconds["jobs that started under B only"] += whole
    if whole:
        labels = recording.tables["labels"][recording.labels[row]]
        found.by_labels[", ".join(labels)] += whole


def changes(a: Any, b: Any) -> Any:
    """B less A for every number of two documents of the same form; money stays a decimal string."""
    if isinstance(a, dict) or isinstance(b, dict):
        a, b = a or {}, b or {}
        found = {key: changes(a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b])}
        return {key: value for key, value in found.items() if value is not None}
    if isinstance(a, str) or isinstance(b, str):
        return f"{Decimal(b or '0') - Decimal(a or '0'):.6f}"
    if isinstance(a, int | float) or isinstance(b, int | float):
        return round((b or 0) - (a or 0), 6)
    return None


def largest(amounts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(
        ((cause, amount) for cause, amount in amounts.items()), key=lambda item: (-abs(item[1]), item[0])
    )


def _most(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[str, str]]:
    return -item[1], item[0]


def _seconds(ms: int) -> float:
    return round(ms / 1000, 3)
