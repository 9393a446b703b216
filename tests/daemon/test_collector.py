"""The collector of a process with a world: what is old is spared, and what dies there is found all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from autoscaler import collector


class Record:
    other: Record | None = None


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    collector.spare_the_old()
    yield
    gc.callbacks.remove(collector._on_collection)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_a_full_collection_walks_only_what_came_since_the_last() -> None:
    kept = [Record() for _ in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_a_cycle_that_closes_after_it_was_set_aside_is_found() -> None:
    record = Record()
    gone = weakref.ref(record)
    gc.collect()
    record.other = record
    del record
    gc.collect()
    assert gone() is not None
    for _ in range(collector.THAW):
        gc.collect()
    assert gone() is None
