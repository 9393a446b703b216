"""From a world to bids: what they say, that they are the same each time, what stands without them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from autoscaler.clock import Clock
from autoscaler.planner.outlook import outlook
from autoscaler.planner.planner import Planner, value_funds
from scheduling import demand, placement
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.matching import Taste
from scheduling.model import Hardware, Offer, Purchase, Usage
from scheduling.placement import Wish
from scheduling.plan import plan
from scheduling.policy import Access, Forks, Fund, Policy, ProviderPolicy, RunnerType
from scheduling.world import World

NOW = int(datetime(2026, 11, 30, tzinfo=UTC).timestamp() * 1000)
DAY, HOUR, USD = 24 * 3_600_000, 3_600_000, 1_000_000


def offer(provider: str, dollars: float, count: int | None = None) -> Offer:
    return Offer(provider, "r", "r-1", "m", Purchase.ON_DEMAND, int(dollars * USD), Hardware(cpus=4), count=count)


def credit(name: str, dollars: int, *pays: str, days: int = 28, **changes: object) -> Fund:
    base = Fund(
        name, False, dollars * USD, until_ms=NOW + days * DAY, pays=frozenset(pays), spent=0, spent_as_of_ms=NOW
    )
    return replace(base, **changes)


CASH = Fund("cash", True, 100_000 * USD, spent=0, spent_as_of_ms=NOW)


def policy(*funds: Fund, **providers: ProviderPolicy) -> Policy:
    linux = RunnerType("linux", ("linux",), Hardware(cpus=2), access=Access(("acme/*",), Forks.ALLOW))
    known = {name: ProviderPolicy(name, "sim") for name in ("aws", "cheap")} | providers
    return Policy("p", known, {"linux": linux}, {fund.name: fund for fund in funds})


def world(rules: Policy, *offers: Offer, machines: int = 10) -> World:
    """So many machines of linux ran day and night for the last three weeks."""
    found = World("test")
    for name in rules.providers:
        sold = tuple(one for one in offers if one.provider == name)
        evolve(found, m.OffersListed(NOW, name, sold), NOW)
    plan(found, rules, NOW)
    for hour in range(NOW - 21 * DAY, NOW, 4 * HOUR):
        for _ in range(machines):
            demand.used(found, "linux", hour, hour + 4 * HOUR, hour + 4 * HOUR)
    return found


def bids(rules: Policy, seen: World, now_ms: int = NOW) -> dict[str, m.Bid]:
    return {bid.fund: bid for bid in value_funds(outlook(seen, rules, now_ms), now_ms).bids}


def first(rules: Policy, seen: World, now_ms: int = NOW) -> tuple[str, str]:
    wish = Wish(rules.runner_types["linux"], "acme/app", None, Taste())
    verdict = placement.explain(seen, rules, wish, now_ms)[0]
    return verdict.offer.split("/")[0], verdict.fund


class TestBids:
    """Ten machines at $1 on aws or $0.50 elsewhere: $6,720 of aws money in four weeks."""

    pytest.importorskip("scipy")
    sold = (offer("aws", 1.0), offer("cheap", 0.5))

    def test_credit_is_worth_the_cash_it_saves(self) -> None:
        rules = policy(credit("gift", 2_000, "aws"), CASH)
        bid = bids(rules, world(rules, *self.sold))["gift"]
        assert 450_000 <= bid.value_ppm <= 500_000
        assert bid.why.startswith("a gift dollar counts as $0.46 now, because it would last until 8 ")
        assert bid.why.endswith("December 2026")

    def test_credit_that_will_be_left_over_is_worth_next_to_nothing_and_says_how_much(self) -> None:
        rules = policy(credit("gift", 20_000, "aws"), CASH)
        bid = bids(rules, world(rules, *self.sold))["gift"]
        assert bid.value_ppm < 10_000
        assert bid.why.startswith("a gift dollar counts as $0.00 now, because $13,")
        assert bid.why.endswith("of it would be left on 28 December 2026")

    def test_a_fund_beyond_the_horizon_counts_in_proportion(self) -> None:
        """A year's $26,000 are $500 a week; ten machines could use $1,680 a week of it."""
        rules = policy(credit("gift", 26_000, "aws", days=364), CASH)
        bid = bids(rules, world(rules, *self.sold))["gift"]
        assert 400_000 < bid.value_ppm < 490_000
        assert "it would last until" in bid.why
        assert bid.why.endswith(" March 2027")

    def test_what_ends_first_of_two_leftovers_goes_first(self) -> None:
        rules = policy(credit("late", 20_000, "aws", days=40), credit("soon", 20_000, "aws"), CASH)
        found = bids(rules, world(rules, *self.sold))
        assert found["soon"].value_ppm < found["late"].value_ppm < found["cash"].value_ppm == 1_000_000

    def test_scarce_machines_get_a_premium_and_lose_to_others(self) -> None:
        lab = ProviderPolicy("cheap", "sim", max_runners=2)
        rules = policy(CASH, cheap=lab)
        bid = bids(rules, world(rules, *self.sold))["provider:cheap"]
        assert bid.premium > 400_000
        assert "scarce now" in bid.why

    def test_a_fund_for_other_repositories_is_left_alone(self) -> None:
        rules = policy(credit("gift", 2_000, "aws", repositories=("other/*",)), CASH)
        seen = world(rules, *self.sold)
        seen.usage["acme/app"] = Usage("acme/app", 1e9, NOW)
        assert bids(rules, seen)["gift"].value_ppm < 10_000

    def test_the_same_world_gives_the_same_bids(self) -> None:
        rules = policy(credit("gift", 2_000, "aws"), credit("other", 900, "aws", "cheap", days=9), CASH)
        assert bids(rules, world(rules, *self.sold)) == bids(rules, world(rules, *self.sold))

    def test_a_fund_whose_spend_is_unknown_gets_no_bid(self) -> None:
        rules = policy(credit("gift", 2_000, "aws", spent=None), CASH)
        assert "gift" not in bids(rules, world(rules, *self.sold))

    def test_bids_decide_until_they_end(self) -> None:
        """In the simple order credit goes before cash; a gift worth $0.70 leaves this job to cheap cash."""
        rules = policy(credit("gift", 2_000, "aws", until_ms=None), CASH)
        seen = world(rules, *self.sold)
        assert first(rules, seen) == ("aws", "gift")
        ends = NOW + HOUR
        evolve(seen, m.FundsValued(NOW, (m.Bid("gift", 700_000, ends), m.Bid("cash", 1_000_000, ends))), NOW)
        assert first(rules, seen) == ("cheap", "cash")
        assert first(rules, seen, ends + 10 * 60_000) == ("aws", "gift")

    def test_a_premium_keeps_scarce_machines_for_those_who_save_more_there(self) -> None:
        rules = policy(CASH)
        seen = world(rules, *self.sold)
        assert first(rules, seen) == ("cheap", "cash")
        evolve(seen, m.FundsValued(NOW, (m.Bid("provider:cheap", 0, NOW + HOUR, premium=600_000),)), NOW)
        assert first(rules, seen) == ("aws", "cash")


@dataclass
class Inbox:
    events: list[m.Event] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, events: Sequence[m.Event]) -> None:
        self.events += events
        self.news.set()


@dataclass
class Source:
    policy: Policy
    clock: Clock
    store: Inbox = field(default_factory=Inbox)


async def test_a_leader_values_its_funds_and_again_when_a_price_changes() -> None:
    pytest.importorskip("scipy")
    rules = policy(credit("gift", 2_000, "aws"), CASH)
    seen = world(rules, offer("aws", 1.0), offer("cheap", 0.5))
    source = Source(rules, Clock(speed=100_000))
    running = asyncio.create_task(Planner(source, seen).run())
    async with asyncio.timeout(10):
        await source.store.news.wait()
        source.store.news.clear()
        evolve(seen, m.OffersListed(NOW, "cheap", (offer("cheap", 0.8),)), NOW)
        await source.store.news.wait()
    running.cancel()
    assert all(isinstance(event, m.FundsValued) for event in source.store.events)


async def test_without_scipy_the_simple_order_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    rules = policy(credit("gift", 2_000, "aws"), CASH)
    seen = world(rules, offer("aws", 1.0), offer("cheap", 0.5))
    source = Source(rules, Clock())
    await asyncio.wait_for(Planner(source, seen).run(), 5)
    assert (source.store.events, seen.bids) == ([], {})
    assert first(rules, seen) == ("aws", "gift")
