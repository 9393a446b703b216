"""The way to a registration at GitHub, which takes so many a minute: who is on it, and when it is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scheduling.draft import Draft
from scheduling.lifecycle import RunnerState
from scheduling.matching import owner_of
from scheduling.model import Runner
from scheduling.world import World

AHEAD_MIN = 5
"""Machines are launched for so many minutes of registrations at most: one that waits longer costs money and brings
no job forward; with fewer under way GitHub's budget would lie idle while they boot."""

_ON_THE_WAY = (
    RunnerState.REGISTERING,
    RunnerState.READY,
    RunnerState.STARTING,
    RunnerState.UNKNOWN,
    RunnerState.PLANNED,
)
"""The nearest first."""


def unregistered(world: World) -> Iterator[Runner]:
    """Runners of a pool that have no registration yet, in the order in which they will get one."""
    for state in _ON_THE_WAY:
        for key in world.by_state[state]:
            runner = world.runners[key]
            if runner.pool and not runner.registration_id:
                yield runner


def crowded(draft: Draft, target: str) -> str:
    """Why no more machines are launched for that target now; empty when they are."""
    owner = owner_of(target)
    pace = draft.world.github_pace.get(owner)
    if pace is None:
        return ""
    if draft.unregistered is None:
        draft.unregistered = Counter()
        for pool, count in Counter(runner.pool for runner in unregistered(draft.world)).items():
            draft.unregistered[owner_of(draft.world.pools[pool].target)] += count
    waiting = draft.unregistered[owner]
    if waiting < pace * AHEAD_MIN:
        return ""
    return f"GitHub takes {pace} registrations a minute at {owner}, and {waiting} machines are on their way to one"


def launched(draft: Draft, target: str) -> None:
    if draft.unregistered is not None:
        draft.unregistered[owner_of(target)] += 1
