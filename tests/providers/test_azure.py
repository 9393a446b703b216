"""What only Azure has: one launch on the wire, operations that fail late, what is left behind, pages by link."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import typing
from dataclasses import replace

import pytest
import yaml
from azure.mgmt.compute import models, types

from providers.azure import AzureSettings
from providers.base import (
    MissingSdk,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.conformance import TOKEN, Fault
from providers.registry import kind
from scheduling.model import Purchase
from tests.providers.arm_bench import NETWORK, REGION, SUBNET, ArmBench
from tests.providers.arm_cloud import CREATE, MACHINES, STATUS, ArmCloud, error
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


def last_create(bench):
    return [request for request in bench.cloud.requests if request.method == "PUT"][-1]


def test_the_registry_finds_it():
    assert kind("azure").settings is AzureSettings


@pytest.mark.parametrize("missing", ["azure.mgmt.compute", "azure.identity"])
def test_a_missing_sdk_names_what_to_install(bench, monkeypatch, missing):
    monkeypatch.setattr("providers.azure.provider.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingSdk, match=rf'{missing.replace(".", "-")}: pip install "\.\[azure\]" in a checkout'):
        bench.kind.build(bench.config, bench.clock)


# ---- one launch on the wire --------------------------------------------------------------------------------


async def test_an_on_demand_launch_on_the_wire(bench, provider):
    spec = bench.spec(1)
    made = await provider.launch(spec)
    sent = last_create(bench)
    assert sent.path == f"{MACHINES}/{spec.name}"
    assert sent.headers["if-none-match"] == "*"
    assert made.ref == f"virtualMachines/{spec.name}"
    assert (sent.body["location"], sent.body["zones"]) == (REGION, ["1"])
    assert sent.body["tags"] == spec.tags
    properties = sent.body["properties"]
    assert properties["hardwareProfile"] == {"vmSize": "Standard_D2s_v4"}
    assert properties["priority"] == "Regular"
    assert "evictionPolicy" not in properties
    assert properties["storageProfile"] == {
        "imageReference": {
            "publisher": "Canonical",
            "offer": "ubuntu-24_04-lts",
            "sku": "server",
            "version": "latest",
        },
        "osDisk": {
            "name": f"{spec.name}-disk",
            "createOption": "FromImage",
            "deleteOption": "Delete",
            "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
            "diskSizeGB": 64,
        },
    }
    (interface,) = properties["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["properties"]["deleteOption"] == "Delete"
    (address,) = interface["properties"]["ipConfigurations"]
    assert address["properties"]["subnet"] == {"id": SUBNET}
    assert address["properties"]["publicIPAddressConfiguration"]["properties"]["deleteOption"] == "Delete"
    assert "identity" not in sent.body


async def test_every_name_in_a_launch_is_one_that_the_sdk_knows(arm, clock):
    """Azure ignores or refuses what it does not know; the SDK's types are made from its published description."""
    group = f"{NETWORK}/networkSecurityGroups/closed"
    bench = ArmBench(arm, clock, security_groups={REGION: group})
    provider = bench.kind.build(bench.config, clock)
    await provider.launch(bench.spec(1, offer=bench.offer(purchase=Purchase.SPOT)))
    await provider.close()
    assert unknown(last_create(bench).body, types.VirtualMachine) == []


def unknown(value, hint) -> list[str]:
    """Keys below `value` that the typed dictionary `hint` does not have."""
    either = (hint, *typing.get_args(hint))
    if isinstance(value, list):
        (element,) = typing.get_args(next(each for each in either if typing.get_origin(each) is list))
        return [name for each in value for name in unknown(each, element)]
    inner = [each for each in either if hasattr(each, "__total__")]
    if not isinstance(value, dict) or not inner:
        return []
    hints = typing.get_type_hints(inner[0], {**vars(models), **vars(types)})
    return [key for key in value if key not in hints] + [
        name for key, each in value.items() if key in hints for name in unknown(each, hints[key])
    ]


async def test_a_spot_launch_is_deleted_when_it_is_taken_and_makes_no_bid(bench, provider):
    await provider.launch(bench.spec(1, offer=bench.offer(purchase=Purchase.SPOT)))
    properties = last_create(bench).body["properties"]
    assert (properties["priority"], properties["evictionPolicy"]) == ("Spot", "Delete")
    assert properties["billingProfile"] == {"maxPrice": -1}


async def test_nobody_can_log_in(bench, provider):
    """Azure demands a key or a password: each process makes a key and forgets its private half."""
    await provider.launch(bench.spec(1))
    linux = last_create(bench).body["properties"]["osProfile"]["linuxConfiguration"]
    assert linux["disablePasswordAuthentication"] is True
    (key,) = linux["ssh"]["publicKeys"]
    assert key["keyData"].startswith("ssh-rsa ")


async def test_the_launch_data_is_in_the_custom_data_and_nowhere_else(bench, provider):
    await provider.launch(bench.spec(1))
    sent = last_create(bench).body
    text = base64.b64decode(sent["properties"]["osProfile"].pop("customData")).decode()
    assert text.startswith("#cloud-config\n")
    assert yaml.safe_load(text)["write_files"][0]["path"] == "/etc/autoscaler/boot.json"
    assert text.count(TOKEN) == 1
    assert TOKEN not in json.dumps(sent)


async def test_settings_reach_the_launch(arm, clock):
    group = f"{NETWORK}/networkSecurityGroups/closed"
    bench = ArmBench(
        arm,
        clock,
        zones={},
        public_ip=False,
        security_groups={REGION: group},
        disk_type="Premium_LRS",
        tags={"team": "ci"},
    )
    provider = bench.kind.build(bench.config, clock)
    made = await provider.launch(bench.spec(1))
    (seen,) = await provider.instances()
    await provider.close()
    sent = last_create(bench).body
    assert (made.zone, seen.zone) == (REGION, REGION)
    assert made.tags["team"] == seen.tags["team"] == "ci"
    assert "zones" not in sent
    assert sent["properties"]["storageProfile"]["osDisk"]["managedDisk"] == {"storageAccountType": "Premium_LRS"}
    (interface,) = sent["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    assert interface["properties"]["networkSecurityGroup"] == {"id": group}
    assert "publicIPAddressConfiguration" not in interface["properties"]["ipConfigurations"][0]["properties"]


@pytest.mark.parametrize(
    ("image", "key"),
    [
        ("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/runner", "id"),
        ("/CommunityGalleries/ci-1/Images/runner/Versions/latest", "communityGalleryImageId"),
        ("/SharedGalleries/ci-1/Images/runner/Versions/latest", "sharedGalleryImageId"),
    ],
)
async def test_images_by_id(bench, provider, image, key):
    await provider.launch(bench.spec(1, image=image))
    assert last_create(bench).body["properties"]["storageProfile"]["imageReference"] == {key: image}


# ---- refusals that need no launch --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": "ami-0123"}, "PUBLISHER:OFFER:SKU:VERSION"),
        ({"boot": '"' + "".join(f"{n:x}" for n in range(40_000)) + '"'}, "65535"),
    ],
)
async def test_k7_a_bad_spec_is_refused_before_anything_is_sent(bench, provider, change, words):
    with pytest.raises(Refused, match=words):
        await provider.launch(bench.spec(1, **change))
    assert bench.cloud.count(CREATE) == 0


async def test_a_region_without_a_subnet_is_refused_by_name(bench, provider):
    nowhere = replace(bench.offer(), region="westus2", zone="westus2")
    with pytest.raises(Refused, match=r"settings\.subnets names no subnet in westus2 for provider gift"):
        await provider.launch(bench.spec(1, offer=nowhere))


@pytest.mark.parametrize("key", ["subscription", "resource_group"])
async def test_a_list_of_nowhere_is_no_list(bench, clock, key):
    """Taking the key out of the policy must not prove that its machines are gone."""
    settings = bench.config.settings.model_copy(update={key: None})
    provider = bench.kind.build(replace(bench.config, settings=settings), clock)
    with pytest.raises(Refused, match=rf"settings\.{key} is missing for provider gift"):
        await provider.instances()
    assert await provider.offers() == []
    await provider.close()


# ---- idempotency and operations ----------------------------------------------------------------------------


async def test_a_name_that_is_somebody_s_is_refused(bench, provider):
    bench.cloud.put(bench.spec(1).name, {"team": "web"}, {})
    with pytest.raises(Refused, match="does not carry this runner's tags"):
        await provider.launch(bench.spec(1))


@pytest.mark.parametrize(
    ("code", "kind_of_error", "left"),
    [
        ("AllocationFailed", NoCapacity, 0),
        ("ZonalAllocationFailed", NoCapacity, 0),
        ("OverconstrainedZonalAllocationRequest", NoCapacity, 0),
        ("OverconstrainedAllocationRequest", NoCapacity, 0),
        ("QuotaExceeded", QuotaExceeded, 0),
        ("ImageNotFound", Refused, 0),
        ("OSProvisioningTimedOut", OutcomeUnknown, 1),
        ("InternalExecutionError", OutcomeUnknown, 1),
    ],
)
async def test_k6_what_an_operation_says_when_it_is_done(bench, provider, code, kind_of_error, left):
    """A definite failure's remains are removed at once; where the machine may run, it is kept and listed."""
    bench.cloud.fails = code
    with pytest.raises(kind_of_error, match=rf"gift create \S+: {code}"):
        await provider.launch(bench.spec(1))
    assert len(await bench.machines()) == len(await provider.instances()) == left


async def test_k6_a_sku_that_is_not_sold_is_said_at_once(bench, provider):
    bench.cloud.add(Rule(CREATE, error(409, "SkuNotAvailable", "The requested size is currently not available")))
    with pytest.raises(NoCapacity):
        await provider.launch(bench.spec(1))


async def test_a_failed_machine_of_an_earlier_call_says_why(bench, provider):
    """The answer was lost, the operation failed meanwhile: the replay tells, and sweeps."""
    bench.cloud.fails = "AllocationFailed"
    bench.cloud.add(Rule(CREATE, cut=True, apply=True, times=2))  # the HTTP library asks again once
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))
    with pytest.raises(NoCapacity, match="AllocationFailed"):
        await provider.launch(bench.spec(1))
    assert await bench.machines() == []


async def test_a_failed_machine_that_cannot_be_removed_is_listed(bench, provider):
    bench.cloud.fails = "AllocationFailed"
    bench.cloud.add(Rule("DELETE ", error(409, "Conflict", "busy")))
    with pytest.raises(NoCapacity):
        await provider.launch(bench.spec(1))
    (left,) = await provider.instances()
    bench.cloud.clear()
    await provider.terminate(left.ref)
    assert await provider.instances() == []


async def test_a_creation_under_way_is_waited_for(bench, provider):
    bench.cloud.add(Rule(CREATE, cut=True, apply=True, times=2))
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))
    bench.cloud.clear()
    bench.cloud.never_done = True
    replay = asyncio.ensure_future(provider.launch(bench.spec(1)))
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not replay.done()
    bench.cloud.never_done = False
    assert (await replay).runner_id == bench.spec(1).runner_id


@pytest.mark.parametrize("replay", [False, True])
async def test_an_operation_that_is_never_done_is_unknown(bench, provider, clock, replay):
    async def sleep(ms: int) -> None:
        clock.skipped_ms += ms

    clock.sleep = sleep
    bench.cloud.never_done = True
    if replay:
        bench.cloud.put(bench.spec(1).name, bench.spec(1).tags, {}, "Creating")
    with pytest.raises(OutcomeUnknown, match="Creating" if replay else "not done after 100 s"):
        await provider.launch(bench.spec(1))
    assert len(await bench.machines()) == 1
    assert bench.cloud.count("GET ") < 60


async def test_an_operation_that_cannot_be_asked_for_is_unknown(bench, provider):
    bench.cloud.add(Rule(STATUS, error(403, "AuthorizationFailed", "no locations/operations/read")))
    with pytest.raises(OutcomeUnknown, match="operations/read"):
        await provider.launch(bench.spec(1))


async def test_an_operation_is_asked_for_again_through_throttling(bench, provider):
    bench.cloud.add(Rule(STATUS, error(429, "TooManyRequests", "slow down", Retry_After="3"), times=2))
    await provider.launch(bench.spec(1))


async def test_a_throttled_launch_is_definite_and_not_repeated(bench, provider):
    for fault in (Fault.QUOTA, Fault.THROTTLED):
        before = bench.cloud.count(CREATE)
        await bench.inject(fault)
        with pytest.raises(ProviderError):
            await provider.launch(bench.spec(1))
        await bench.clear()
        assert bench.cloud.count(CREATE) == before + 1


@pytest.mark.parametrize("status", [408, 500, 502, 503])
async def test_an_internal_error_may_hide_a_machine(bench, provider, status):
    bench.cloud.add(Rule(CREATE, error(status, "InternalServerError", "try again"), times=1))
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))


async def test_a_slow_answer_does_not_block_the_others(bench, provider):
    answer = threading.Event()
    bench.cloud.add(Rule(CREATE, until=answer, where=bench.spec(1).name))
    slow = asyncio.ensure_future(provider.launch(bench.spec(1)))
    await provider.launch(bench.spec(2))
    assert not slow.done()
    answer.set()
    await slow


async def test_an_account_that_cannot_be_reached_is_transient_for_launches_too(bench, clock):
    provider = bench.kind.build(replace(bench.config, endpoint="http://127.0.0.1:1"), clock)
    with pytest.raises(Transient, match="gift"):
        await provider.instances()
    with pytest.raises(Transient):
        await provider.launch(bench.spec(1))
    await provider.close()


async def test_a_secret_that_is_not_there(bench, clock):
    guid = bench.config.settings.subscription
    changes = {"tenant": guid, "client": guid, "client_secret_file": "/nowhere/secret"}
    settings = bench.config.settings.model_copy(update=changes)
    provider = bench.kind.build(replace(bench.config, endpoint="https://127.0.0.1:1", settings=settings), clock)
    for _ in range(2):
        with pytest.raises(Unauthorized, match="/nowhere/secret"):
            await provider.instances()
    await provider.close()


async def test_no_credentials_at_all(bench, clock, monkeypatch):
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    provider = bench.kind.build(replace(bench.config, endpoint="https://127.0.0.1:1"), clock)
    with pytest.raises(Unauthorized, match="EnvironmentCredential"):
        await provider.launch(bench.spec(1))
    await provider.close()
