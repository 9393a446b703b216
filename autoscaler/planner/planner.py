"""What a dollar of each fund is worth now: a forecast, a linear programme, and its duals as bids for the core.

Outside the core: it reads an `Outlook` and answers with a `FundsValued` event that enters the world through the
store, so that a backtest can replay it. Without SciPy (extra `planner`) the simple order stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Protocol

from autoscaler.clock import Clock
from autoscaler.planner.outlook import SWINGS, Outlook, outlook
from autoscaler.planner.programme import Solution, Unsolvable, solve
from autoscaler.store.store import StoreAway
from scheduling import demand
from scheduling.ledger import usd
from scheduling.messages import Event, FundsValued
from scheduling.model import Bid, DurationMs, UnixMs
from scheduling.policy import Fund, Policy
from scheduling.world import World

log = logging.getLogger(__name__)

VALID_MS: DurationMs = 3 * demand.SLOT_MS
"""Bids are made anew every slot of the week; they outlive two rounds that fail, then the simple order stands."""
LOOK_MS: DurationMs = 60_000
"""Between looks at whether funds, policy or prices changed."""

ONE_PPM = 1_000_000
CREDIT_PPM = 980_000
"""Credit counts a little less than the cash it saves, so that it goes first where both would do."""
URGENT_PPM = 200_000
"""Taken off the worth of what must pay for all that it may from now on, in order to be used up; of others in
proportion. Many places are worth nearly the same, and without this one fund would be spent after the other.
"""
LEAST_PPM, STEP_PPM = 1_000, 100
"""Of money that would be left over, what ends first goes first: a little more each by the order of their ends."""
NEVER: UnixMs = 2**62


def value_funds(seen: Outlook, now_ms: UnixMs) -> FundsValued:
    """Bids for every fund whose spend is known, and for every cap that binds now; the same input, the same bids.

    Raises ImportError without SciPy, `Unsolvable` where the solver gives up.
    """
    solution = solve(seen.problem)
    bids = [_fund_bid(seen, solution, fund, now_ms) for fund in seen.funds]
    bids += [_cap_bid(seen, solution, scope, now_ms) for scope in sorted(seen.problem.caps)]
    return FundsValued(now_ms, tuple(bid for bid in bids if bid is not None))


def _fund_bid(seen: Outlook, solution: Solution, fund: Fund, now_ms: UnixMs) -> Bid | None:
    place = next((n for n, purse in enumerate(seen.problem.purses) if purse.name == fund.name), None)
    if place is None:
        return None
    worth, until_ms = solution.worth[place], now_ms + VALID_MS
    if fund.cash:
        value = ONE_PPM + round(worth * ONE_PPM)
        why = f"a {fund.name} dollar counts as ${value / ONE_PPM:.2f} now"
        why += ", because the month's limit would not last" if value > ONE_PPM else ""
        return Bid(fund.name, value, until_ms, why)
    ends = sorted({other.until_ms or NEVER for other in seen.funds if not other.cash})
    value = round(worth * (CREDIT_PPM - URGENT_PPM * _urgency(seen, fund, place, now_ms)))
    value = max(value, LEAST_PPM) + STEP_PPM * ends.index(fund.until_ms or NEVER)
    return Bid(fund.name, value, until_ms, _why(seen, solution, fund, place, value, now_ms))


def _urgency(seen: Outlook, fund: Fund, place: int, now_ms: UnixMs) -> float:
    """Which part of all that the fund may pay until its end it must pay to be used up: 0 to 1."""
    weekly = seen.rates.get(fund.name, 0.0)
    if not fund.until_ms or not weekly:
        return 0.0
    weeks = (fund.until_ms - max(now_ms, fund.from_ms or 0)) / demand.WEEK_MS
    return min(1.0, _whole(seen, fund, place, now_ms) / ONE_PPM / (weekly * weeks))


def _whole(seen: Outlook, fund: Fund, place: int, now_ms: UnixMs) -> int:
    """Micro-dollars left of the fund, of which the programme saw its horizon's part."""
    amount, end_ms = seen.problem.purses[place].amount, seen.problem.segments[-1].end_ms
    if fund.until_ms is None or fund.until_ms <= end_ms:
        return amount
    return amount * (fund.until_ms - now_ms) // (end_ms - now_ms)


def _why(seen: Outlook, solution: Solution, fund: Fund, place: int, value_ppm: int, now_ms: UnixMs) -> str:
    purse, weekly = seen.problem.purses[place], seen.rates.get(fund.name, 0.0)
    text = f"a {fund.name} dollar counts as ${value_ppm / ONE_PPM:.2f} now, because "
    left = purse.amount - round(solution.spent[place] * ONE_PPM)
    if fund.until_ms and fund.until_ms > seen.problem.segments[-1].end_ms:
        left = left * _whole(seen, fund, place, now_ms) // max(1, purse.amount)
    if value_ppm < 2 * ONE_PPM // 100:
        if not fund.until_ms:
            return text + "there is more of it than can be used"
        return text + f"{usd(max(0, left))} of it would be left on {_date(fund.until_ms)}"
    if purse.amount <= 0:
        return text + "it is spent"
    whole = _whole(seen, fund, place, now_ms)
    lasts_ms = int(whole / ONE_PPM / weekly * demand.WEEK_MS) if weekly else NEVER
    start_ms = max(now_ms, fund.from_ms or 0)
    if fund.until_ms and start_ms + lasts_ms >= fund.until_ms:
        return text + f"all of it is needed until {_date(fund.until_ms)}"
    return text + f"it would last until {_date(start_ms + lasts_ms)}"


def _cap_bid(seen: Outlook, solution: Solution, scope: str, now_ms: UnixMs) -> Bid | None:
    """What one more machine there would save in an hour of this slot of the week, on average over its swings."""
    level = seen.levels[demand.slot_of(now_ms)] * len(SWINGS)
    found = [solution.premium.get((scope, 0, level + part), 0.0) for part in range(len(SWINGS))]
    premium = round(sum(found) / len(found) * ONE_PPM)
    if not premium:
        return None
    why = f"its machines are scarce now: each counts {usd(premium)} an hour more, which others save there"
    return Bid(scope, 0, now_ms + VALID_MS, why, premium)


def _date(at_ms: UnixMs) -> str:
    """`12 December 2026`."""
    then = datetime.fromtimestamp(min(at_ms, 4_102_444_800_000) / 1000, UTC)
    return f"{then.day} {then:%B %Y}"


class Inbox(Protocol):
    """What of the store the planner needs."""

    async def append(self, events: Sequence[Event]) -> object: ...


class Source(Protocol):
    """What of the daemon the planner needs; its policy may change under it."""

    @property
    def store(self) -> Inbox: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def policy(self) -> Policy: ...


class Planner:
    """The rounds of one leader: each slot of the week, and when funds, policy or prices change."""

    def __init__(self, source: Source, world: World) -> None:
        self.source, self.world, self.clock = source, world, source.clock

    async def run(self) -> None:
        if find_spec("scipy") is None:
            log.info('funds are spent in the simple order: bid prices need pip install ".[planner]" in a checkout')
            return
        done: object = None
        due_ms = 0
        while True:
            now_ms = self.clock.now_ms()
            mark = self._mark()
            if self.source.policy.funds and (now_ms >= due_ms or mark != done):
                try:
                    await self.round(now_ms)
                    done, due_ms = mark, demand.slot_end_ms(now_ms)
                except (Unsolvable, StoreAway) as error:
                    log.warning("no new bids: %s", error)
                except Exception:
                    log.exception("the planner failed in an unforeseen way; the last bids stand until they end")
                    done, due_ms = mark, demand.slot_end_ms(now_ms)
            await self.clock.sleep(LOOK_MS)

    async def round(self, now_ms: UnixMs) -> None:
        """One set of bids. The programme is solved in a thread, on a picture of the world."""
        policy = self.source.policy
        seen = outlook(self.world, policy, now_ms)
        await self.source.store.append([await asyncio.to_thread(value_funds, seen, now_ms)])

    def _mark(self) -> object:
        """Changes when the bids should: policy, prices, what is known of the funds."""
        funds = [
            (account.name, account.known, tuple(account.spent_before.items()))
            for account in self.world.funds.values()
        ]
        return self.source.policy.hash, tuple(funds), hash(tuple(self.world.offers.values()))
