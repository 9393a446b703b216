"""The bench of kind kubernetes: one namespace of the cluster for tests, reached by a kubeconfig with a token."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from providers.base import TAG_RUNNER, Instance, LaunchSpec, ProviderConfig
from providers.conformance import TOKEN, Fault
from providers.kubernetes import KIND, KubernetesSettings
from scheduling.model import Hardware
from tests.providers import k8s_cluster
from tests.providers.k8s_cluster import Cluster, Rule

QUOTA = 'pods "x" is forbidden: exceeded quota: ci, requested: cpu=4, used: cpu=98, limited: cpu=100'
RBAC = (
    'pods is forbidden: User "system:serviceaccount:ci:autoscaler" cannot create resource "pods" in API group ""'
)

RULES = {
    Fault.QUOTA: Rule("POST", status=403, message=QUOTA),
    Fault.REFUSED: Rule("POST", status=422, message='Pod "x" is invalid: spec.containers[0].image: Invalid value'),
    Fault.UNAUTHORIZED: Rule("POST", status=403, message=RBAC),
    Fault.THROTTLED: Rule("POST", status=429, reason="TooManyRequests"),
    Fault.ANSWER_LOST: Rule("POST", cut=True, apply=True),
    Fault.REQUEST_LOST: Rule("POST", cut=True),
    Fault.APPLIED_LATE: Rule("POST", cut=True, late=True),
    Fault.LIST_THROTTLED_ONCE: Rule("GET", times=1, status=429, reason="TooManyRequests"),
    Fault.LIST_UNAUTHORIZED: Rule("GET", status=403, message=RBAC.replace("create", "list")),
    Fault.LIST_BREAKS: Rule("GET", skip=1, status=500, reason="InternalError"),
}


def kubeconfig(folder: Path, url: str, token: str = k8s_cluster.TOKEN) -> Path:
    """A file as `kubectl config` writes it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "autoscaler", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "here", "user": "autoscaler"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


class KubernetesBench:
    kind = KIND

    def __init__(self, cluster: Cluster, clock: Any, folder: Path, **settings: Any) -> None:
        self.cluster = cluster
        self.clock: Any = clock
        chosen = {
            "namespace": cluster.namespace,
            "pending_seconds": 1,
            "kubeconfig": kubeconfig(folder, cluster.url),
        }
        self.config = ProviderConfig(
            name="lab",
            fleet="fleet",
            regions=(),
            endpoint=None,
            settings=KubernetesSettings.model_validate({**chosen, **settings}),
            needs={"linux": Hardware(cpus=4, memory_mib=16384)},
        )

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux", **changes: Any) -> LaunchSpec:
        spec = LaunchSpec(
            fleet=fleet,
            runner_id=f"r{number:020}",
            runner_type=runner_type,
            offer=KIND.catalogue(self.config)[0],
            price=0,
            fund="gift",
            hold=0,
            image="registry.example/runner:1",
            disk_gib=30,
            boot=json.dumps({"token": TOKEN}),
            lifetime_ms=4 * 3_600_000,
        )
        return replace(spec, **changes)

    async def machines(self) -> list[str]:
        return [
            found["metadata"].get("labels", {}).get(TAG_RUNNER, "")
            for found in self.cluster.pods.values()
            if "deletionTimestamp" not in found["metadata"]
        ]

    async def inject(self, fault: Fault) -> None:
        if fault is Fault.NO_CAPACITY:
            self.cluster.full = True
        elif fault is Fault.LIST_STALE:
            self.cluster.stale = True
        else:
            self.cluster.rules.append(replace(RULES[fault]))

    async def clear(self) -> None:
        self.cluster.rules.clear()
        self.cluster.full = self.cluster.stale = False

    async def arrive(self) -> None:
        await self.cluster.release()

    async def fill(self, count: int) -> None:
        labels = {"autoscaler-fleet": "fleet"}
        for number in range(count):
            runner = f"r{number:020}"
            await self._pod(f"fleet-{runner}", {**labels, TAG_RUNNER: runner})

    async def strangers(self) -> None:
        """Such as ARC's: it names its pods by the label `actions-ephemeral-runner`."""
        await self._pod("arc-x7k2-runner-abcde", {"actions-ephemeral-runner": "True"})

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        await self.cluster.end(instance.ref.split("/")[1])

    async def _pod(self, name: str, labels: dict[str, str]) -> None:
        spec = {"containers": [{"name": "runner", "image": "x"}]}
        await self.cluster.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        )
