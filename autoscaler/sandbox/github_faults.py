"""What can go wrong at GitHub, switched on by tests, the demo and the storms. Every chance comes from one seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from scheduling.model import DurationMs


@dataclass(slots=True)
class Fault:
    """A rule for requests whose method and path (`fnmatch`, with or without query, no GHES prefix) match.

    `status` 0 changes no answer (for `latency_ms` alone). `applied`: the request does its work first, and only its
    answer is replaced. `drop`: the connection closes without an answer. `count`: how often; None for ever.
    """

    path: str = "*"
    method: str = "*"
    status: int = 0
    message: str = "The stand-in was told to fail"
    headers: Mapping[str, str] = field(default_factory=dict)
    count: int | None = None
    probability: float = 1.0
    applied: bool = False
    drop: bool = False
    latency_ms: DurationMs = 0
    hits: int = 0

    def matches(self, method: str, path: str) -> bool:
        left = self.count is None or self.hits < self.count
        fits = fnmatchcase(path, self.path) or fnmatchcase(path.partition("?")[0], self.path)
        return left and self.method in ("*", method) and fits


@dataclass(slots=True)
class WebhookFaults:
    """Chances of a delivery to fail unsent (`lose`) or to be sent twice, and how long it may be held back."""

    lose: float = 0.0
    double: float = 0.0
    delay_ms: DurationMs = 0


@dataclass(slots=True)
class Faults:
    """All switches of a stand-in.

    `stale_busy_ms`: how long a runner still shows `busy: false` after its job began. `omit`: names that lists
    leave out (by id they are found); `omit_chance`: the same by chance, for each entry.
    """

    seed: int = 0
    rules: list[Fault] = field(default_factory=list)
    webhooks: WebhookFaults = field(default_factory=WebhookFaults)
    stale_busy_ms: DurationMs = 0
    omit: set[str] = field(default_factory=set)
    omit_chance: float = 0.0
    random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def add(self, fault: Fault) -> Fault:
        """Switches a rule on; the first that matches a request is used. Its `hits` count up."""
        self.rules.append(fault)
        return fault

    def clear(self) -> None:
        """From now on GitHub is well."""
        self.rules.clear()
        self.omit.clear()
        self.webhooks = WebhookFaults()
        self.stale_busy_ms, self.omit_chance = 0, 0.0

    def pick(self, method: str, path: str) -> Fault | None:
        for fault in self.rules:
            if fault.matches(method, path) and self.chance(fault.probability):
                fault.hits += 1
                return fault
        return None

    def chance(self, probability: float) -> bool:
        return probability >= 1 or (probability > 0 and self.random.random() < probability)

    def lists(self, name: str) -> bool:
        """Whether a list of runners shows this one."""
        return name not in self.omit and not self.chance(self.omit_chance)
