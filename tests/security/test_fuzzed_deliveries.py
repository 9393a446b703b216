"""Deliveries with a good signature and anything in them: 202 or 400, and the daemon goes on."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.daemon.place import Place, until
from tests.security.conftest import deliver, payload

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in the document that the receiver may look at."""
    found = [path] if path else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*path, key))
    return found


def changed(document: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    document = copy.deepcopy(document)
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return document


async def test_no_delivery_breaks_the_daemon(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    replica = await place.leading()
    sound = payload()
    looked_at = {key: sound[key] for key in ("action", "workflow_job", "repository")}
    documents: list[object] = []

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.sampled_from(places(looked_at)), VALUES, VALUES, st.integers(0, 9))
    def draw(path: tuple[Any, ...], value: object, anything: object, dice: int) -> None:
        documents.append(changed(sound, path, value) if dice else anything)

    draw()
    answers = await asyncio.gather(*(deliver(place, document) for document in documents))
    assert {status for status, _ in answers} == {202, 400}
    place.push(3)
    await until(lambda: all(job.state == "completed" for job in place.around.github.jobs()))
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"] * 3
    assert replica.daemon.leader is not None
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
