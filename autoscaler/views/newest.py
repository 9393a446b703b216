"""The jobs of a world from the newest on, without sorting 50,000 of them for every look at a page."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from scheduling.model import Job, UnixMs
from scheduling.world import World

Mark = tuple[UnixMs, str]
"""When a job was first heard of, and its key: what lists are ordered by, and where a page ends."""


class Newest:
    """Order of one world's jobs, brought up to date at each call: new ones stand at the end of `world.jobs`."""

    def __init__(self) -> None:
        self._marks: list[Mark] = []  # oldest first; jobs that were forgotten stay for a while
        self._last = ""

    def before(self, world: World, mark: Mark | None) -> Iterator[Job]:
        """All jobs older than the mark (None: all), newest first."""
        self._update(world)
        end = len(self._marks) if mark is None else bisect_left(self._marks, mark)
        for index in range(end - 1, -1, -1):
            if job := world.jobs.get(self._marks[index][1]):
                yield job

    def _update(self, world: World) -> None:
        new: list[Mark] = []
        for key in reversed(world.jobs):
            if key == self._last:
                break
            new.append(mark_of(world.jobs[key]))
        self._last = next(reversed(world.jobs), "")
        if len(new) > len(world.jobs) // 10 or len(self._marks) > 2 * len(world.jobs):
            self._marks = sorted(map(mark_of, world.jobs.values()))
        else:
            for mark in new:
                insort(self._marks, mark)


def newest_first(world: World, mark: Mark | None = None) -> Iterator[Job]:
    """All jobs of the world that are older than the mark. Not while the world changes."""
    newest = _KEPT.get(world)
    if newest is None:
        newest = _KEPT[world] = Newest()
    return newest.before(world, mark)


def mark_of(job: Job) -> Mark:
    return job.seen_ms, job.key


_KEPT: WeakKeyDictionary[World, Newest] = WeakKeyDictionary()
