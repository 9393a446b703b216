"""Reserved machines are paid for whether they run or not: they come first, cost nothing, end with their count."""

from __future__ import annotations

from scheduling.matching import Taste
from scheduling.model import Purchase
from scheduling.placement import Wish, explain
from scheduling.policy import Price, ProviderPolicy, Selector
from tests.core.fleet import Fleet, offer, policy, runner_type

EAST = {"east": ProviderPolicy("east", "sim")}
BOTH = (Purchase.RESERVED, Purchase.ON_DEMAND)


def entry(count: int, **changes: object) -> Selector:
    return Selector("east", purchase=BOTH, count=count, **changes)


def fleet_of(*selectors: Selector, zones: int = 1) -> Fleet:
    offers = tuple(offer("east", zone=f"r1-{letter}") for letter in "abc"[:zones])
    return Fleet(policy(runner_type(selectors=selectors), providers=EAST), {"east": offers})


def purchases(fleet: Fleet) -> list[str]:
    return [runner.offer.purchase.value for runner in fleet.runners()]


def test_first_the_reserved_ones_then_those_on_demand() -> None:
    fleet = fleet_of(entry(2))
    for number in (1, 2, 3):
        fleet.job(number)
    fleet.step()
    assert purchases(fleet) == ["reserved", "reserved", "on_demand"]
    free, paid = fleet.runners()[0], fleet.runners()[2]
    assert (free.price, free.fund, free.hold) == (0, "", ())
    assert paid.fund == "grant"


def test_its_price_is_nothing_whatever_the_policy_adds_to_list_prices() -> None:
    dearer = {"east": ProviderPolicy("east", "sim", price=Price(plus=30_000))}
    fleet = Fleet(policy(runner_type(selectors=(entry(1),)), providers=dearer), {"east": (offer("east"),)})
    fleet.job(1)
    fleet.step()
    assert fleet.runners()[0].price == 0


def test_the_count_is_of_the_entry_wherever_its_machines_run() -> None:
    fleet = fleet_of(entry(2), zones=3)
    for number in range(5):
        fleet.job(number + 1)
    fleet.step()
    assert sorted(purchases(fleet)) == ["on_demand"] * 3 + ["reserved"] * 2


def test_types_that_name_the_same_machines_share_them() -> None:
    types = (runner_type("one", selectors=(entry(1),)), runner_type("two", selectors=(entry(1),)))
    fleet = Fleet(policy(*types, providers=EAST), {"east": (offer("east"),)})
    fleet.job(1, labels=("self-hosted", "linux", "one"))
    fleet.job(2, labels=("self-hosted", "linux", "two"))
    fleet.step()
    assert sorted(purchases(fleet)) == ["on_demand", "reserved"]


def test_one_that_is_gone_makes_room() -> None:
    fleet = fleet_of(Selector("east", purchase=(Purchase.RESERVED,), count=1))
    fleet.job(1)
    fleet.job(2)
    (first,) = fleet.idle()
    assert fleet.plan.refusals["linux@repo:acme/app"][0].refusal == "all 1 that are reserved are in use"
    fleet.start(1, first)
    fleet.finish(1, first)
    fleet.run(120_000)
    assert fleet.record(2).runner_type == "linux"
    assert len(fleet.runners()) == 2


def test_explain_shows_it_first_and_free() -> None:
    fleet = fleet_of(entry(1))
    wish = Wish(fleet.policy.runner_types["linux"], "acme/app", None, Taste())
    rows = explain(fleet.world, fleet.policy, wish, fleet.now)
    assert [(row.offer, row.price, row.fund) for row in rows] == [
        ("east/r1-a/big/reserved", 0, ""),
        ("east/r1-a/big/on_demand", 500_000, "grant"),
    ]
