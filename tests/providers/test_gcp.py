"""What only Compute Engine has: one launch on the wire, operations, fixed names, zones that do not answer."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from dataclasses import replace

import pytest
import yaml

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
from providers.gcp import GcpSettings
from providers.registry import kind
from scheduling.model import Purchase
from tests.providers.gce_bench import IMAGE, REGION, GceBench
from tests.providers.gce_cloud import BASE, INSERT, PROJECT, GceCloud, error
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


def last_insert(bench):
    return [request for request in bench.cloud.requests if request.method == "POST"][-1]


def metadata(bench) -> dict[str, str]:
    return {item["key"]: item["value"] for item in last_insert(bench).body["metadata"]["items"]}


def test_the_registry_finds_it():
    assert kind("gcp").settings is GcpSettings


def test_a_missing_sdk_names_what_to_install(bench, monkeypatch):
    monkeypatch.setattr("providers.gcp.provider.find_spec", lambda name: None)
    with pytest.raises(MissingSdk, match=r'pip install "\.\[gcp\]" in a checkout'):
        bench.kind.build(bench.config, bench.clock)


# ---- one launch on the wire --------------------------------------------------------------------------------


async def test_an_on_demand_launch_on_the_wire(bench, provider):
    spec = bench.spec(1)
    made = await provider.launch(spec)
    sent = last_insert(bench)
    zone = bench.zones[0]
    assert sent.path == f"{BASE}/zones/{zone}/instances"
    assert uuid.UUID(sent.query["requestId"]).version == 5
    assert made.ref == f"{zone}/{spec.name}"
    assert (sent.body["name"], sent.body["machineType"]) == (spec.name, f"zones/{zone}/machineTypes/n2-standard-2")
    (disk,) = sent.body["disks"]
    assert (disk["boot"], disk["autoDelete"]) == (True, True)
    assert disk["initializeParams"]["sourceImage"] == IMAGE
    assert disk["initializeParams"]["diskSizeGb"] == "30"
    assert disk["initializeParams"]["diskType"] == f"zones/{zone}/diskTypes/pd-balanced"
    assert disk["initializeParams"]["labels"] == sent.body["labels"]
    assert sent.body["scheduling"] == {
        "provisioningModel": "STANDARD",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(4 * 3600)},
        "automaticRestart": False,
        "onHostMaintenance": "MIGRATE",
    }
    assert not sent.body.get("serviceAccounts")
    assert sent.body["networkInterfaces"] == [
        {
            "network": f"projects/{PROJECT}/global/networks/default",
            "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
        }
    ]


async def test_a_spot_launch_is_deleted_when_it_is_taken(bench, provider):
    await provider.launch(bench.spec(1, offer=bench.offer(purchase=Purchase.SPOT)))
    scheduling = last_insert(bench).body["scheduling"]
    assert scheduling["provisioningModel"] == "SPOT"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert scheduling["onHostMaintenance"] == "TERMINATE"
    assert scheduling["maxRunDuration"] == {"seconds": str(4 * 3600)}


async def test_a_machine_with_gpus_of_its_own_choice(bench, provider):
    offer = bench.offer("n1-standard-32+4xnvidia-tesla-v100")
    assert (offer.hardware.gpu.model, offer.hardware.gpu.count) == ("v100", 4)
    await provider.launch(bench.spec(1, offer=offer))
    sent = last_insert(bench).body
    assert sent["machineType"].endswith("/n1-standard-32")
    assert sent["guestAccelerators"] == [
        {
            "acceleratorType": f"projects/{PROJECT}/zones/{bench.zones[0]}/acceleratorTypes/nvidia-tesla-v100",
            "acceleratorCount": 4,
        }
    ]
    assert sent["scheduling"]["onHostMaintenance"] == "TERMINATE"
    (seen,) = await provider.instances()
    assert seen.instance_type == offer.instance_type


async def test_the_launch_data_is_in_the_user_data_and_nowhere_else(bench, provider):
    await provider.launch(bench.spec(1))
    items = metadata(bench)
    text = items.pop("user-data")
    plan = yaml.safe_load(text)
    assert text.startswith("#cloud-config\n")
    assert plan["write_files"][0]["path"] == "/etc/autoscaler/boot.json"
    assert text.count(TOKEN) == 1
    assert TOKEN not in json.dumps(items) + json.dumps(last_insert(bench).body["labels"])
    assert items["block-project-ssh-keys"] == "TRUE"


async def test_jobs_cannot_ask_the_metadata_service_but_names_resolve(bench, provider):
    """On Compute Engine the metadata service's address is the name server too."""
    await provider.launch(bench.spec(1))
    first = yaml.safe_load(metadata(bench)["user-data"])["runcmd"][0]
    assert first[:5] == ["ip", "rule", "add", "to", "169.254.169.254"]
    assert first[first.index("dport") + 1] == "80"


async def test_settings_reach_the_launch(gce, clock):
    bench = GceBench(
        gce,
        clock,
        subnetworks={REGION: "ci"},
        external_ip=False,
        network_tags=["ci-runner"],
        disk_type="pd-ssd",
        labels={"team": "ci"},
    )
    provider = bench.kind.build(bench.config, clock)
    made = await provider.launch(bench.spec(1))
    (seen,) = await provider.instances()
    await provider.close()
    sent = last_insert(bench).body
    assert made.tags["team"] == seen.tags["team"] == "ci"
    assert sent["tags"] == {"items": ["ci-runner"]}
    assert sent["disks"][0]["initializeParams"]["diskType"].endswith("/pd-ssd")
    assert sent["networkInterfaces"] == [
        {
            "network": f"projects/{PROJECT}/global/networks/default",
            "subnetwork": f"projects/{PROJECT}/regions/{REGION}/subnetworks/ci",
        }
    ]


async def test_a_shared_vpc_names_its_own_network(gce, clock):
    shared = f"projects/host-project/regions/{REGION}/subnetworks/ci"
    bench = GceBench(gce, clock, subnetworks={REGION: shared})
    provider = bench.kind.build(bench.config, clock)
    await provider.launch(bench.spec(1))
    await provider.close()
    (interface,) = last_insert(bench).body["networkInterfaces"]
    assert interface["subnetwork"] == shared
    assert "network" not in interface


async def test_a_disk_of_no_asked_size_is_the_image_s(bench, provider):
    await provider.launch(bench.spec(1, disk_gib=0))
    assert "diskSizeGb" not in last_insert(bench).body["disks"][0]["initializeParams"]


async def test_a_fleet_that_begins_with_a_digit_has_valid_names(bench, clock):
    config = replace(bench.config, fleet="2026-ci")
    provider = bench.kind.build(config, clock)
    spec = bench.spec(1, fleet="2026-ci")
    made = await provider.launch(spec)
    (seen,) = await provider.instances()
    await provider.close()
    assert made.ref == seen.ref == f"{bench.zones[0]}/{spec.runner_id}"
    assert seen.tags["autoscaler-fleet"] == "2026-ci"


# ---- refusals that need no launch --------------------------------------------------------------------------


async def test_k7_launch_data_that_does_not_fit_is_refused_before_anything_is_sent(bench, provider):
    too_long = '"' + "".join(f"{n:x}" for n in range(150_000)) + '"'
    with pytest.raises(Refused, match="262144"):
        await provider.launch(bench.spec(1, boot=too_long))
    assert bench.cloud.count(INSERT) == 0


async def test_an_architecture_without_a_runner_is_refused_by_name(gce, clock):
    bench = GceBench(gce, clock, runner={"version": "2.400.0", "sha256": {"x64": "a" * 64}})
    provider = bench.kind.build(bench.config, clock)
    with pytest.raises(Refused, match="no entry for arm64, which t2a-standard-4 needs"):
        await provider.launch(bench.spec(1, offer=bench.offer("t2a-standard-4")))
    await provider.close()


# ---- idempotency and operations ----------------------------------------------------------------------------


async def test_a_replay_is_byte_identical(bench, provider):
    await provider.launch(bench.spec(1))
    first = last_insert(bench)
    other = bench.kind.build(bench.config, bench.clock)
    await other.launch(bench.spec(1))
    await other.close()
    again = last_insert(bench)
    assert (again.path, again.query, again.body) == (first.path, first.query, first.body)


async def test_a_name_that_is_ours_already_is_the_machine(bench, provider):
    """Google remembers a request id for a while; the name holds for as long as the machine."""
    made = await provider.launch(bench.spec(1))
    bench.cloud.by_request.clear()
    again = await provider.launch(bench.spec(1))
    assert (again.ref, again.tags, again.instance_type) == (made.ref, made.tags, made.instance_type)
    assert len(await bench.machines()) == 1


async def test_a_name_that_is_somebody_s_is_refused(bench, provider):
    bench.cloud.put(bench.zones[0], bench.spec(1).name, {"team": "web"})
    with pytest.raises(Refused, match="does not carry this runner's labels"):
        await provider.launch(bench.spec(1))


async def test_a_name_that_was_taken_and_is_gone_is_unknown(bench, provider):
    bench.cloud.add(Rule(INSERT, error(409, "alreadyExists", "exists")))
    with pytest.raises(OutcomeUnknown, match="earlier call"):
        await provider.launch(bench.spec(1))


@pytest.mark.parametrize(
    ("codes", "kind_of_error"),
    [
        (["ZONE_RESOURCE_POOL_EXHAUSTED"], NoCapacity),
        (["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"], NoCapacity),
        (["QUOTA_EXCEEDED"], QuotaExceeded),
        (["RESOURCE_NOT_FOUND"], Refused),
        (["UNSUPPORTED_OPERATION"], Refused),
        (["PERMISSIONS_ERROR"], Unauthorized),
        (["INTERNAL_ERROR"], OutcomeUnknown),
    ],
)
async def test_k6_what_an_operation_says_when_it_is_done(bench, provider, codes, kind_of_error):
    bench.cloud.fails = codes
    with pytest.raises(kind_of_error, match=rf"gift \(us-central1-a\) insert: {codes[0]}"):
        await provider.launch(bench.spec(1))
    assert await bench.machines() == []


async def test_an_operation_that_is_never_done_is_unknown(bench, provider, clock):
    async def sleep(ms: int) -> None:
        clock.skipped_ms += ms

    clock.sleep = sleep
    bench.cloud.never_done = True
    with pytest.raises(OutcomeUnknown, match="not done after 90 s"):
        await provider.launch(bench.spec(1))
    assert len(await bench.machines()) == 1
    assert bench.cloud.count("GET .*/operations/") < 40


async def test_an_operation_that_cannot_be_asked_for_is_unknown(bench, provider):
    bench.cloud.add(Rule("GET .*/operations/", error(403, "forbidden", "no compute.zoneOperations.get")))
    with pytest.raises(OutcomeUnknown, match=r"zoneOperations\.get"):
        await provider.launch(bench.spec(1))


async def test_the_public_host_is_never_asked_about_operations(bench, provider):
    """The SDK's own waiting would ask it, whatever the endpoint is."""
    await provider.launch(bench.spec(1))
    assert bench.cloud.count("GET .*/operations/") >= 1


async def test_launches_are_never_repeated_by_the_sdk(bench, provider):
    for fault in (Fault.QUOTA, Fault.THROTTLED, Fault.ANSWER_LOST):
        before = bench.cloud.count(INSERT)
        await bench.inject(fault)
        with pytest.raises(ProviderError):
            await provider.launch(bench.spec(1))
        await bench.clear()
        assert bench.cloud.count(INSERT) == before + 1


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_an_internal_error_may_hide_a_machine(bench, provider, status):
    bench.cloud.add(Rule(INSERT, error(status, "backendError", "try again"), times=1))
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))


async def test_a_slow_answer_does_not_block_the_others(bench, provider):
    answer = threading.Event()
    bench.cloud.add(Rule(INSERT, until=answer, where=bench.spec(1).name))
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


async def test_no_credentials_at_all(bench, clock, monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    config = replace(bench.config, endpoint="https://127.0.0.1:1")
    provider = bench.kind.build(config, clock)
    with pytest.raises(Unauthorized, match=r"none\.json"):
        await provider.launch(bench.spec(1))
    await provider.close()


async def test_a_credentials_file_that_does_not_exist(bench, clock):
    settings = bench.config.settings.model_copy(update={"credentials_file": "/nowhere/key.json"})
    provider = bench.kind.build(replace(bench.config, endpoint=None, settings=settings), clock)
    with pytest.raises(Unauthorized, match=r"/nowhere/key\.json"):
        await provider.instances()
    await provider.close()


async def test_a_project_that_nobody_names(bench, clock):
    settings = bench.config.settings.model_copy(update={"project": None})
    provider = bench.kind.build(replace(bench.config, settings=settings), clock)
    with pytest.raises(Unauthorized, match=r"settings\.project"):
        await provider.launch(bench.spec(1))
    await provider.close()
