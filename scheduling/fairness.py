"""Whose turn it is: machines by weight, ageing, strict order for those who waited long, caps a repository.

A sharer's machines are those that run now and those that it had on average over the last half-life. Waiting
forgives the average, never what runs: a flood has most of the fleet however long its own queue waits, so whoever
has less is served next. True with `register: repository`; elsewhere GitHub decides whose job a runner takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from scheduling.model import DurationMs, UnixMs, Usage
from scheduling.policy import FairShare, matches
from scheduling.world import Key, World

FORGIVEN_MS: DurationMs = 60_000
"""Waiting that long forgives one machine of the average."""

Turn = tuple[int, float, UnixMs]
"""Sorts first who is next: (not overdue, machines by weight, waiting since)."""


def charge(world: World, repository: str, machine_ms: DurationMs, now_ms: UnixMs) -> set[Key]:
    """Book a job's machine time to its repository."""
    usage = world.usage.get(repository)
    if usage is None:
        usage = world.usage[repository] = Usage(repository, 0.0, now_ms)
    usage.machine_ms = decayed(usage, world.totals.half_life_ms, now_ms) + max(0, machine_ms)
    usage.at_ms = max(usage.at_ms, now_ms)
    return {("usage", repository)}


def decayed(usage: Usage, half_life_ms: DurationMs, now_ms: UnixMs) -> float:
    """What is left of the usage, in milliseconds of machine time."""
    age_ms = max(0, now_ms - usage.at_ms)
    return float(usage.machine_ms * 0.5 ** (age_ms / half_life_ms))


@dataclass(slots=True)
class Turns:
    """The order of one planning round."""

    world: World
    rules: FairShare
    now_ms: UnixMs
    _average: dict[str, float] | None
    _running: dict[str, int]
    _weights: dict[str, float]

    def __init__(self, world: World, rules: FairShare, now_ms: UnixMs) -> None:
        self.world, self.rules, self.now_ms = world, rules, now_ms
        self._weights, self._running = {}, {}
        self._average = None  # most rounds have nobody to serve

    def _averages(self) -> dict[str, float]:
        """Machines of each sharer over the last half-life; counts those that run, too, when first asked."""
        if self._average is None:
            self._average = {}
            for usage in self.world.usage.values():
                name = self._sharer(usage.name)
                left = decayed(usage, self.rules.half_life_ms, self.now_ms)
                self._average[name] = self._average.get(name, 0.0) + left * log(2) / self.rules.half_life_ms
            for scope, count in self.world.live.items():
                if scope.startswith("repository:") and (repository := scope.removeprefix("repository:")):
                    self.launched(repository, count)
        return self._average

    def _sharer(self, repository: str) -> str:
        return repository.split("/", 1)[0] if self.rules.by == "owner" else repository

    def launched(self, repository: str, count: int = 1) -> None:
        """Runners that are live, or were just decided."""
        self._averages()  # what is live counts once
        name = self._sharer(repository)
        self._running[name] = self._running.get(name, 0) + count

    def machines(self, repository: str, more: int = 0) -> float:
        """What its sharer runs by weight, with `more` machines."""
        self._averages()
        return (self._running.get(self._sharer(repository), 0) + more) / self._weight(repository)

    def turn(self, repository: str, since_ms: UnixMs) -> Turn:
        """The place of this repository's oldest unserved job."""
        waited_ms = self.now_ms - since_ms
        fifo = self.rules.fifo_after_ms
        if fifo is not None and waited_ms >= fifo:
            return 0, 0.0, since_ms
        name, averages = self._sharer(repository), self._averages()
        owed = max(0.0, averages.get(name, 0.0) - waited_ms / FORGIVEN_MS)
        return 1, self.machines(repository) + owed / self._weight(repository), since_ms

    def _weight(self, repository: str) -> float:
        weight = self._weights.get(repository)
        if weight is None:
            patterns = (
                self.rules.weights[p] for p in self.rules.weights if matches((p,), self._sharer(repository))
            )
            weight = self._weights[repository] = max(next(patterns, 1.0), 1e-9)
        return weight

    def capped(self, repository: str) -> str:
        """Which cap forbids this repository one more runner; empty when none does."""
        for pattern, limit in self.rules.max_runners.items():
            if matches((pattern,), repository) and self.world.live_count(f"repository:{repository}") >= limit:
                return f"{repository} runs its fair_share max_runners {limit}"
        return ""
