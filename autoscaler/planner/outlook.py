"""The coming weeks as the planner sees them: demand by the past weeks' shape, money with its dates, caps.

Made from the world in an instant, so that the world may move on while the programme is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

from autoscaler.planner.programme import Lane, Option, Problem, Purse, Segment
from scheduling import demand, ledger
from scheduling.matching import Taste, selected
from scheduling.model import HOUR_MS, DurationMs, MicroUSD, Purchase, UnixMs
from scheduling.placement import Wish, ineligible, pays
from scheduling.policy import Fund, Policy, RunnerType, matches
from scheduling.windows import is_open
from scheduling.world import World

HORIZON_MS: DurationMs = 13 * demand.WEEK_MS
"""What a fund has beyond it counts in proportion to its time."""
LEVELS = 2
SWINGS = (-1.22, 0.0, 1.22)
"""Demand swings about its mean: so many standard deviations in a third of the hours each."""
BURST = 2.0
"""Variance of the machines wanted at once over their mean; 1 if every job came by itself."""
MOST_SWING = 0.8


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the planner must know of the world. Made in an instant, so that the world may move on."""

    problem: Problem
    levels: tuple[int, ...]  # of each slot of the week
    funds: tuple[Fund, ...]
    rates: dict[str, float]  # fund -> dollars a week if it paid for all that it may


def outlook(world: World, policy: Policy, now_ms: UnixMs) -> Outlook:
    """The programme over the coming weeks, from the demand of the past ones."""
    weekly = {
        name: [ms / HOUR_MS for ms in demand.weekly(record, now_ms)]
        for name, record in world.demand.items()
        if name in policy.runner_types
    }
    levels = _levels([sum(hours[slot] for hours in weekly.values()) for slot in range(demand.SLOTS)])
    week_hours = tuple(levels.count(level) * demand.SLOT_MS / HOUR_MS for level in range(max(levels) + 1))
    segments = _segments(policy, levels, now_ms)
    funds = tuple(fund for fund in policy.funds.values() if (a := world.funds.get(fund.name)) and a.known)
    funds += tuple(f for f in policy.funds.values() if f not in funds and f.from_ms and f.from_ms > now_ms)
    purses = [purse for fund in funds for purse in _purses(world, fund, segments, now_ms)]
    caps = _caps(world, policy, levels)
    lanes = [
        _lane(world, policy, rtype, group, [h * share for h in weekly[rtype.name]], levels)
        for rtype in policy.runner_types.values()
        if rtype.name in weekly
        for group, share in _groups(world, policy, rtype)
    ]
    problem = _swung(Problem(tuple(lanes), tuple(segments), tuple(purses), caps, week_hours))
    return Outlook(problem, tuple(levels), funds, _rates(lanes))


def _levels(load: Sequence[float]) -> list[int]:
    """Slots of the week in `LEVELS` groups of like load."""
    order = sorted(range(len(load)), key=lambda slot: (-load[slot], slot))
    levels = [0] * len(load)
    for place, slot in enumerate(order):
        levels[slot] = place * LEVELS // len(load)
    return levels


def _segments(policy: Policy, levels: list[int], now_ms: UnixMs) -> list[Segment]:
    ends = [fund.until_ms for fund in policy.funds.values() if fund.until_ms and fund.until_ms > now_ms]
    end = now_ms + min(max([demand.WEEK_MS, *(ms - now_ms for ms in ends)]), HORIZON_MS)
    dates = {now_ms, end, *ends, *(fund.from_ms for fund in policy.funds.values() if fund.from_ms)}
    if any(fund.cash for fund in policy.funds.values()):
        month = ledger.next_month_ms(now_ms)
        while month < end:
            dates.add(month)
            month = ledger.next_month_ms(month)
    edges = sorted(date for date in dates if now_ms <= date <= end)
    return [_segment(start, stop, levels) for start, stop in pairwise(edges)]


def _segment(start: UnixMs, end: UnixMs, levels: list[int]) -> Segment:
    hours = [0.0] * (max(levels) + 1)
    at = start
    while at < end:
        stop = min(end, demand.slot_end_ms(at))
        hours[levels[demand.slot_of(at)]] += (stop - at) / HOUR_MS
        at = stop
    return Segment(start, end, tuple(hours))


def _purses(world: World, fund: Fund, segments: list[Segment], now_ms: UnixMs) -> list[Purse]:
    """Credit is one purse; cash one a month."""
    spending = _live_spending(world, fund.name, now_ms)
    account = world.funds.get(fund.name)
    within = [n for n, segment in enumerate(segments) if ledger.open_at(fund, segment.start_ms)]
    if not within:
        return []
    if not fund.cash:
        left = fund.limit - spending - (ledger.spent(account, "") if account else 0)
        end, last = segments[-1].end_ms, fund.until_ms or now_ms + 4 * HORIZON_MS
        if last > end:
            left = left * (end - now_ms) // (last - now_ms)
        return [Purse(fund.name, left, within[0], within[-1], daily=fund.daily)]
    months: dict[str, list[int]] = {}
    for n in within:
        months.setdefault(ledger.month(segments[n].start_ms), []).append(n)
    purses = []
    for name, places in months.items():
        left = fund.limit - (ledger.spent(account, name) if account else 0)
        left -= spending if name == ledger.month(now_ms) else 0
        purses.append(Purse(fund.name, left, places[0], places[-1], cash=True, daily=fund.daily))
    return purses


def _live_spending(world: World, fund: str, now_ms: UnixMs) -> MicroUSD:
    """What the live runners of the fund have cost so far; what they will cost is in the forecast."""
    found = 0
    for runner in world.runners.values():
        if runner.fund == fund and not runner.gone_ms:
            found += ledger.price_of(runner.price, now_ms - runner.planned_ms)
    return found


def _caps(world: World, policy: Policy, levels: list[int]) -> dict[str, tuple[float, ...]]:
    caps: dict[str, tuple[float, ...]] = {}
    for name, provider in policy.providers.items():
        open_share = [1.0] * (max(levels) + 1)
        if provider.available is not None:
            for level in range(len(open_share)):
                hours = [h for slot in range(demand.SLOTS) if levels[slot] == level for h in _slot_hours(slot)]
                open_share[level] = sum(is_open(provider.available, at) for at in hours) / len(hours)
        if provider.max_runners is not None or provider.available is not None:
            cap = provider.max_runners if provider.max_runners is not None else 1_000_000
            caps[f"provider:{name}"] = tuple(cap * share for share in open_share)
        for offer in world.offers.get(name, ()):
            if offer.count is not None:
                caps[f"offer:{offer.key}"] = tuple(offer.count * share for share in open_share)
    return caps


def _slot_hours(slot: int) -> list[UnixMs]:
    monday = 4 * 24 * HOUR_MS
    return [monday + slot * demand.SLOT_MS + hour * HOUR_MS for hour in range(4)]


def _groups(world: World, policy: Policy, rtype: RunnerType) -> list[tuple[str, float]]:
    """(a repository that stands for its group, share of the use): repositories that the same funds pay for."""
    limited = [fund for fund in policy.funds.values() if fund.repositories]
    used: dict[tuple[str, ...], float] = {}
    names: dict[tuple[str, ...], str] = {}
    for usage in world.usage.values():
        if not matches(rtype.access.repositories, usage.name):
            continue
        key = tuple(fund.name for fund in limited if matches(fund.repositories, usage.name))
        used[key] = used.get(key, 0.0) + usage.machine_ms
        names.setdefault(key, usage.name)
    whole = sum(used.values())
    if not whole:
        return [("", 1.0)]
    return [(names[key], share / whole) for key, share in sorted(used.items()) if share > 0]


def _lane(
    world: World, policy: Policy, rtype: RunnerType, repository: str, slots: list[float], levels: list[int]
) -> Lane:
    """Its places: at each provider the cheapest offer for each set of payers, and every counted offer."""
    wish = Wish(rtype, repository or "-", None, Taste())
    best: dict[tuple[str, ...], Option] = {}
    for name, provider in policy.providers.items():
        for offer in selected(rtype, world.offers.get(name, ())):
            price = provider.price.of(offer.list_price)
            if offer.purchase is Purchase.RESERVED:
                continue  # no fund pays for it
            if price is None or ineligible(policy, rtype, provider, offer, price):
                continue
            payers = tuple(fund.name for fund in policy.funds.values() if pays(fund, wish, offer))
            scopes = (f"provider:{name}", *((f"offer:{offer.key}",) if offer.count is not None else ()))
            key = (*scopes, "", *payers)
            if price and not payers:
                continue
            if key not in best or price < best[key].price:
                best[key] = Option(scopes, price, payers)
    hours = [0.0] * (max(levels) + 1)
    for slot, value in enumerate(slots):
        hours[levels[slot]] += value
    return Lane(f"{rtype.name}@{repository}", tuple(hours), tuple(best.values()))


def _swung(problem: Problem) -> Problem:
    """The same with every level in three: less than, at and above the mean, by what each lane's size allows."""
    parts = len(SWINGS)

    def swung(hours: float, week: float) -> list[float]:
        spread = min(MOST_SWING, sqrt(BURST * week / hours)) if hours > 0 else 0.0
        return [hours / parts * (1 + spread * swing) for swing in SWINGS]

    def split(values: tuple[float, ...], among: int = 1) -> tuple[float, ...]:
        return tuple(value / among for value in values for _ in SWINGS)

    lanes = [
        replace(
            lane, hours=tuple(h for pair in zip(lane.hours, problem.week_hours, strict=True) for h in swung(*pair))
        )
        for lane in problem.lanes
    ]
    segments = [replace(segment, hours=split(segment.hours, parts)) for segment in problem.segments]
    caps = {scope: split(limits) for scope, limits in problem.caps.items()}
    return Problem(tuple(lanes), tuple(segments), problem.purses, caps, split(problem.week_hours, parts))


def _rates(lanes: list[Lane]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for lane in lanes:
        cheapest: dict[str, MicroUSD] = {}
        for option in lane.options:
            for fund in option.payers:
                cheapest[fund] = min(option.price, cheapest.get(fund, option.price))
        for fund, price in cheapest.items():
            rates[fund] = rates.get(fund, 0.0) + sum(lane.hours) * price / 1e6
    return rates
