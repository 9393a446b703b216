"""Accounts for tests: EC2 by moto over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from botocore.loaders import create_loader

from autoscaler.clock import Clock
from tests.providers.moto_cloud import MotoCloud

pytest.register_assert_rewrite("providers.conformance")


class QuickClock(Clock):
    """The real time, `skipped_ms` ahead; nobody waits on it."""

    skipped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.skipped_ms

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(0)


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoCloud]:
    keys = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patch, MotoCloud() as cloud:
        patch.setattr("botocore.session.create_loader", lambda *_: loader)  # EC2's description is read once
        for key, value in keys.items():
            patch.setenv(key, value)
        yield cloud


@pytest.fixture
def cloud(moto: MotoCloud) -> Iterator[MotoCloud]:
    """An empty account."""
    yield moto
    moto.reset()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()
