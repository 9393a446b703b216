from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from providers.base import LaunchSpec, ProviderConfig
from providers.sim import KIND, Settings, SimCloud
from scheduling.model import Hardware, Offer, Purchase

NOON = 1_790_000_000_000
HOUR = 3_600_000


class StepClock:
    """A clock that moves only when somebody sleeps on it, or a test moves it."""

    def __init__(self) -> None:
        self.now = NOON

    def now_ms(self) -> int:
        return self.now

    async def sleep(self, ms: int) -> None:
        self.now += max(0, ms)
        await asyncio.sleep(0)


def build_config(
    settings: dict[str, Any] | None = None,
    *,
    regions: tuple[str, ...] = (),
    needs: dict[str, Hardware] | None = None,
    endpoint: str | None = None,
) -> ProviderConfig:
    return ProviderConfig(
        name="lab",
        fleet="test",
        regions=regions,
        endpoint=endpoint,
        settings=Settings.model_validate(settings or {}),
        needs=needs or {"linux": Hardware(cpus=8, memory_mib=16 * 1024)},
    )


def build_launch(
    runner: int, offer: Offer, *, lifetime_ms: int = HOUR, fleet: str = "test", boot: str = "{}"
) -> LaunchSpec:
    return LaunchSpec(
        fleet=fleet,
        runner_id=f"r{runner:020}",
        runner_type="linux",
        offer=offer,
        price=offer.list_price or 0,
        fund="gift",
        hold=1_000_000,
        image="",
        disk_gib=0,
        boot=boot,
        lifetime_ms=lifetime_ms,
    )


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def config() -> Callable[..., ProviderConfig]:
    """Makes the config of an account `lab` of fleet `test`."""
    return build_config


@pytest.fixture
def launch_of() -> Callable[..., LaunchSpec]:
    """Makes the launch of the n-th runner at an offer."""
    return build_launch


@pytest.fixture
def cloud_with(clock: StepClock) -> Callable[..., SimCloud]:
    """Makes a cloud of those settings (as in a policy) on the test's clock."""

    def build(**settings: Any) -> SimCloud:
        return SimCloud("lab", Settings.model_validate(settings), clock)

    return build


@pytest.fixture
def offer() -> Offer:
    return next(offer for offer in KIND.catalogue(build_config()) if offer.purchase is Purchase.ON_DEMAND)


@pytest.fixture
def spot() -> Offer:
    return next(offer for offer in KIND.catalogue(build_config()) if offer.purchase is Purchase.SPOT)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines try again at once."""
    monkeypatch.setattr("autoscaler.sandbox.machines.RETRY_SECONDS", 0.01)
