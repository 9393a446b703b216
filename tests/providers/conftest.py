"""Accounts for tests: EC2 by moto over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from autoscaler.clock import Clock
from tests.providers.aws_bench import moto_account
from tests.providers.moto_cloud import MotoCloud


class QuickClock(Clock):
    """The real time, `skipped_ms` ahead; nobody waits on it."""

    skipped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skipped_ms

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(0)


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoCloud]:
    with moto_account() as cloud:
        yield cloud


@pytest.fixture
def cloud(moto: MotoCloud) -> Iterator[MotoCloud]:
    """An empty account."""
    yield moto
    moto.reset()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()
