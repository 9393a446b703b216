"""Each kind's own part of `provider check`: on a good account, and on one that lacks this or that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.aws import KIND as AWS
from providers.azure import KIND as AZURE
from providers.base import CheckLine
from providers.gcp import KIND as GCP
from providers.kubernetes import KIND as KUBERNETES
from providers.ssh import KIND as SSH
from scheduling.model import Purchase
from tests.providers.arm_bench import ArmBench
from tests.providers.arm_cloud import ArmCloud
from tests.providers.aws_bench import AwsBench
from tests.providers.gce_bench import GceBench
from tests.providers.gce_cloud import GceCloud
from tests.providers.k8s_bench import KubernetesBench
from tests.providers.k8s_cluster import Cluster
from tests.providers.moto_cloud import Rule
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd


async def lines_of(kind, bench, samples=None):
    provider = kind.build(bench.config, bench.clock)
    try:
        return await provider.check([bench.spec(0)] if samples is None else samples)
    finally:
        await provider.close()


def bad(lines: list[CheckLine]) -> list[CheckLine]:
    failed = [line for line in lines if not line.ok]
    assert all(line.detail and line.mend for line in failed)
    return failed


# ---- aws ---------------------------------------------------------------------------------------------------


def on_ec2(bench):
    return [
        bench.spec(0, offer=bench.offer(purchase=purchase, zone=zone))
        for zone in (0, 1)
        for purchase in (Purchase.ON_DEMAND, Purchase.SPOT)
    ]


async def test_a_good_aws_account(cloud, clock):
    bench = AwsBench(cloud, clock)
    lines = await lines_of(AWS, bench, on_ec2(bench))
    assert bad(lines) == []
    assert len([line for line in lines if "launch" in line.what]) == 4
    assert await bench.machines() == []


async def test_an_aws_account_that_lacks_permissions(cloud, clock):
    bench = AwsBench(cloud, clock)
    cloud.add(Rule("RunInstances", 100, code="UnauthorizedOperation", status=403))
    cloud.add(Rule("DescribeVolumes", 100, code="UnauthorizedOperation", status=403))
    failed = bad(await lines_of(AWS, bench, on_ec2(bench)))
    assert next(line.what for line in failed) == "us-east-1: list volumes"
    assert len(failed) == 5
    assert all("permission" in line.mend for line in failed)


async def test_aws_images_that_are_missing_or_of_another_architecture(cloud, clock):
    bench = AwsBench(cloud, clock)
    (line,) = bad(await lines_of(AWS, bench, [bench.spec(0, image="ami-00000000000000000")]))
    assert line.what == "us-east-1: image ami-00000000000000000"
    arm = bench.spec(0, offer=bench.offer("m7g.4xlarge"))
    (line,) = bad(await lines_of(AWS, bench, [arm]))
    assert "is for x64, and m7g.4xlarge is not" in line.detail


async def test_a_host_whose_clock_is_off(cloud, clock):
    clock.skipped_ms = 600_000
    (line,) = bad(await lines_of(AWS, AwsBench(cloud, clock)))
    assert (line.what, line.mend) == ("clock", "set this host's clock by NTP")
    clock.skipped_ms = 0


# ---- gcp ---------------------------------------------------------------------------------------------------


async def test_a_google_project(clock):
    with GceCloud() as cloud:
        bench = GceBench(cloud, clock, subnetworks={"us-central1": "runners"})
        assert bad(await lines_of(GCP, bench)) == []
        cloud.forbidden, cloud.cpus_used = {"compute.instances.create"}, 23.0
        cloud.images.clear()
        cloud.subnetworks.clear()
        permissions, quota, subnetwork, image = bad(await lines_of(GCP, bench))
        assert permissions.detail == "missing: compute.instances.create"
        assert quota.detail == "23 of 24 in use, a machine takes 2"
        assert (subnetwork.what, image.what[:5]) == ("us-central1: subnetwork runners", "image")
        assert cloud.machines == {}


# ---- azure -------------------------------------------------------------------------------------------------


async def test_an_azure_subscription(clock):
    with ArmCloud() as cloud:
        bench = ArmBench(cloud, clock)
        assert bad(await lines_of(AZURE, bench)) == []
        cloud.not_actions.append("Microsoft.Compute/*/delete")
        cloud.cores_used = 19
        cloud.subnets.clear()
        permissions, subnet, quota = bad(await lines_of(AZURE, bench))
        assert "Microsoft.Compute/virtualMachines/delete" in permissions.detail
        assert subnet.what == "eastus: subnet"
        assert quota.detail == "19 of 20 in use, a machine takes 2"


async def test_a_size_that_azure_restricts_is_refused_with_the_reason(clock):
    with ArmCloud() as cloud:
        bench = ArmBench(cloud, clock)
        info = {"locations": ["eastus"], "zones": ["2"]}
        cloud.restricted["Standard_D2s_v4"] = {
            "type": "Zone",
            "reasonCode": "NotAvailableForSubscription",
            "restrictionInfo": info,
        }
        provider = AZURE.build(bench.config, clock)
        refusals = {
            offer.zone: offer.refusal
            for offer in await provider.offers()
            if offer.instance_type == "Standard_D2s_v4"
        }
        await provider.close()
        why = "Azure restricts it for this subscription: NotAvailableForSubscription"
        assert refusals == {"eastus-1": "", "eastus-2": why}
        sample = bench.spec(0, offer=replace(bench.offer(zone=1), refusal=why))
        (line,) = bad(await lines_of(AZURE, bench, [sample]))
        assert line.detail == why


# ---- kubernetes --------------------------------------------------------------------------------------------


async def test_a_cluster(clock, tmp_path):
    async with Cluster() as cluster:
        bench = KubernetesBench(cluster, clock, tmp_path)
        assert bad(await lines_of(KUBERNETES, bench)) == []
        cluster.forbidden = {"watch pods", "create secrets"}
        status = {"hard": {"pods": "10", "limits.cpu": "40"}, "used": {"pods": "10", "limits.cpu": "8"}}
        cluster.quotas = [{"metadata": {"name": "ci"}, "status": status}]
        permissions, quota, pod = bad(await lines_of(KUBERNETES, bench, [bench.spec(0, image="")]))
        assert permissions.detail == "missing: watch pods, create secrets"
        assert (quota.what, quota.detail) == ("quota ci", "limits.cpu 8 of 40, pods 10 of 10")
        assert "image" in pod.detail
        assert cluster.pods == {}


# ---- ssh ---------------------------------------------------------------------------------------------------


@pytest.mark.needs("sshd", "bwrap")
async def test_a_donated_host(clock, tmp_path):
    with Sshd(tmp_path) as sshd:
        bench = SshBench(sshd, clock, tmp_path)
        assert bad(await lines_of(SSH, bench)) == []
        sshd.fault = "bare"
        assert [line.what for line in bad(await lines_of(SSH, bench))] in ([], ["attic: launcher"])
        sshd.fault = ""
        sshd.admit(False)
        (line,) = bad(await lines_of(SSH, bench))
        assert line.what == "attic: way in"
        assert "authorized_keys" in line.mend
        bench.close()


@pytest.mark.needs("sshd", "bwrap")
async def test_a_donated_host_that_is_smaller_or_not_the_one_of_the_policy(clock, tmp_path):
    with Sshd(tmp_path) as sshd:
        bench = SshBench(sshd, clock, tmp_path)
        (host,) = bench.config.settings.hosts
        larger = host.model_copy(update={"cpus": 1000})
        bench.config = replace(
            bench.config, settings=bench.config.settings.model_copy(update={"hosts": (larger,)})
        )
        (line,) = bad(await lines_of(SSH, bench))
        assert line.what == "attic: hardware"
        other = host.model_copy(update={"host_key": "ssh-ed25519 " + "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43})
        bench.config = replace(bench.config, settings=bench.config.settings.model_copy(update={"hosts": (other,)}))
        (line,) = bad(await lines_of(SSH, bench))
        assert "another host key" in line.detail
        assert "ssh-keyscan" in line.mend
        bench.close()
