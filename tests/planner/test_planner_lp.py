"""Tiny programmes whose duals are known by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from autoscaler.planner.programme import Lane, Option, Problem, Purse, Segment, solve
from scheduling.model import HOUR_MS

pytest.importorskip("scipy")

USD = 1_000_000
WEEK = 168.0


def problem(
    *lanes: Lane, purses: tuple[Purse, ...], weeks: tuple[int, ...] = (1,), caps: dict[str, float] | None = None
) -> Problem:
    """One level; segments of so many weeks each."""
    edges = [sum(weeks[:n]) for n in range(len(weeks) + 1)]
    segments = tuple(
        Segment(int(a * WEEK * HOUR_MS), int(b * WEEK * HOUR_MS), (WEEK * (b - a),)) for a, b in pairwise(edges)
    )
    limits = {scope: (cap,) for scope, cap in (caps or {}).items()}
    return Problem(lanes, segments, purses, limits, (WEEK,))


def lane(hours: float, *options: Option, name: str = "linux") -> Lane:
    return Lane(name, (hours,), options)


CASH = Purse("cash", 10_000 * USD, 0, 9, cash=True)
AWS = Option(("provider:aws",), 1 * USD, ("aws-credit", "cash"))
CHEAP = Option(("provider:cheap",), USD // 2, ("cash",))


def test_credit_at_a_dear_place_saves_the_cash_of_the_cheap_one() -> None:
    """100 hours, $40 of credit: a credit dollar buys one hour at aws that cash would buy for $0.50."""
    found = solve(problem(lane(100, AWS, CHEAP), purses=(Purse("aws-credit", 40 * USD, 0, 0), CASH)))
    assert found.worth == pytest.approx([0.5, 0], abs=1e-3)
    assert found.spent == pytest.approx([40, 30])


def test_credit_that_nobody_can_use_up_is_worth_nothing() -> None:
    found = solve(problem(lane(100, AWS, CHEAP), purses=(Purse("aws-credit", 400 * USD, 0, 0), CASH)))
    assert found.worth == pytest.approx([0, 0], abs=1e-3)
    assert found.spent == pytest.approx([100, 0])


def test_a_fund_that_ends_first_and_has_plenty_leaves_the_longer_one_for_later() -> None:
    short, long = Purse("short", 500 * USD, 0, 0), Purse("long", 60 * USD, 0, 1)
    both = Option(("provider:aws",), USD, ("short", "long", "cash"))
    found = solve(problem(lane(100, both), purses=(short, long, CASH), weeks=(1, 1)))
    assert found.worth == pytest.approx([0, 1, 0], abs=1e-3)
    assert found.spent == pytest.approx([100, 60, 40])


def test_scarce_machines_carry_the_premium_of_who_saves_most_there() -> None:
    """One free machine (168 hours a week), 200 hours of jobs that cost $2 elsewhere: an hour saves $2."""
    lab = Option(("provider:lab",), 0, ())
    big = lane(200, lab, Option(("provider:aws",), 2 * USD, ("cash",)), name="big")
    small = lane(50, lab, Option(("provider:aws",), USD // 4, ("cash",)), name="small")
    found = solve(problem(big, small, purses=(CASH,), caps={"provider:lab": 1.0}))
    assert found.premium == pytest.approx({("provider:lab", 0, 0): 2.0})


def test_cash_whose_month_would_not_last_counts_more_than_a_dollar() -> None:
    found = solve(
        problem(
            lane(100, AWS), purses=(Purse("aws-credit", 10 * USD, 0, 0), Purse("cash", 50 * USD, 0, 0, cash=True))
        )
    )
    assert found.worth[1] > 0
    assert found.worth[0] == pytest.approx(1 + found.worth[1], abs=1e-3)


def test_a_daily_limit_holds_in_every_segment() -> None:
    found = solve(problem(lane(100, AWS), purses=(Purse("aws-credit", 900 * USD, 0, 0, daily=5 * USD), CASH)))
    assert found.spent == pytest.approx([35, 65])


def test_no_demand_no_worth() -> None:
    assert solve(problem(purses=(CASH,))).worth == [0.0]
