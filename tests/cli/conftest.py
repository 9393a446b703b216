from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serving
from tests.api.worlds import Fleet, busy_fleet


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """Commands set the logs of their process up; tests share theirs."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return busy_fleet(tmp_path)


@pytest.fixture
async def served(fleet: Fleet) -> AsyncIterator[Served]:
    async with serving(fleet) as found:
        yield found
