"""The record of demand: weeks fold into one, old ones fade, a young record is spread evenly."""

from __future__ import annotations

import pytest

from scheduling import demand
from scheduling.model import HOUR_MS
from scheduling.world import World

MONDAY = 4 * 24 * HOUR_MS
DAY = 24 * HOUR_MS


def used(world: World, start_ms: int, hours: float, times: int = 1) -> None:
    end = start_ms + int(hours * HOUR_MS)
    for _ in range(times):
        demand.used(world, "linux", start_ms, end, end)


def test_a_machine_counts_in_every_slot_it_lives_in() -> None:
    world = World("t")
    used(world, MONDAY + 3 * HOUR_MS, 2)
    assert world.demand["linux"].machine_ms[:2] == [HOUR_MS, HOUR_MS]


def test_regular_weeks_give_back_the_week() -> None:
    world = World("t")
    for day in range(28):
        if day % 7 < 5:
            used(world, MONDAY + day * DAY + 8 * HOUR_MS, 4, times=3)
    week = demand.weekly(world.demand["linux"], MONDAY + 28 * DAY)
    assert week[2] == pytest.approx(12 * HOUR_MS, rel=0.1)
    assert week[3] == 0
    assert sum(week) == pytest.approx(5 * 12 * HOUR_MS, rel=0.1)


def test_recent_weeks_weigh_more() -> None:
    world = World("t")
    for week, times in enumerate((1, 1, 1, 1, 9, 9)):
        used(world, MONDAY + week * 7 * DAY, 4, times)
    assert demand.weekly(world.demand["linux"], MONDAY + 6 * 7 * DAY)[0] > 5 * 4 * HOUR_MS


def test_the_first_days_are_spread_over_the_week() -> None:
    world = World("t")
    used(world, MONDAY, 4, times=6)
    week = demand.weekly(world.demand["linux"], MONDAY + DAY)
    assert len(set(week)) == 1
    assert sum(week) == pytest.approx(7 * 24 * HOUR_MS, rel=0.1)


def test_a_machine_that_never_ran_leaves_no_record() -> None:
    world = World("t")
    assert demand.used(world, "linux", MONDAY, MONDAY, MONDAY) == set()
    assert not world.demand
