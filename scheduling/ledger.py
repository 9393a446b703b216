"""Funds, holds and settlement, in integer micro-dollars.

A hold is a runner's price over the longest life it may have; each part lies in one fund and one period. The
scheduler adds a hold only where `available` covers it, so settled + held never exceed a fund by a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from scheduling.messages import FundSpentStated, RunnerSettled
from scheduling.model import HOUR_MS, DurationMs, FundAccount, HoldPart, MicroUSD, Runner, Spend, Totals, UnixMs
from scheduling.policy import Fund, RunnerType

DAY_MS: DurationMs = 24 * HOUR_MS

REAPING_LAG_MS: DurationMs = 300_000
"""Between the end of a runner's longest life and the proof that it is gone; part of every hold."""

Funds = dict[str, FundAccount]
Changed = set[tuple[str, str]]


def price_of(price: MicroUSD, duration_ms: DurationMs) -> MicroUSD:
    """Cost of that long at `price` an hour, rounded up."""
    return -(-price * max(0, duration_ms) // HOUR_MS)


def longest_life_ms(runner_type: RunnerType) -> DurationMs:
    """From the create call to the proof of absence, at the worst."""
    times = runner_type
    return times.boot_timeout_ms + times.ready_max_age_ms + times.max_lifetime_ms + REAPING_LAG_MS


def usd(amount: MicroUSD) -> str:
    """`$0.34`; four places for small amounts that cents would hide."""
    places = 2 if abs(amount) >= 1_000_000 or amount % 10_000 == 0 else 4
    return f"${Decimal(amount).scaleb(-6):,.{places}f}"


def month(at_ms: UnixMs) -> str:
    return day(at_ms)[:7]


def next_month_ms(at_ms: UnixMs) -> UnixMs:
    """First instant of the following month, UTC."""
    then = datetime.fromtimestamp(at_ms / 1000, UTC)
    year, index = divmod(then.year * 12 + then.month, 12)
    return int(datetime(year, index + 1, 1, tzinfo=UTC).timestamp() * 1000)


def day(at_ms: UnixMs) -> str:
    return _day(at_ms // DAY_MS)


@lru_cache(256)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")


def period(fund: Fund, at_ms: UnixMs) -> str:
    return month(at_ms) if fund.cash else ""


def open_at(fund: Fund, at_ms: UnixMs) -> bool:
    """Whether the fund's own dates allow spending at that time."""
    return (fund.from_ms is None or fund.from_ms <= at_ms) and (fund.until_ms is None or at_ms < fund.until_ms)


def spent(account: FundAccount, name: str) -> MicroUSD:
    """Stated and settled in that period."""
    return account.spent_before.get(name, 0) + account.settled.get(name, 0)


def used(account: FundAccount, name: str) -> MicroUSD:
    """Stated, settled and held in that period."""
    return spent(account, name) + account.held.get(name, 0)


def available(fund: Fund, account: FundAccount | None, at_ms: UnixMs) -> MicroUSD:
    """What may still be held in the fund's period at `at_ms`; 0 for a fund whose spend is unknown."""
    if account is None or not account.known:
        return 0
    left = fund.limit - used(account, period(fund, at_ms))
    if fund.daily is not None:
        today = account.settled_by_day.get(day(at_ms), 0)
        left = min(left, fund.daily - today - sum(account.held.values()))
    return left


def hold(funds: Funds, runner: Runner) -> Changed:
    """Book a runner's hold. A fund without a record gets one that stays closed."""
    changed: Changed = set()
    for part in runner.hold:
        account = funds.setdefault(part.fund, FundAccount(part.fund))
        account.held[part.period] = account.held.get(part.period, 0) + part.amount
        changed.add(("fund", part.fund))
    return changed


def release(funds: Funds, runner: Runner) -> Changed:
    """Take a runner's hold out of its funds."""
    changed: Changed = set()
    for part in runner.hold:
        account = funds[part.fund]
        left = account.held.get(part.period, 0) - part.amount
        if left:
            account.held[part.period] = left
        else:
            account.held.pop(part.period, None)
        changed.add(("fund", part.fund))
    return changed


def lifetime(runner: Runner) -> tuple[UnixMs, UnixMs]:
    """From the create call to the accepted stop (clouds stop billing there) or the first proof of absence."""
    if not (runner.ref or runner.booted_ms):
        return runner.planned_ms, runner.planned_ms
    start = runner.created_ms or runner.unknown_ms or runner.planned_ms
    end = runner.stop_ms or runner.absent_ms
    return start, max(start, end)


def bill(runner: Runner) -> tuple[HoldPart, ...]:
    """What each part of the hold must pay for the runner's actual lifetime; the last part pays any excess."""
    start, end = lifetime(runner)
    parts = []
    for index, part in enumerate(runner.hold):
        last = index == len(runner.hold) - 1
        begin = start if index == 0 else max(start, part.from_ms)
        stop = end if last else min(end, part.until_ms)
        amount = price_of(runner.price, stop - begin)
        if amount:
            parts.append(HoldPart(part.fund, part.period, begin, stop, amount))
    return tuple(parts)


def settle(funds: Funds, event: RunnerSettled) -> Changed:
    """Book what a runner cost. Its hold was released before."""
    changed: Changed = set()
    today = day(event.at_ms)
    for name, period_name, amount in event.parts:
        account = funds[name]
        account.settled[period_name] = account.settled.get(period_name, 0) + amount
        account.settled_by_day[today] = account.settled_by_day.get(today, 0) + amount
        while len(account.settled_by_day) > 62:
            del account.settled_by_day[min(account.settled_by_day)]
        changed.add(("fund", name))
    return changed


def book(spends: dict[str, Spend], runner: Runner, event: RunnerSettled) -> Changed:
    """Add a settled runner to the statements of the funds that paid it; its job counts with its first dollar."""
    changed: Changed = set()
    repository = runner.repository if runner.started_ms else ""
    start, end = lifetime(runner)
    for index, (fund, _, amount) in enumerate(event.parts):
        line = Spend(fund, month(event.at_ms), repository)
        line = spends.setdefault(line.key, line)
        line.amount += amount
        if index == 0:
            line.jobs += bool(repository)
            line.machine_ms += end - start
        changed.add(("spend", line.key))
    return changed


def overrun(fund: Fund, account: FundAccount, name: str | None = None) -> MicroUSD:
    """By how much facts (a zombie, a lowered limit, an adopted machine) exceed the limit, in a period or in all.

    A decision never does, so a fund that is overrun is closed by having nothing left.
    """
    periods = {*account.spent_before, *account.settled, *account.held} if name is None else {name}
    return sum(max(0, used(account, each) - fund.limit) for each in periods)


def overrun_of_all(policy_funds: Mapping[str, Fund], funds: Funds) -> MicroUSD:
    """Over all periods of all funds of the policy."""
    return sum(overrun(policy_funds[name], account) for name, account in funds.items() if name in policy_funds)


def state_spent(funds: Funds, event: FundSpentStated) -> Changed:
    """The fund's whole spend is known from now on: it opens. What we settled ourselves is not counted twice.

    What we settled on days after `as_of_ms` is not in the amount, and adds to it. An older statement is no news.
    """
    account = funds.setdefault(event.fund, FundAccount(event.fund))
    if account.known and event.as_of_ms < account.spent_as_of_ms:
        return set()
    stated = day(event.as_of_ms)
    later = sum(amount for when, amount in account.settled_by_day.items() if when > stated)
    ours = max(0, account.settled.get(event.period, 0) - later)
    account.known = True
    account.spent_before[event.period] = max(0, event.amount - ours)
    account.spent_as_of_ms, account.spent_said_ms = event.as_of_ms, event.at_ms
    account.spent_source = event.source
    return {("fund", event.fund)}


def opening(fund: Fund, at_ms: UnixMs) -> FundSpentStated | None:
    """What makes a fund without a record known: a fresh `spent`, or a beginning not over a day ago."""
    if fund.spent is not None and fund.spent_as_of_ms >= at_ms - at_ms % DAY_MS - DAY_MS:
        of = period(fund, fund.spent_as_of_ms)
        return FundSpentStated(at_ms, fund.name, of, fund.spent, fund.spent_as_of_ms, "policy file")
    if fund.from_ms is not None and at_ms - DAY_MS <= fund.from_ms:
        return FundSpentStated(at_ms, fund.name, period(fund, at_ms), 0, at_ms, "the fund has just begun")
    return None


def count(totals: Totals, runner: Runner) -> None:
    """Add a settled runner to the fleet's totals."""
    if not runner.cost and not runner.ended_ms:
        return
    name = runner.offer.provider
    totals.cost_by_provider[name] = totals.cost_by_provider.get(name, 0) + runner.cost
    start, end = lifetime(runner)
    ready = runner.booted_ms or end
    totals.boot += price_of(runner.price, ready - start)
    totals.idle += price_of(runner.price, (runner.started_ms or end) - ready)
