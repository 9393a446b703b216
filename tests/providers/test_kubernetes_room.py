"""`max_runners: from_cluster`: what a cluster has room for, counted as its own scheduler counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.base import Unauthorized
from providers.kubernetes.capacity import amounts, requested, room
from scheduling.model import Gpu, Hardware
from tests.providers.k8s_bench import RBAC, KubernetesBench
from tests.providers.k8s_cluster import Cluster, Rule

pytest.importorskip("kubernetes_asyncio", reason="kubernetes-asyncio is not installed")

LABELS = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def machine(name: str = "host-1", cpu: str = "16", memory: str = "64Gi", **changes: object) -> dict:
    found = {
        "metadata": {"name": name, "labels": {**LABELS, **changes.pop("labels", {})}},
        "spec": changes.pop("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"},
            "conditions": [{"type": "Ready", "status": changes.pop("ready", "True")}],
        },
    }
    found["status"]["allocatable"].update(changes)
    return found


def pod(where: str, cpu: str, memory: str = "1Gi", phase: str = "Running") -> dict:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "metadata": {"name": f"other-{cpu}", "namespace": "other"},
        "spec": {"nodeName": where, "containers": [container]},
        "status": {"phase": phase},
    }


@pytest.fixture
async def cluster():
    async with Cluster() as cluster:
        cluster.machines = [machine()]
        yield cluster


@pytest.fixture
def bench(cluster, clock, tmp_path):
    bench = KubernetesBench(cluster, clock, tmp_path)
    bench.config = replace(bench.config, from_cluster=True)
    return bench


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


async def counts(provider) -> list[int | None]:
    return [offer.count for offer in await provider.offers()]


async def test_what_is_free_counts(provider):
    assert await counts(provider) == [4]  # 16 CPUs and 64 GiB hold four pods of 4 CPUs and 16 GiB


async def test_what_others_requested_does_not(provider, cluster):
    cluster.others = [pod("host-1", "3920m"), pod("host-1", "9", phase="Succeeded"), pod("host-2", "16")]
    assert await counts(provider) == [3]


async def test_what_runs_of_ours_counts_on(provider, cluster, bench):
    await provider.launch(bench.spec(1))
    assert cluster.pods[bench.spec(1).name]["spec"]["nodeName"] == "host-1"
    assert await counts(provider) == [1 + 3]


async def test_without_the_right_to_list_it_says_so(provider, cluster):
    cluster.rules.append(Rule("GET", "/nodes", status=403, message=RBAC.replace("create resource", "list")))
    with pytest.raises(Unauthorized):
        await provider.offers()


async def test_without_from_cluster_nobody_asks(bench, cluster, clock):
    provider = bench.kind.build(replace(bench.config, from_cluster=False), clock)
    assert await counts(provider) == [None]
    assert cluster.requests == []
    await provider.close()


# ---- the count itself --------------------------------------------------------------------------------------

SPEC = {
    "containers": [{"resources": {"requests": {"cpu": "4", "memory": "16Gi"}}}],
    "nodeSelector": LABELS,
    "tolerations": [{"key": "ci", "operator": "Exists"}],
}


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({}, 4),
        ({"memory": "40Gi"}, 2),
        ({"pods": "1"}, 1),
        ({"spec": {"unschedulable": True}}, 0),
        ({"ready": "Unknown"}, 0),
        ({"labels": {"kubernetes.io/arch": "arm64"}}, 0),
        ({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}, 0),
        ({"spec": {"taints": [{"key": "ci", "value": "yes", "effect": "NoSchedule"}]}}, 4),
        ({"spec": {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}}, 4),
    ],
)
def test_which_machines_count(changes, places):
    assert room([machine(**changes)], [], SPEC) == places


def test_places_are_whole_pods_on_one_machine():
    assert room([machine(cpu="6"), machine("host-2", cpu="7")], [], SPEC) == 2


def test_a_resource_that_a_machine_does_not_have_is_none_of_it():
    gpu = {**SPEC, "containers": [{"resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}
    machines = [machine(), machine("host-2", **{"nvidia.com/gpu": "2"})]
    assert room(machines, [], gpu) == 2


def test_sidecars_and_greedy_init_containers_count():
    def asks(cpu: str, **more: str) -> dict:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [asks("2")], "initContainers": [asks("1", restartPolicy="Always"), asks("500m")]}
    assert requested(spec)["cpu"] == 3000
    assert requested({**spec, "initContainers": [asks("8")]})["cpu"] == 8000
    assert requested({**spec, "overhead": {"cpu": "250m"}})["cpu"] == 3250


def test_quantities():
    found = amounts({"a": "1e3", "b": "3920m", "c": "16Gi", "d": "2M", "e": 4, "f": "128974848"})
    assert dict(found) == {
        "a": 10**6,
        "b": 3920,
        "c": 16 * 2**30 * 1000,
        "d": 2 * 10**9,
        "e": 4000,
        "f": 128974848000,
    }


async def test_a_gpu_type_counts_what_its_selector_allows(cluster, clock, tmp_path):
    bench = KubernetesBench(
        cluster, clock, tmp_path, gpus={"a10g": {"vendor": "nvidia", "node_selector": {"gpu": "a10g"}}}
    )
    needs = {"gpu": Hardware(cpus=4, memory_mib=8192, gpu=Gpu("nvidia", "a10g"))}
    provider = bench.kind.build(replace(bench.config, from_cluster=True, needs=needs), clock)
    cluster.machines += [machine("host-2", labels={"gpu": "a10g"}, **{"nvidia.com/gpu": "3"})]
    assert await counts(provider) == [3]
    await provider.close()
