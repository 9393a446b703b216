"""What the dollars of a fund count for when offers are ranked."""

from __future__ import annotations

from dataclasses import dataclass

from scheduling import ledger
from scheduling.model import UnixMs
from scheduling.policy import Fund
from scheduling.world import World


def expires_unused(world: World, fund: Fund, now_ms: UnixMs) -> bool:
    """Whether credit is forecast to be left at its end, at the rate of the last week that was booked."""
    if fund.cash or fund.until_ms is None:
        return False
    account = world.funds.get(fund.name)
    if account is None or not account.known:
        return False
    days = sorted(account.settled_by_day)[-7:]
    spent = sum(account.settled_by_day[name] for name in days)
    forecast = spent * (fund.until_ms - now_ms) // (max(1, len(days)) * ledger.DAY_MS)
    return forecast < fund.limit - ledger.used(account, "")


@dataclass(frozen=True, slots=True, order=True)
class Worth:
    """How a fund's dollars rank. Tier 0 is free; with bids all funds share tier 1 and differ by their value."""

    tier: int
    until_ms: UnixMs = 0
    value_ppm: int = 1_000_000


FREE = Worth(0, value_ppm=0)


def worth(world: World, fund: Fund, now_ms: UnixMs) -> Worth:
    """By its bid where the planner made one; else credit that would expire first, other credit, then cash."""
    bid = world.bids.get(fund.name)
    if bid is not None and now_ms < bid.until_ms:
        return Worth(1, 0, bid.value_ppm)
    if fund.cash:
        return Worth(3)
    expiring = expires_unused(world, fund, now_ms)
    return Worth(1, fund.until_ms or 0) if expiring else Worth(2)
