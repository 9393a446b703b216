"""A whole replica over the real SDK against the cluster for tests: jobs run in pods and nothing is left."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import Place, until
from tests.providers.k8s_bench import kubeconfig
from tests.providers.k8s_cluster import Cluster

pytest.importorskip("kubernetes_asyncio", reason="kubernetes-asyncio is not installed")

POLICY = """\
version: 1
funds:
  grant: {credit: 1000 USD, until: 2030-01-01, spent: {amount: 0 USD, as_of: TODAY}}
providers:
  lab: {kind: kubernetes, price: 0.10 USD/h, settings: {namespace: ci, pending_seconds: 1, kubeconfig: KUBECONFIG}}
images: {runner: {lab: "registry.example/runner:1"}}
defaults: {image: runner, access: {repositories: ["octo/*"], forks: allow}}
runner_types:
  linux: {labels: [self-hosted, linux], hardware: {os: linux, cpus: 2, memory: 4 GiB}, offers: [{provider: lab}]}
"""


@pytest.fixture
async def cluster():
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def place(cluster):
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        path = kubeconfig(Path(name), cluster.url)
        text = POLICY.replace("TODAY", f"{datetime.now(UTC):%Y-%m-%d}").replace("KUBECONFIG", str(path))
        place = Place(Path(name), speed=20.0, policy=text.replace("{", "{{").replace("}", "}}"))
        await place.open()

        async def run(boot: str) -> None:
            spec = SimpleNamespace(boot=boot, offer=SimpleNamespace(provider="lab"))
            await place.around.machines.run(SimpleNamespace(spec=spec, boot_fails=False, preempted_ms=0))

        cluster.on_start = run
        yield place
        await place.close()


async def test_jobs_run_in_pods_and_nothing_is_left(place, cluster):
    replica = await place.leading()
    place.push(8, seconds=20)
    await until(lambda: place.done() and not place.around.github.registrations())
    await until(lambda: not cluster.pods and not cluster.secrets)
    await until(lambda: len(replica.daemon.world.by_state[RunnerState.GONE]) == 8)
    assert {replica.daemon.world.runners[key].reason for key in replica.daemon.world.runners} == {GoneReason.DONE}
    assert cluster.count("POST") == 8


async def test_a_trial_image_that_does_not_boot_falls_back_to_the_main_one(cluster):
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        path = kubeconfig(Path(name), cluster.url)
        text = POLICY.replace("TODAY", f"{datetime.now(UTC):%Y-%m-%d}").replace("KUBECONFIG", str(path))
        trial = '{lab: "registry.example/runner:1", trial: {image: next, percent: 100}}'
        images = f'{{runner: {trial}, next: {{lab: "registry.example/runner:2"}}}}'
        text = text.replace('{runner: {lab: "registry.example/runner:1"}}', images)
        place = Place(Path(name), speed=30.0, policy=text.replace("{", "{{").replace("}", "}}"))
        await place.open()
        started: list[str] = []

        async def run(boot: str) -> None:
            pod = cluster.pods[json.loads(boot)["name"]]
            started.append(pod["spec"]["containers"][0]["image"])
            if started[-1].endswith(":2"):
                return  # it ends at once, and never called
            spec = SimpleNamespace(boot=boot, offer=SimpleNamespace(provider="lab"))
            await place.around.machines.run(SimpleNamespace(spec=spec, boot_fails=False, preempted_ms=0))

        cluster.on_start = run
        replica = await place.leading()
        place.push(3, seconds=20)
        await until(place.done)
        assert started == ["registry.example/runner:2"] * 3 + ["registry.example/runner:1"] * 3
        assert "did not boot" in replica.daemon.world.cooldowns["image:registry.example/runner:2"].why
        await place.close()


async def test_k6_pods_without_a_place_are_no_machines(place, cluster):
    cluster.full = True
    replica = await place.leading()
    place.push(1)
    await until(lambda: any(scope.startswith("offer:lab/ci/") for scope in replica.daemon.world.cooldowns))
    assert cluster.pods == cluster.secrets == {}
    (cooldown,) = replica.daemon.world.cooldowns.values()
    assert "3 Insufficient cpu" in json.dumps(cooldown.why)
