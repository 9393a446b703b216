"""How much machine time a runner type uses, by four-hour slots of the week (UTC): what a forecast is made of.

One record a type. Older weeks fade with a half-life, so that the record stays small and follows change.
"""

from __future__ import annotations

from scheduling.model import HOUR_MS, Demand, DurationMs, UnixMs
from scheduling.world import Key, World

SLOT_MS: DurationMs = 4 * HOUR_MS
SLOTS = 42
WEEK_MS: DurationMs = SLOTS * SLOT_MS
HALF_LIFE_MS: DurationMs = 2 * WEEK_MS
TYPES = 2_000
"""Records kept: more runner types than any policy has; those beyond are not forecast."""

_MONDAY_MS: UnixMs = 4 * 24 * HOUR_MS  # 1970-01-05


def slot_of(at_ms: UnixMs) -> int:
    """0 is Monday 00:00-04:00 UTC."""
    return (at_ms - _MONDAY_MS) // SLOT_MS % SLOTS


def slot_end_ms(at_ms: UnixMs) -> UnixMs:
    return at_ms - at_ms % SLOT_MS + SLOT_MS


def used(world: World, runner_type: str, start_ms: UnixMs, end_ms: UnixMs, now_ms: UnixMs) -> set[Key]:
    """Book a machine's life to the slots that it covers."""
    if end_ms <= start_ms:
        return set()
    demand = world.demand.get(runner_type)
    if demand is None:
        if len(world.demand) >= TYPES:
            return set()
        slots = [0] * SLOTS
        demand = world.demand[runner_type] = Demand(runner_type, start_ms, now_ms, slots)
    _fade(demand, now_ms)
    start_ms = max(start_ms, end_ms - WEEK_MS)
    while start_ms < end_ms:
        stop = min(end_ms, slot_end_ms(start_ms))
        demand.machine_ms[slot_of(start_ms)] += stop - start_ms
        start_ms = stop
    return {("demand", runner_type)}


def _fade(demand: Demand, now_ms: UnixMs) -> None:
    """Once an hour: what is booked within it fades by 0.2 % too much."""
    if now_ms >= demand.at_ms + HOUR_MS:
        share = 0.5 ** ((now_ms - demand.at_ms) / HALF_LIFE_MS)
        demand.machine_ms = [int(value * share) for value in demand.machine_ms]
        demand.at_ms = now_ms


def weekly(demand: Demand, now_ms: UnixMs) -> list[float]:
    """Expected machine-ms in each slot of a week. Before a week was seen: the mean in every slot."""
    seen_ms = max(now_ms - demand.since_ms, SLOT_MS)
    share = 0.5 ** (max(0, now_ms - demand.at_ms) / HALF_LIFE_MS)
    if seen_ms < WEEK_MS:
        return [sum(demand.machine_ms) * share * SLOT_MS / seen_ms] * SLOTS
    found = []
    for slot, value in enumerate(demand.machine_ms):
        age_ms = (slot_of(now_ms) - slot) % SLOTS * SLOT_MS + (now_ms % SLOT_MS)  # since that slot last began
        weight = 0.0
        while age_ms <= seen_ms:
            weight += 0.5 ** (age_ms / HALF_LIFE_MS) * min(1.0, age_ms / SLOT_MS)
            age_ms += WEEK_MS
        found.append(value * share / weight if weight else 0.0)
    return found
