from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.serving import Served, serving
from tests.api.worlds import Fleet, busy_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return busy_fleet(tmp_path)


@pytest.fixture
async def served(fleet: Fleet) -> AsyncIterator[Served]:
    async with serving(fleet) as found:
        yield found
