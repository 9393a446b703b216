"""The pace of JIT creations: a limit that GitHub does not publish, felt for."""

from __future__ import annotations

import asyncio
from collections import deque

from autoscaler.github.budget import Budgets, JitPace, Need
from tests.github.world import OthersClock, StillClock

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


async def test_sixty_start_at_once_and_the_next_waits_for_the_minute() -> None:
    clock = StillClock()
    pace = JitPace(clock)
    waits = [await pace.acquire() for _ in range(60)]
    assert set(waits) == {0}
    assert pace.wait_ms() == MINUTE + SECOND
    clock.now += 20_000
    assert await pace.acquire() == 41_000
    assert pace.wait_ms() == 0


async def test_those_who_wait_come_in_order() -> None:
    clock = StillClock()
    pace = JitPace(OthersClock(clock))
    for _ in range(60):
        await pace.acquire()
        clock.now += 100
    waiting = [asyncio.create_task(pace.acquire()) for _ in range(30)]
    await asyncio.sleep(0)
    assert pace.wait_ms() == 58_000  # 30 are promised the places of the first 30
    pace.rate = 100  # a higher pace lets nobody overtake
    assert pace.wait_ms() == 57_900
    for task in waiting:
        task.cancel()


async def test_no_minute_has_more_starts_than_the_rate() -> None:
    clock = StillClock()
    pace = JitPace(clock)
    starts = []
    for _ in range(200):
        await pace.acquire()
        starts.append(clock.now_ms())
    for first, start in enumerate(starts):
        assert sum(start <= other < start + MINUTE for other in starts[first:]) <= 60


async def test_it_grows_by_ten_a_full_minute_to_a_ceiling() -> None:
    pace = JitPace(StillClock())
    for _ in range(60):
        await pace.acquire()
    for _ in range(60):
        pace.accepted()
    assert 69 < pace.rate < 71
    for _ in range(20_000):
        await pace.acquire()
        pace.accepted()
    assert pace.rate == 300


async def test_it_does_not_grow_while_nothing_is_held_back() -> None:
    clock = StillClock()
    pace = JitPace(clock)
    for _ in range(1_000):
        await pace.acquire()
        pace.accepted()
        clock.now += 2 * SECOND
    assert pace.rate == 60


async def test_while_a_queue_stands_it_stays_at_the_limit_that_it_has_met() -> None:
    """GitHub that allows 80 in any minute: five hours of a queue that never ends."""
    clock, limit = StillClock(), 80
    pace, made, refused = JitPace(clock), deque[int](), 0
    start = clock.now
    while clock.now < start + 5 * HOUR:
        await pace.acquire()
        if sum(at > clock.now - MINUTE for at in list(made)[-limit:]) < limit:
            made.append(clock.now)
            pace.accepted()
        else:
            refused += 1
            pace.limited()
            clock.now += MINUTE  # GitHub's advice for a limit that names no time
    assert len(made) / (5 * 60) > 0.94 * limit
    assert refused <= 6  # at first, and once an hour to see whether more is allowed now


async def test_a_refusal_for_another_reason_does_not_hold_it_down() -> None:
    clock = StillClock()
    pace = JitPace(clock)
    await pace.acquire()
    pace.accepted()
    pace.limited()
    clock.now += HOUR + MINUTE
    for _ in range(30):
        await pace.acquire()
    pace.accepted()
    assert pace.rate > 30


async def test_it_halves_once_a_minute_down_to_a_floor() -> None:
    clock = StillClock()
    pace = JitPace(clock)
    for _ in range(10):
        pace.limited()
    assert pace.rate == 30
    for _ in range(10):
        clock.now += MINUTE
        pace.limited()
    assert pace.rate == 5


def headers(left: int, reset_s: int) -> dict[str, str]:
    return {"x-ratelimit-limit": "100", "x-ratelimit-remaining": str(left), "x-ratelimit-reset": str(reset_s)}


def test_a_budget_keeps_a_part_for_more_urgent_calls_and_fills_again() -> None:
    budgets = Budgets("1", "octo-org")
    for need in Need:
        budgets.learn(need, headers(10, 5_000), 0)
    now = 4_000_000
    assert budgets.wait_ms(Need.LIST, now) == 1_000_000
    assert (budgets.wait_ms(Need.RUNNER, now), budgets.wait_ms(Need.JIT, now)) == (0, 0)
    budgets.learn(Need.LIST, headers(0, 5_000), 0)
    assert budgets.wait_ms(Need.JIT, now) == 1_000_000
    assert budgets.wait_ms(Need.JIT, 5_000_000) == 0
    assert budgets.remaining(Need.JIT, 5_000_000) == 100


def test_answers_that_overtake_one_another_do_not_fill_a_budget() -> None:
    budgets = Budgets("1", "octo-org")
    budgets.learn(Need.JIT, headers(7, 5_000), 0)
    budgets.learn(Need.JIT, headers(9, 5_000), 0)
    assert budgets.remaining(Need.JIT, 0) == 7
    budgets.learn(Need.JIT, headers(99, 8_600), 0)
    assert budgets.remaining(Need.JIT, 5_100_000) == 99
    budgets.learn(Need.JIT, {"x-ratelimit-limit": "many"}, 0)
    assert budgets.remaining(Need.JIT, 5_100_000) == 99
