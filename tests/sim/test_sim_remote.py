"""The same account behind an `endpoint`: the provider that a policy builds, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.sandbox.clouds import application
from providers.base import (
    LaunchSpec,
    NoCapacity,
    OutcomeUnknown,
    Provider,
    ProviderConfig,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.sim import KIND, Faults, SimCloud
from scheduling.model import HOUR_MS, Offer, Purchase

LaunchOf = Callable[..., LaunchSpec]


@pytest.fixture
def cloud(cloud_with: Callable[..., SimCloud]) -> SimCloud:
    return cloud_with()


@pytest.fixture
async def server(cloud: SimCloud) -> AsyncIterator[TestServer]:
    async with TestServer(application({"lab": cloud})) as running:
        yield running


@pytest.fixture
async def provider(server: TestServer, config: Callable[..., ProviderConfig], clock) -> AsyncIterator[Provider]:
    built = KIND.build(config(endpoint=str(server.make_url("/lab"))), clock)
    yield built
    await built.close()


def misbehave(cloud: SimCloud, **faults: float) -> None:
    cloud.settings = cloud.settings.model_copy(update={"faults": Faults(**faults)})


async def test_the_five_verbs(provider: Provider, cloud: SimCloud, launch_of: LaunchOf, offer: Offer) -> None:
    assert offer in await provider.offers()
    made = await provider.launch(launch_of(1, offer))
    assert made == await provider.launch(launch_of(1, offer))
    assert await provider.instances() == [made]
    await provider.terminate(made.ref)
    await provider.terminate(made.ref)
    assert await provider.instances() == []
    assert await provider.balance() is None
    assert cloud.machines() == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no_capacity", NoCapacity),
        ("quota", QuotaExceeded),
        ("refused", Refused),
        ("unauthorized", Unauthorized),
        ("transient", Transient),
        ("answer_lost", OutcomeUnknown),
        ("not_applied", OutcomeUnknown),
    ],
)
async def test_every_refusal_crosses_the_wire(
    provider: Provider, cloud: SimCloud, launch_of: LaunchOf, offer: Offer, fault: str, error: type[ProviderError]
) -> None:
    misbehave(cloud, **{fault: 1})
    with pytest.raises(error):
        await provider.launch(launch_of(1, offer))
    misbehave(cloud)
    made = await provider.launch(launch_of(1, offer))
    assert await provider.instances() == [made]


async def test_nobody_at_the_endpoint_is_transient(
    config: Callable[..., ProviderConfig], launch_of: LaunchOf, offer: Offer, unused_port: int, clock
) -> None:
    provider = KIND.build(config(endpoint=f"http://127.0.0.1:{unused_port}/lab"), clock)
    with pytest.raises(Transient):
        await provider.launch(launch_of(1, offer))
    with pytest.raises(Transient):
        await provider.instances()
    await provider.close()


async def test_a_server_that_is_no_cloud_is_transient(
    config: Callable[..., ProviderConfig], launch_of: LaunchOf, offer: Offer, clock
) -> None:
    async with TestServer(web.Application()) as server:
        provider = KIND.build(config(endpoint=str(server.make_url("/lab"))), clock)
        with pytest.raises(Transient, match="answered 404"):
            await provider.launch(launch_of(1, offer))
        await provider.close()


async def test_taken_machines_are_told_from_ended_ones(cloud, provider, launch_of, offer, clock):
    misbehave(cloud, preempted=1)
    spot = replace(offer, purchase=Purchase.SPOT)
    first, second = [await provider.launch(launch_of(number, spot)) for number in (1, 2)]
    await provider.terminate(second.ref)
    assert await provider.taken([first.ref, second.ref]) == []
    await clock.sleep(HOUR_MS)
    assert await provider.taken([first.ref, second.ref]) == [first.ref]
