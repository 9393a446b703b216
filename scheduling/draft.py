"""One planning round: the decisions so far, each evolved at once so that the next one sees its effect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.model import UnixMs, Verdict
from scheduling.policy import Policy
from scheduling.world import Key, World

LAUNCHES_A_TICK = 500
REAPS_A_MINUTE = 200
"""Kills that plan decides in a minute; more wait for the next, and a metric says that the bound was reached."""


@dataclass(slots=True)
class Plan:
    """Decisions in order (already evolved), the records they changed, and when to plan again without news.

    `refusals`: pool key or `floor:TYPE` -> why its demand is not served. `reaps_capped`: more were due.
    """

    decisions: list[m.Event] = field(default_factory=list)
    changed: set[Key] = field(default_factory=set)
    next_wake_ms: UnixMs = 0
    refusals: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)
    reaps_capped: bool = False


class Draft:
    """One planning round."""

    def __init__(self, world: World, policy: Policy, now_ms: UnixMs) -> None:
        self.world, self.policy, self.now_ms = world, policy, now_ms
        self.plan = Plan()
        self.launches = 0
        self.full: dict[str, tuple[Verdict, ...]] = {}  # runner types found at a cap, with the reason
        self.unregistered: Counter[str] | None = None  # owner -> machines without a registration, once counted
        self.room: dict[str, int] = {}  # owner -> how many of them there may be

    def decide(self, event: m.Event) -> None:
        self.plan.decisions.append(event)
        evolve(self.world, event, self.now_ms, self.plan.changed)
