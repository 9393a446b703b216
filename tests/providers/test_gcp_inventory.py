"""Compute Engine: what is listed and removed, what is sold, and which settings are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from providers.base import Transient
from providers.gcp import GcpSettings
from tests.providers.gce_bench import GceBench
from tests.providers.gce_cloud import LIST, GceCloud, error
from tests.providers.rest_stand_in import Rule


@pytest.fixture
def gce():
    with GceCloud() as cloud:
        yield cloud


@pytest.fixture
def bench(gce, clock):
    return GceBench(gce, clock)


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


# ---- inventory ---------------------------------------------------------------------------------------------


async def test_stopped_machines_are_listed_and_removed_like_others(bench, provider):
    made = await provider.launch(bench.spec(1))
    for machine in bench.cloud.machines.values():
        machine["status"] = "TERMINATED"  # shut down from inside; its disk still costs
    assert [instance.ref for instance in await provider.instances()] == [made.ref]
    await provider.terminate(made.ref)
    assert await provider.instances() == []


async def test_a_zone_that_the_policy_left_is_still_watched(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    other = bench.kind.build(replace(bench.config, regions=()), clock)
    assert [instance.ref for instance in await other.instances()] == [made.ref]
    assert await other.offers() == []
    await other.close()


async def test_a_preempted_machine_is_told_from_one_that_ended(bench, provider):
    first, second = [await provider.launch(bench.spec(number)) for number in (1, 2)]
    for made, preempted in ((first, True), (second, False)):
        (bench.cloud.preempt if preempted else bench.cloud.machines.pop)(*end_of(made, preempted))
    assert await provider.taken([first.ref, second.ref]) == [first.ref]


def end_of(made, preempted):
    zone, _, name = made.ref.partition("/")
    return (zone, name) if preempted else ((zone, name),)


async def test_a_list_without_one_zone_raises(bench, provider):
    await provider.launch(bench.spec(1))
    bench.cloud.unreachable = ["us-east4-a"]
    with pytest.raises(Transient, match="no answer from us-east4-a"):
        await provider.instances()


async def test_all_pages_are_asked_for_and_none_is_large(bench, provider):
    await bench.fill(450)
    assert len(await provider.instances()) == 450
    assert bench.cloud.count(LIST) == 3


async def test_k28_a_disk_that_was_just_made_is_not_taken_for_an_orphan(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    await bench.end_leaving_a_disk(made)
    clock.skipped_ms = 0
    assert await provider.instances() == []


async def test_k28_a_disk_beside_a_living_machine_is_listed_with_it(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    zone = bench.zones[0]
    bench.cloud.disks[zone, "left"] = {
        **bench.cloud.disks[zone, bench.spec(1).name],
        "name": "left",
        "users": [],
    }
    clock.skipped_ms = 3_600_000
    (seen,) = await provider.instances()
    assert (seen.ref, seen.orphans) == (made.ref, (f"{zone}/disks/left",))


async def test_throttled_terminate_is_asked_again(bench, provider):
    made = await provider.launch(bench.spec(1))
    bench.cloud.add(Rule("DELETE ", error(429, "rateLimitExceeded", "slow down"), times=2))
    await provider.terminate(made.ref)
    assert await bench.machines() == []


# ---- offers and settings -----------------------------------------------------------------------------------


async def test_offers_carry_list_prices_on_demand_and_none_for_spot(bench, provider):
    offers = {offer.key: offer for offer in await provider.offers()}
    zone = bench.zones[0]
    assert offers[f"gift/{zone}/n2-standard-8/on_demand"].list_price == 388_472
    assert offers[f"gift/{zone}/n2-standard-8/spot"].list_price is None
    assert {offer.zone for offer in offers.values()} == set(bench.zones)


async def test_a_type_is_offered_only_where_the_zone_sells_it(bench, provider):
    a, b = bench.zones
    bench.cloud.not_sold = {a: {"t2a-standard-4"}, b: {"nvidia-tesla-v100"}}
    offers = {(offer.zone, offer.instance_type) for offer in await provider.offers()}
    assert (a, "t2a-standard-4") not in offers
    assert (b, "t2a-standard-4") in offers
    assert (a, "n1-standard-8+1xnvidia-tesla-v100") in offers
    assert (b, "n1-standard-8+1xnvidia-tesla-v100") not in offers
    assert (b, "n1-standard-8+1xnvidia-tesla-t4") in offers


async def test_a_zone_that_does_not_exist_sells_nothing(bench, clock):
    settings = bench.config.settings.model_copy(
        update={"zones": {"us-central1": ("us-central1-a", "us-central1-x")}}
    )
    provider = bench.kind.build(replace(bench.config, settings=settings), clock)
    assert {offer.zone for offer in await provider.offers()} == {"us-central1-a"}
    await provider.close()


@pytest.mark.parametrize(
    ("region", "letters"), [("us-central1", "abcf"), ("us-east1", "bcd"), ("asia-south2", "abc")]
)
def test_a_region_without_named_zones_has_all_of_its_own(bench, region, letters):
    config = replace(bench.config, regions=(region,), settings=GcpSettings())
    assert {offer.zone for offer in bench.kind.catalogue(config)} == {f"{region}-{letter}" for letter in letters}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zones": {"us-east1": ["us-west1-a"]}}, "us-west1-a is not a zone of us-east1"),
        ({"project": "Gift Project"}, "project"),
        ({"labels": {"autoscaler-fleet": "other"}}, "reserved"),
        ({"labels": {"Team": "ci"}}, "labels"),
        ({"network_tags": ["CI_runner"]}, "network_tags"),
        ({"subnet": {}}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValidationError, match=words):
        GcpSettings.model_validate(settings)
