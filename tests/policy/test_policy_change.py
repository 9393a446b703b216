"""What an operator is told when a policy is loaded again."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.policy.change import changes
from scheduling.policy import Price, ProviderPolicy, Rule
from tests.core.fleet import Fleet, credit, policy, runner_type


def told(before: object, after: object) -> list[str]:
    fleet = Fleet(before)  # type: ignore[arg-type]
    return changes(fleet.world, before, replace(after, hash="p2"), fleet.now)  # type: ignore[arg-type, type-var]


def test_the_same_policy_changes_nothing() -> None:
    assert told(policy(), policy()) == []


def test_a_price_that_turns_the_order_around() -> None:
    dear = {
        "east": ProviderPolicy("east", "sim", price=Price(times_ppm=9_000_000)),
        "west": ProviderPolicy("west", "sim"),
    }
    assert told(policy(), policy(providers=dear)) == [
        "1 provider changed: east",
        "1 type changes provider order: linux",
    ]


def test_what_comes_and_goes() -> None:
    names = [f"t{n}" for n in range(7)]
    before = policy(*map(runner_type, names))
    after = policy(runner_type("new"), funds=(credit("other", 5),), rules=(Rule(deny=("east",)),))
    assert told(before, after) == [
        "1 runner type new: new",
        "7 runner types removed, drained now: t0, t1, t2, t3, t4 and 2 more",
        "1 fund new: other",
        "1 fund removed: grant",
        "rules change",
    ]
