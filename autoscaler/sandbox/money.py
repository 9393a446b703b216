"""Figures about money that `demo` and `backtest` take from a world. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.sandbox.summary import FundLine
from scheduling import ledger
from scheduling.matching import fits, selected
from scheduling.model import MicroUSD, Purchase, UnixMs
from scheduling.policy import Policy, RunnerType
from scheduling.world import World


def cheapest_list_price(types: Iterable[RunnerType], world: World) -> MicroUSD:
    """An hour of the cheapest offer that could serve one of these types; 0 where no price is known."""
    prices = [
        offer.list_price
        for rtype in types
        for offers in world.offers.values()
        for offer in selected(rtype, offers)
        if offer.list_price is not None
        and offer.purchase is not Purchase.RESERVED
        and not fits(rtype.hardware, offer.hardware, offer.elastic_disk)
    ]
    return min(prices, default=0)


def expired(world: World, policy: Policy, now_ms: UnixMs) -> MicroUSD:
    """What was left of credit at its end."""
    left = 0
    for fund in policy.funds.values():
        account = world.funds.get(fund.name)
        if not fund.cash and fund.until_ms is not None and now_ms >= fund.until_ms and account is not None:
            left += max(0, fund.limit - ledger.used(account, ""))
    return left


def fund_lines(world: World, policy: Policy, now_ms: UnixMs) -> list[FundLine]:
    """What is left of each fund, without what is held; credit that ends first comes first, cash last."""
    lines = []
    for fund in sorted(policy.funds.values(), key=lambda fund: (fund.cash, fund.until_ms or now_ms * 2)):
        account = world.funds.get(fund.name)
        period = ledger.period(fund, now_ms)
        held = account.held.get(period, 0) if account else 0
        left = ledger.available(fund, account, now_ms) + held
        lines.append(FundLine(fund.name, fund.limit, left, fund.until_ms or 0))
    return lines
