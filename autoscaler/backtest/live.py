"""What a recording tells of machines that really ran: measurements for the world model, sums to compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from autoscaler.events.machines import MachineLine
from scheduling.messages import Trouble
from scheduling.model import HOUR_MS, DurationMs, MicroUSD

SAMPLES_MAX = 500
"""Of one duration at one offer: the newest ones."""
ENOUGH = 5
"""Samples below which a duration is not taken for measured."""


@dataclass(slots=True)
class At:
    """One offer, as measured. Durations in ms."""

    create: list[DurationMs] = field(default_factory=list)
    boot: list[DurationMs] = field(default_factory=list)
    created: int = 0
    refused: int = 0
    taken: int = 0
    life_ms: DurationMs = 0

    @property
    def refused_share(self) -> float:
        """Of its create calls, those that found no capacity."""
        return self.refused / (self.refused + self.created) if self.refused else 0.0

    @property
    def taken_an_hour(self) -> float:
        """Share of its machines that their provider takes within an hour."""
        return min(1.0, self.taken * HOUR_MS / self.life_ms) if self.taken and self.life_ms else 0.0


@dataclass(slots=True)
class Live:
    """All machines of a recording. `cost` by provider, `paid` by fund, in micro-dollars."""

    offers: dict[str, At] = field(default_factory=dict)
    register: list[DurationMs] = field(default_factory=list)
    cost: Counter[str] = field(default_factory=Counter)
    paid: Counter[str] = field(default_factory=Counter)
    machines: int = 0
    _seen: set[str] = field(default_factory=set)

    def take(self, line: MachineLine) -> None:
        """One line; a machine counts once however often it is told of."""
        if line.runner + line.trouble in self._seen:
            return
        self._seen.add(line.runner + line.trouble)
        at = self.offers.setdefault(line.offer, At())
        if line.trouble:
            at.refused += line.trouble == Trouble.NO_CAPACITY
            return
        if not line.created_ms:
            return
        self.machines += 1
        self.cost[line.provider] += line.cost
        self.paid[line.fund] += line.cost
        at.created += 1
        at.taken += line.taken
        at.life_ms += line.life_ms
        _sample(at.create, line.planned_ms, line.created_ms)
        _sample(at.boot, line.created_ms, line.booted_ms)
        _sample(self.register, line.jit_ms, line.registered_ms)

    @property
    def total(self) -> MicroUSD:
        return sum(self.cost.values())


def measured(samples: Iterable[DurationMs]) -> DurationMs | None:
    """Their median; None of too few."""
    found = list(samples)
    return int(median(found)) if len(found) >= ENOUGH else None


def _sample(samples: list[DurationMs], start_ms: int, end_ms: int) -> None:
    if start_ms and end_ms >= start_ms:
        samples.append(end_ms - start_ms)
        if len(samples) > SAMPLES_MAX:
            del samples[0]
