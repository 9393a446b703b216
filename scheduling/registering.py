"""The way to a registration at GitHub, which takes so many a minute: who is on it, and when it is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from scheduling import learning
from scheduling.draft import Draft
from scheduling.lifecycle import RunnerState
from scheduling.matching import owner_of
from scheduling.model import DurationMs, Runner
from scheduling.world import World

MINUTE_MS: DurationMs = 60_000
MOST_AHEAD_MS: DurationMs = 15 * MINUTE_MS

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


def room(world: World, owner: str, offers: Iterable[str]) -> int | None:
    """How many machines of these offers may be on their way at an owner; None: GitHub's pace there is not known.

    As many as GitHub registers while they boot, half as long again, and in one more minute: with fewer its budget
    would lie idle, and what waits longer costs money and brings no job forward.
    """
    pace = world.github_pace.get(owner)
    if pace is None:
        return None
    boot_ms = max((learning.boot_ms(world, key) for key in offers), default=learning.BOOT_PRIOR_MS)
    return max(1, pace * min(MINUTE_MS + boot_ms * 3 // 2, MOST_AHEAD_MS) // MINUTE_MS)


def crowded(draft: Draft, target: str) -> str:
    """Why no more machines are launched for that target now; empty when they are."""
    world, owner = draft.world, owner_of(target)
    if owner not in world.github_pace:
        return ""
    if draft.unregistered is None:
        draft.unregistered = Counter()
        offers: dict[str, set[str]] = {}
        for (pool, offer), count in Counter((each.pool, each.offer.key) for each in unregistered(world)).items():
            place = owner_of(world.pools[pool].target)
            draft.unregistered[place] += count
            offers.setdefault(place, set()).add(offer)
        draft.room = {place: room(world, place, offers.get(place, ())) or 0 for place in world.github_pace}
    waiting = draft.unregistered[owner]
    if waiting < draft.room[owner]:
        return ""
    pace = world.github_pace[owner]
    return f"GitHub takes {pace} registrations a minute at {owner}, and {waiting} machines are on their way to one"


def launched(draft: Draft, target: str) -> None:
    if draft.unregistered is not None:
        draft.unregistered[owner_of(target)] += 1
