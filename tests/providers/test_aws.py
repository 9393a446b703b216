"""What only EC2 has: one launch on the wire, its zonal token, both purchases, prices by zone, and the check."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
from dataclasses import replace

import pytest
import yaml
from moto.ec2.models.instances import StateReason
from pydantic import ValidationError

from providers.aws import AwsSettings
from providers.base import MissingSdk, NoCapacity, OutcomeUnknown, Refused, Transient, Unauthorized
from providers.conformance import TOKEN, Fault
from providers.registry import kind
from scheduling.model import Purchase
from tests.providers.aws_bench import REGION, ROOT_DEVICE, AwsBench
from tests.providers.moto_cloud import Rule


@pytest.fixture
def bench(cloud, clock):
    return AwsBench(cloud, clock)


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


def last_launch(bench: AwsBench) -> dict[str, str]:
    return [request for request in bench.cloud.requests if request["Action"] == "RunInstances"][-1]


def test_the_registry_finds_it():
    assert kind("aws").settings is AwsSettings


def test_a_missing_sdk_names_what_to_install(bench, monkeypatch):
    monkeypatch.setattr("providers.aws.provider.find_spec", lambda name: None)
    with pytest.raises(MissingSdk, match=r'pip install "\.\[aws\]" in a checkout'):
        bench.kind.build(bench.config, bench.clock)


# ---- one launch on the wire --------------------------------------------------------------------------------


async def test_an_on_demand_launch_on_the_wire(bench, provider):
    spec = bench.spec(1)
    await provider.launch(spec)
    sent = last_launch(bench)
    assert (sent["ClientToken"], sent["MinCount"], sent["MaxCount"]) == (spec.runner_id, "1", "1")
    assert (sent["Placement.AvailabilityZone"], sent["SubnetId"]) == (
        bench.zones[0],
        bench.subnets[bench.zones[0]],
    )
    assert sent["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert sent["MetadataOptions.HttpTokens"] == "required"
    assert sent["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert sent["BlockDeviceMapping.1.DeviceName"] == ROOT_DEVICE
    assert sent["BlockDeviceMapping.1.Ebs.VolumeSize"] == "30"
    assert sent["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp3"
    assert sent["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert "IamInstanceProfile.Name" not in sent
    assert "KeyName" not in sent
    assert not any(key.startswith("InstanceMarketOptions") for key in sent)


async def test_a_spot_launch_is_one_time_and_without_a_bid(bench, provider):
    await provider.launch(bench.spec(1, offer=bench.offer(purchase=Purchase.SPOT)))
    sent = last_launch(bench)
    assert sent["InstanceMarketOptions.MarketType"] == "spot"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert sent["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert not any("MaxPrice" in key for key in sent)


async def test_volume_and_network_interface_carry_our_tags(bench, provider):
    await provider.launch(bench.spec(1))
    sent = last_launch(bench)
    kinds = [sent[f"TagSpecification.{n}.ResourceType"] for n in (1, 2, 3)]
    assert kinds == ["instance", "volume", "network-interface"]
    (volume,) = bench.cloud.backend().describe_volumes()
    tags = {tag["key"]: tag["value"] for tag in volume.get_tags()}
    assert (tags["autoscaler-runner"], tags["Name"]) == (bench.spec(1).runner_id, bench.spec(1).name)


async def test_the_launch_data_is_in_the_user_data_and_nowhere_else(bench, provider):
    await provider.launch(bench.spec(1))
    sent = last_launch(bench)
    text = gzip.decompress(base64.b64decode(sent.pop("UserData"))).decode()
    assert text.startswith("#cloud-config\n")
    assert yaml.safe_load(text)["write_files"][0]["path"] == "/etc/autoscaler/boot.json"
    assert text.count(TOKEN) == 1
    assert TOKEN not in json.dumps(sent)


async def test_settings_reach_the_launch(cloud, clock):
    bench = AwsBench(cloud, clock, volume_type="gp2", tags={"team": "ci", "Name": "mine"})
    group = cloud.backend(REGION).create_security_group("runners", "runners", vpc_id=None)
    settings = bench.config.settings.model_copy(update={"security_groups": {REGION: (group.id,)}})
    bench.config = replace(bench.config, settings=settings)
    provider = bench.kind.build(bench.config, clock)
    made = await provider.launch(bench.spec(1))
    await provider.close()
    assert made.tags["team"] == "ci"
    assert made.tags["Name"] == bench.spec(1).name  # ours win
    assert last_launch(bench)["SecurityGroupId.1"] == group.id
    assert last_launch(bench)["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp2"


@pytest.mark.parametrize("asked", [0, 8])
async def test_the_disk_is_never_smaller_than_the_image(bench, provider, asked):
    await provider.launch(bench.spec(1, disk_gib=asked))
    assert last_launch(bench)["BlockDeviceMapping.1.Ebs.VolumeSize"] == "15"


# ---- refusals that need no launch --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "ami-0123456789abcdef0"}, "ami-0123456789abcdef0"),
        ({"boot": '"' + "".join(f"{n:x}" for n in range(9000)) + '"'}, "16384"),
    ],
)
async def test_k7_a_bad_spec_is_refused_before_anything_is_sent(bench, provider, change, words):
    with pytest.raises(Refused, match=words):
        await provider.launch(bench.spec(1, **change))
    assert bench.cloud.count("RunInstances") == 0


async def test_a_zone_without_a_subnet_is_refused_by_name(bench, provider):
    nowhere = replace(bench.offer(), zone="us-east-1f")
    with pytest.raises(Refused, match=r"no subnet in us-east-1f \(us-east-1\) for provider gift"):
        await provider.launch(bench.spec(1, offer=nowhere))


async def test_an_architecture_without_a_runner_is_refused_by_name(cloud, clock):
    bench = AwsBench(cloud, clock, runner={"version": "2.400.0", "sha256": {"x64": "a" * 64}})
    provider = bench.kind.build(bench.config, clock)
    with pytest.raises(Refused, match=r"no entry for arm64, which m7g\.4xlarge needs"):
        await provider.launch(bench.spec(1, offer=bench.offer("m7g.4xlarge")))
    await provider.close()


# ---- idempotency -------------------------------------------------------------------------------------------


async def test_the_same_token_in_another_zone_would_be_a_second_machine(bench, provider):
    """Why an offer is part of a launch: EC2's token is zonal."""
    await provider.launch(bench.spec(1))
    await provider.launch(bench.spec(1, offer=bench.offer(zone=1)))
    assert len(await bench.machines()) == 2


async def test_a_replay_with_other_parameters_is_unknown_not_refused(bench, provider):
    await provider.launch(bench.spec(1))
    with pytest.raises(OutcomeUnknown, match="applied with other parameters"):
        await provider.launch(bench.spec(1, disk_gib=31))
    assert len(await bench.machines()) == 1


async def test_a_replay_is_byte_identical(bench, provider):
    await provider.launch(bench.spec(1))
    first = last_launch(bench)
    other = bench.kind.build(bench.config, bench.clock)
    await other.launch(bench.spec(1))
    await other.close()
    assert last_launch(bench) == first


async def test_launches_are_never_repeated_by_the_sdk(bench, provider):
    for fault in (Fault.NO_CAPACITY, Fault.THROTTLED, Fault.ANSWER_LOST):
        before = bench.cloud.count("RunInstances")
        await bench.inject(fault)
        with pytest.raises((NoCapacity, Transient, OutcomeUnknown)):
            await provider.launch(bench.spec(1))
        await bench.clear()
        assert bench.cloud.count("RunInstances") == before + 1


async def test_an_internal_error_may_hide_a_machine(bench, provider):
    bench.cloud.add(Rule("RunInstances", code="InternalError", status=500))
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))


async def test_a_slow_answer_does_not_block_the_others(bench, provider):
    answer = threading.Event()
    bench.cloud.add(Rule("RunInstances", until=answer, where=bench.spec(1).runner_id))
    slow = asyncio.ensure_future(provider.launch(bench.spec(1)))
    await provider.launch(bench.spec(2))
    assert not slow.done()
    answer.set()
    await slow


async def test_an_account_that_cannot_be_reached_is_transient_for_launches_too(bench, clock):
    config = replace(bench.config, endpoint="http://127.0.0.1:1")
    provider = bench.kind.build(config, clock)
    with pytest.raises(Transient, match="gift"):
        await provider.instances()
    with pytest.raises(Transient):
        await provider.launch(bench.spec(1))
    await provider.close()


async def test_no_credentials_at_all(bench, clock, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    provider = bench.kind.build(bench.config, clock)
    with pytest.raises(Unauthorized, match="Unable to locate credentials"):
        await provider.launch(bench.spec(1))
    await provider.close()


async def test_a_profile_that_does_not_exist(cloud, clock):
    bench = AwsBench(cloud, clock, profile="sponsor")
    provider = bench.kind.build(bench.config, clock)
    with pytest.raises(Unauthorized, match="sponsor"):
        await provider.instances()
    await provider.close()


# ---- inventory ---------------------------------------------------------------------------------------------


async def test_stopped_machines_are_listed_and_removed_like_others(bench, provider):
    made = await provider.launch(bench.spec(1))
    bench.cloud.backend().stop_instances([made.ref.partition(":")[2]])
    assert [instance.ref for instance in await provider.instances()] == [made.ref]
    await provider.terminate(made.ref)
    assert await provider.instances() == []


async def test_a_region_that_the_policy_left_is_still_watched(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    other = bench.kind.build(replace(bench.config, regions=()), clock)
    assert [instance.ref for instance in await other.instances()] == [made.ref]
    assert await other.offers() == []
    await other.close()


async def test_k28_a_volume_that_was_just_made_is_not_taken_for_an_orphan(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    await bench.end_leaving_a_disk(made)
    clock.skipped_ms = 0
    assert await provider.instances() == []


async def test_k28_a_volume_beside_a_living_machine_is_listed_with_it(bench, provider, clock):
    made = await provider.launch(bench.spec(1))
    volume = bench.cloud.backend().create_volume(size=8, zone_name=bench.zones[0])
    volume.add_tags(bench.spec(1).tags)
    clock.skipped_ms = 3_600_000
    (seen,) = await provider.instances()
    assert (seen.ref, seen.orphans) == (made.ref, (f"{REGION}:{volume.id}",))


async def test_throttled_terminate_is_asked_again(bench, provider):
    made = await provider.launch(bench.spec(1))
    bench.cloud.add(Rule("TerminateInstances", 2, code="RequestLimitExceeded", status=503))
    await provider.terminate(made.ref)
    assert await bench.machines() == []


# ---- offers ------------------------------------------------------------------------------------------------


async def test_offers_carry_list_prices_on_demand_and_the_zone_s_own_for_spot(bench, provider):
    offers = {offer.key: offer for offer in await provider.offers()}
    zone = bench.zones[0]
    assert offers[f"gift/{zone}/c5.large/on_demand"].list_price == 85_000
    assert offers[f"gift/{zone}/c5.large/spot"].list_price == 10  # moto's constant 0.00001 USD
    assert {offer.zone for offer in offers.values()} == set(bench.zones)


async def test_a_type_is_offered_only_where_the_zone_sells_it(bench, provider):
    zone = bench.zones[1]
    only = f"<item><instanceType>c5.large</instanceType><location>{zone}</location></item>"
    bench.cloud.add(
        Rule("DescribeInstanceTypeOfferings", body=f"<instanceTypeOfferingSet>{only}</instanceTypeOfferingSet>")
    )
    assert [offer.key for offer in await provider.offers()] == [
        f"gift/{zone}/c5.large/on_demand",
        f"gift/{zone}/c5.large/spot",
    ]


async def test_the_latest_spot_price_counts(bench, provider):
    zone = bench.zones[0]
    history = "".join(
        f"<item><instanceType>c5.large</instanceType><spotPrice>{price}</spotPrice><timestamp>{at}</timestamp>"
        f"<availabilityZone>{zone}</availabilityZone></item>"
        for price, at in (
            ("0.03", "2026-01-01T10:00:00Z"),
            ("0.04", "2026-01-01T12:00:00Z"),
            ("0.05", "2026-01-01T11:00:00Z"),
        )
    )
    bench.cloud.add(Rule("DescribeSpotPriceHistory", body=f"<spotPriceHistorySet>{history}</spotPriceHistorySet>"))
    (spot,) = [offer for offer in await provider.offers() if offer.purchase is Purchase.SPOT]
    assert (spot.zone, spot.list_price) == (zone, 40_000)


async def test_offers_of_a_region_without_prices_are_unknown_not_free(cloud, clock):
    bench = AwsBench(cloud, clock)
    subnets = {
        "eu-north-1": {
            subnet.availability_zone: subnet.id for subnet in cloud.backend("eu-north-1").describe_subnets()
        }
    }
    settings = AwsSettings.model_validate({"subnets": subnets})
    provider = bench.kind.build(replace(bench.config, regions=("eu-north-1",), settings=settings), clock)
    offers = await provider.offers()
    await provider.close()
    assert offers
    assert {offer.list_price for offer in offers if offer.purchase is Purchase.ON_DEMAND} == {None}


async def test_a_zone_without_a_spot_price_sells_no_spot(bench, provider):
    bench.cloud.add(Rule("DescribeSpotPriceHistory", body="<spotPriceHistorySet/>"))
    assert {offer.purchase for offer in await provider.offers()} == {Purchase.ON_DEMAND}


# ---- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"subnets": {"us-east-1": {"us-west-2a": "subnet-0abc"}}}, "us-west-2a is not a zone of us-east-1"),
        ({"subnets": {"us-east-1": {"us-east-1a": "vpc-0abc"}}}, "subnet-"),
        ({"security_groups": {"us-east-1": ["default"]}}, "sg-"),
        ({"tags": {"autoscaler-fleet": "other"}}, "reserved"),
        ({"subnet": {}}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(ValidationError, match=words):
        AwsSettings.model_validate(settings)


def test_nothing_is_required_but_nothing_is_sold_without_a_subnet(bench):
    config = replace(bench.config, settings=AwsSettings())
    assert bench.kind.catalogue(config) == []


# ---- spot machines that EC2 takes back ---------------------------------------------------------------------


async def test_a_machine_that_ec2_took_is_told_from_one_that_shut_itself_down(bench, provider):
    first, second = [await provider.launch(bench.spec(number)) for number in (1, 2)]
    for made, reason in ((first, "Server.SpotInstanceTermination"), (second, "Client.InstanceInitiatedShutdown")):
        ((machine, _),) = bench.cloud.backend().terminate_instances([made.ref.partition(":")[2]])
        machine.state_reason = StateReason(reason, reason)
    assert await provider.taken([first.ref, second.ref, f"{REGION}:i-00000000000000000"]) == [first.ref]
    assert await provider.instances() == []
