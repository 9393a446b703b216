from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.daemon.place import Place


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    """Around any replicas that the test starts; all of it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        found = Place(Path(name))
        await found.open()
        yield found
        await found.close()
