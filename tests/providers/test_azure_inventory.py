"""Azure: what is listed and removed, what is sold, and which settings are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import ValidationError

from providers.azure import AzureSettings
from providers.base import Transient
from tests.providers.arm_bench import REGION, ArmBench
from tests.providers.arm_cloud import LIST, ArmCloud, error
from tests.providers.rest_stand_in import Rule


@pytest.fixture
def arm():
    with ArmCloud() as cloud:
        yield cloud


@pytest.fixture
def bench(arm, clock):
    return ArmBench(arm, clock)


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


# ---- inventory ---------------------------------------------------------------------------------------------


async def test_stopped_machines_are_listed_and_removed_like_others(bench, provider):
    """A shutdown from inside leaves a machine `stopped`; Azure bills it until it is deleted."""
    made = await provider.launch(bench.spec(1))
    assert [instance.ref for instance in await provider.instances()] == [made.ref]
    await provider.terminate(made.ref)
    assert bench.cloud.requests[-1].query["forceDeletion"] == "true"
    assert await provider.instances() == []


async def test_a_region_that_the_policy_left_is_still_watched(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    other = bench.kind.build(replace(bench.config, regions=()), clock)
    assert [instance.ref for instance in await other.instances()] == [made.ref]
    assert await other.offers() == []
    await other.close()


async def test_all_pages_are_asked_for(bench, provider):
    await bench.fill(250)
    assert len(await provider.instances()) == 250
    assert bench.cloud.count(LIST) == 3


async def test_k28_disks_interfaces_and_addresses_are_listed_and_removed(bench, provider):
    """In the order in which they can go; what is still held is listed again, and is no error."""
    name, tags, old = bench.spec(7).name, bench.spec(7).tags, timedelta(hours=1)
    bench.cloud.part("publicIPAddresses", f"{name}-ip", tags, old)
    bench.cloud.part("disks", f"{name}-disk", {}, old)
    bench.cloud.part("networkInterfaces", f"{name}-nic-0a1b2c3d", {}, old)
    bench.cloud.part("disks", "somebodys-disk", {}, old)
    bench.cloud.part("disks", f"{name}-disk-copy", {"autoscaler-fleet": "other"}, old)
    (left,) = await provider.instances()
    assert (left.runner_id, left.ref, left.region) == (bench.spec(7).runner_id, "", REGION)
    assert left.orphans == (
        f"networkInterfaces/{name}-nic-0a1b2c3d",
        f"publicIPAddresses/{name}-ip",
        f"disks/{name}-disk",
    )
    for ref in left.orphans:
        await provider.terminate(ref)
    assert await provider.instances() == []
    assert sorted(part for _, part in bench.cloud.parts) == [f"{name}-disk-copy", "somebodys-disk"]


async def test_k28_what_is_still_held_is_asked_for_again(bench, provider):
    name, old = bench.spec(7).name, timedelta(hours=1)
    bench.cloud.part("networkInterfaces", f"{name}-nic", bench.spec(7).tags, old)
    bench.cloud.part("publicIPAddresses", f"{name}-ip", bench.spec(7).tags, old)
    await provider.terminate(f"publicIPAddresses/{name}-ip")
    (left,) = await provider.instances()
    assert f"publicIPAddresses/{name}-ip" in left.orphans


async def test_k28_what_was_just_made_is_not_taken_for_a_leftover(bench, provider):
    bench.cloud.part("networkInterfaces", f"{bench.spec(7).name}-nic", bench.spec(7).tags)
    assert await provider.instances() == []


async def test_a_living_machine_s_parts_are_not_leftovers(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    clock.skipped_ms = 3_600_000
    (seen,) = await provider.instances()
    assert (seen.ref, seen.orphans) == (made.ref, ())


async def test_throttled_terminate_is_asked_again_after_the_time_that_azure_names(bench, provider, clock):
    slept = []

    async def sleep(ms: int) -> None:
        slept.append(ms)

    made = await provider.launch(bench.spec(1))
    clock.sleep = sleep
    bench.cloud.add(Rule("DELETE ", error(429, "TooManyRequests", "slow down", Retry_After="7"), times=2))
    await provider.terminate(made.ref)
    assert await bench.machines() == []
    assert slept == [7_000, 7_000]


async def test_throttling_for_longer_than_a_call_may_take_is_told(bench, provider):
    bench.cloud.add(Rule(LIST, error(429, "TooManyRequests", "slow down", Retry_After="300")))
    with pytest.raises(Transient, match="TooManyRequests"):
        await provider.instances()
    assert bench.cloud.count(LIST) == 1


# ---- offers and settings -----------------------------------------------------------------------------------


async def test_offers_carry_list_prices_on_demand_and_none_for_spot(bench, provider):
    offers = {offer.key: offer for offer in await provider.offers()}
    assert offers["gift/eastus-1/Standard_F8s_v2/on_demand"].list_price == 338_000
    assert offers["gift/eastus-1/Standard_F8s_v2/spot"].list_price is None
    assert offers["gift/eastus-1/Standard_D8s_v5/on_demand"].list_price is None
    assert {offer.zone for offer in offers.values()} == {"eastus-1", "eastus-2"}


def test_nothing_is_required_but_nothing_is_sold_without_a_subnet(bench):
    assert bench.kind.catalogue(replace(bench.config, settings=AzureSettings())) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"subscription": "gift"}, "subscription"),
        ({"subnets": {"eastus": "runners"}}, "subnets"),
        ({"zones": {"eastus": ["4"]}}, "zones"),
        ({"tags": {"autoscaler-fleet": "other"}}, "reserved"),
        ({"client_secret_file": "/etc/secret"}, "needs tenant and client"),
        ({"client_secret_file": "secret"}, "client_secret_file"),
        ({"subnet": {}}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValidationError, match=words):
        AzureSettings.model_validate(settings)
