from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.worlds import Fleet, busy_fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """An empty world."""
    return Fleet(tmp_path)


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """For looking at only."""
    return busy_fleet(tmp_path_factory.mktemp("busy"))
