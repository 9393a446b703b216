"""What spent a fund and what holds it, and what its dollar counts as: one document from one view. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autoscaler.views.funds import fund_document
from autoscaler.views.jobs_and_runners import Document, NoSuchThing, View
from autoscaler.views.offers import fund_tier
from autoscaler.views.values import time, usd
from scheduling import ledger
from scheduling.lifecycle import RunnerState
from scheduling.model import HOUR_MS, Runner, Spend

SHOWN = 50
"""Rows of one list; its sum counts all."""


def of_fund(view: View, name: str) -> Document:
    """What `GET /api/v1/funds/NAME` and `why fund:NAME --json` say. NoSuchThing for other names."""
    fund = view.policy.funds.get(name)
    if fund is None:
        raise NoSuchThing(f"no fund {name[:100]!r} in the policy; `autoscaler funds` lists them")
    spent = [line for line in view.world.spends.values() if line.fund == name]
    holders = [each for each in view.world.runners.values() if _holds(each, name)]
    found = fund_document(view, fund)
    return {
        **found,
        "at": time(view.now_ms),
        "leading": view.leading,
        "sentence": _sentence(found, len(holders)),
        "dollar": fund_tier(view, name),
        "spent_by_month": _sums(spent, "month"),
        "spent_by_repository": _sums(spent, "repository"),
        "held_runners": len(holders),
        "held_by": _holders(holders, name),
    }


def _holds(runner: Runner, name: str) -> bool:
    return runner.state is not RunnerState.GONE and any(part.fund == name for part in runner.hold)


def _sentence(found: Document, holders: int) -> str:
    if found["closed"]:
        return f"It pays for no launch now: {found['closed']}."
    per = f" of {found['period']}" if found["period"] else ""
    text = f"It is open: {_dollars(found['left_usd'])} of {_dollars(found['limit_usd'])}{per} is left."
    if holders:
        many = "1 live runner" if holders == 1 else f"{holders} live runners"
        text += f" {_dollars(found['held_usd'])} is held for {many} until each is proven gone."
    return text


def _dollars(amount_usd: str) -> str:
    dollars, _, rest = amount_usd.partition(".")
    return ledger.usd(int(dollars) * 1_000_000 + int(rest))


def _sums(lines: Iterable[Spend], by: str) -> list[Document]:
    """The largest first for repositories, the newest first for months; an empty name ran no job."""
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        row = rows.setdefault(getattr(line, by), {"jobs": 0, "machine_ms": 0, "amount": 0})
        row["jobs"] += line.jobs
        row["machine_ms"] += line.machine_ms
        row["amount"] += line.amount
    order = sorted(rows, reverse=True)
    if by == "repository":
        order.sort(key=lambda name: -rows[name]["amount"])
    return [
        {
            by: name,
            "jobs": rows[name]["jobs"],
            "machine_hours": round(rows[name]["machine_ms"] / HOUR_MS, 3),
            "amount_usd": usd(rows[name]["amount"]),
        }
        for name in order[:SHOWN]
    ]


def _holders(runners: list[Runner], name: str) -> list[Document]:
    """The largest hold first; `until`: when its money is free again at the latest."""
    rows = [(sum(part.amount for part in each.hold if part.fund == name), each) for each in runners]
    rows.sort(key=lambda row: (-row[0], row[1].planned_ms, row[1].id))
    return [
        {
            "runner": each.id,
            "state": each.state.value,
            "offer": each.offer.key,
            "repository": each.repository,
            "job": each.running or each.launched_for,
            "amount_usd": usd(amount),
            "until": time(each.hold[-1].until_ms),
        }
        for amount, each in rows[:SHOWN]
    ]
