"""One launch as a pod and the secret that it mounts. Pure: one spec and one policy give the same bytes each time.

The secret holds what a machine elsewhere gets as user data: the constant programs, the plan, the launch data with
its token. The pod's spec names the secret and holds none of it. The secret belongs to the pod, so that the cluster
removes both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from providers.base import TAG_FLEET, TAG_RUNNER, LaunchSpec, Refused
from providers.bootstrap import program
from providers.kubernetes.catalogue import ARCH, gpu_settings
from providers.kubernetes.settings import GPU_RESOURCES, KubernetesSettings
from scheduling.model import Hardware

RUNNER = "runner"
FOLDER = "/etc/autoscaler"
WORK = "/runner"
TAG_INSTANCE_TYPE = "autoscaler-instance-type"

PROGRAMS = {
    "machine.py": "linux.py",
    "install.py": "linux_install.py",
    "hook.py": "linux_hook.py",
    "started.sh": "linux_started.sh",
    "finished.sh": "linux_finished.sh",
}

UNDISTURBED = {  # who tidies a cluster up leaves pods with these alone: a job runs there
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}

DEFAULTS: Mapping[str, Any] = {
    "terminationGracePeriodSeconds": 5,  # the job is over, or shall be
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 1001,  # the user `runner` of GitHub's own image
        "runAsGroup": 1001,
        "fsGroup": 1001,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "containers": [
        {
            "name": RUNNER,
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
"""What the template may replace: it meets the Pod Security Standard `restricted`."""


def pod(spec: LaunchSpec, settings: KubernetesSettings) -> dict[str, Any]:
    """The body of the create call. Refused when settings lack a part.

    Labels are what lists select by; annotations hold all tags, because a label's value has at most 63 characters.
    """
    if not spec.image:
        raise Refused(f"runner type {spec.runner_type} names no image for provider {spec.offer.provider}")
    _package(spec, settings)
    container = {
        "name": RUNNER,
        "image": spec.image,
        "command": ["python3", "-I", f"{FOLDER}/machine.py", FOLDER],
        "workingDir": WORK,
        "volumeMounts": [
            {"name": "autoscaler", "mountPath": FOLDER, "readOnly": True},
            {"name": "autoscaler-work", "mountPath": WORK},
        ],
    }
    ours: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": -(-spec.lifetime_ms // 1000),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [
            {"name": "autoscaler", "secret": {"secretName": spec.name, "defaultMode": 0o555}},
            {"name": "autoscaler-work", "emptyDir": {}},
        ],
    }
    ours = merge(_shape(spec.offer.hardware, spec.disk_gib, settings), ours)
    template = settings.template
    annotations = {**spec.tags, TAG_INSTANCE_TYPE: spec.offer.instance_type}
    metadata = {
        "name": spec.name,
        "labels": {TAG_FLEET: spec.fleet, TAG_RUNNER: spec.runner_id},
        "annotations": annotations,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": merge(merge({"annotations": UNDISTURBED}, template.get("metadata", {})), metadata),
        "spec": merge(merge(DEFAULTS, template.get("spec", {})), ours),
    }


def secret(spec: LaunchSpec, settings: KubernetesSettings, uid: str) -> dict[str, Any]:
    """What the pod of that uid mounts: it waits for it, and takes it along when it goes."""
    plan = {
        **_package(spec, settings),
        "home": f"{WORK}/actions-runner",
        "user": "",  # the container is one user's already
        "socket": f"{WORK}/hook.sock",
        "grace_seconds": 3,
        "shutdown": ["true"],  # the program's end is the container's
        "unreachable": [],
    }
    texts = {name: program(file).decode() for name, file in PROGRAMS.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": spec.name,
            "labels": {TAG_FLEET: spec.fleet, TAG_RUNNER: spec.runner_id},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": spec.name, "uid": uid}],
        },
        "immutable": True,
        "stringData": {**texts, "machine.json": json.dumps(plan, sort_keys=True), "boot.json": spec.boot},
    }


def merge(under: Any, over: Any) -> Any:
    """Mappings key by key, lists of named things by name, other lists one after the other; else `over` wins."""
    if isinstance(under, Mapping) and isinstance(over, Mapping):
        both = {key: merge(under[key], over[key]) for key in over if key in under}
        return {**under, **over, **both}
    if isinstance(under, list | tuple) and isinstance(over, list | tuple):
        names = {entry["name"]: entry for entry in over if isinstance(entry, Mapping) and "name" in entry}
        kept = [entry for entry in under if not (isinstance(entry, Mapping) and entry.get("name") in names)]
        below = {entry["name"]: entry for entry in under if isinstance(entry, Mapping) and "name" in entry}
        return [
            merge(below[entry["name"]], entry)
            if isinstance(entry, Mapping) and entry.get("name") in below
            else entry
            for entry in over
        ] + [entry for entry in kept if entry not in over]
    return over


def _package(spec: LaunchSpec, settings: KubernetesSettings) -> dict[str, Any]:
    package = settings.runner.for_arch(spec.offer.hardware.arch)
    if package is None:
        raise Refused(
            f"settings.runner.sha256 of provider {spec.offer.provider} has no entry for "
            f"{spec.offer.hardware.arch}, which {spec.offer.instance_type} needs"
        )
    return package


def shape(hardware: Hardware, disk_gib: int, settings: KubernetesSettings) -> dict[str, Any]:
    """The part of a pod's spec that decides where it finds a place, template included."""
    return dict(merge(settings.template.get("spec", {}), _shape(hardware, disk_gib, settings)))


def _shape(hardware: Hardware, disk_gib: int, settings: KubernetesSettings) -> dict[str, Any]:
    """Resources, selector, tolerations. Requests are limits: a runner type means the same machine every time."""
    amounts = {"cpu": str(hardware.cpus), "memory": f"{hardware.memory_mib}Mi"}
    if disk_gib:
        amounts["ephemeral-storage"] = f"{disk_gib}Gi"
    place: dict[str, Any] = {"kubernetes.io/os": "linux", "kubernetes.io/arch": ARCH[hardware.arch]}
    tolerations: list[dict[str, Any]] = []
    if gpu := hardware.gpu:
        found = gpu_settings(settings, gpu)
        if found is None:
            raise Refused(f"settings.gpus does not name {gpu.vendor} {gpu.model}")
        amounts[found.resource or GPU_RESOURCES[found.vendor]] = str(gpu.count)
        place.update(found.node_selector)
        tolerations = [dict(toleration) for toleration in found.tolerations]
    made: dict[str, Any] = {
        "containers": [{"name": RUNNER, "resources": {"requests": amounts, "limits": amounts}}],
        "nodeSelector": place,
    }
    return {**made, "tolerations": tolerations} if tolerations else made
