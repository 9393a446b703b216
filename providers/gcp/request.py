"""One launch as Compute Engine's instances.insert takes it. Pure: one spec and one policy give the same bytes.

Field names are those of the REST resource `instances` (v1) in the SDK's spelling.
"""

from __future__ import annotations

import json
import uuid
from importlib.resources import files
from typing import Any

from providers.base import LaunchSpec, Refused
from providers.bootstrap import linux_user_data, program, windows_launch
from providers.gcp.labels import labels_of
from providers.gcp.settings import GcpSettings
from scheduling.model import Purchase

METADATA_BYTES = 262_144
REQUESTS = uuid.UUID("6f0c4c0e-8f0b-5b0e-9a55-6b0f3d1f7a10")
"""Name space of our request ids."""

METADATA_SERVICE = ["ip", "rule", "add", "to", "169.254.169.254", "ipproto", "tcp", "dport", "80"]
NOT_FOR_JOBS = [*METADATA_SERVICE, "uidrange", "1-4294967294", "prohibit"]
"""The metadata service repeats the launch data. Its address is also the name server, so only its port is closed,
and only to others than root: Google's own services need it until the machine is off."""


def request_id(runner_id: str) -> str:
    """What makes a repeated insert the same one (`requestId`, a UUID)."""
    return str(uuid.uuid5(REQUESTS, runner_id))


def machine_name(spec: LaunchSpec) -> str:
    """The fixed name of the launch. A name begins with a letter, which a fleet's need not."""
    return spec.name if spec.name[0].isalpha() else spec.runner_id


def split_type(instance_type: str) -> tuple[str, str, int]:
    """`n1-standard-8+1xnvidia-tesla-t4` -> machine type, accelerator type, count. Most types bring theirs."""
    machine, _, extra = instance_type.partition("+")
    count, _, accelerator = extra.partition("x")
    return machine, accelerator, int(count or 0)


def parts_of(instance_type: str) -> set[str]:
    """The names that a zone must sell for it."""
    return {name for name in split_type(instance_type)[:2] if name}


def joined_type(machine: str, accelerator: str, count: int) -> str:
    """The reverse of `split_type`."""
    return f"{machine}+{count}x{accelerator}"


def instance(spec: LaunchSpec, settings: GcpSettings, project: str) -> dict[str, Any]:
    """The instance to insert. Refused when settings lack a part."""
    offer = spec.offer
    zone = f"zones/{offer.zone}"
    machine, accelerator, count = split_type(offer.instance_type)
    labels = {**settings.labels, **labels_of(spec.tags)}
    disk: dict[str, Any] = {
        "source_image": spec.image,
        "disk_type": f"{zone}/diskTypes/{settings.disk_type}",
        "labels": labels,
    }
    if spec.disk_gib:
        disk["disk_size_gb"] = spec.disk_gib
    made: dict[str, Any] = {
        "name": machine_name(spec),
        "description": f"autoscaler runner {spec.runner_id}",
        "machine_type": f"{zone}/machineTypes/{machine}",
        "labels": labels,
        "disks": [{"boot": True, "auto_delete": True, "initialize_params": disk}],
        "network_interfaces": [_network(settings, project, offer.region)],
        "scheduling": _scheduling(spec),
        "metadata": {"items": _metadata(spec, settings)},
        "service_accounts": [],  # no cloud identity: every job could use it
    }
    if settings.network_tags:
        made["tags"] = {"items": list(settings.network_tags)}
    if accelerator:
        kind = f"projects/{project}/{zone}/acceleratorTypes/{accelerator}"
        made["guest_accelerators"] = [{"accelerator_type": kind, "accelerator_count": count}]
    return made


def _network(settings: GcpSettings, project: str, region: str) -> dict[str, Any]:
    interface: dict[str, Any] = {"network": _path(settings.network, project, "global/networks")}
    if subnetwork := settings.subnetworks.get(region):
        interface["subnetwork"] = _path(subnetwork, project, f"regions/{region}/subnetworks")
        if "/" in subnetwork:
            del interface["network"]  # a shared VPC's subnetwork names its own
    if settings.external_ip:
        interface["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    return interface


def _path(name: str, project: str, where: str) -> str:
    return name if "/" in name else f"projects/{project}/{where}/{name}"


def _scheduling(spec: LaunchSpec) -> dict[str, Any]:
    """Deleted by Google at the end of its life, never restarted: the dead-man switch."""
    spot = spec.offer.purchase is Purchase.SPOT
    cannot_move = spot or spec.offer.hardware.gpu is not None
    return {
        "provisioning_model": "SPOT" if spot else "STANDARD",
        "instance_termination_action": "DELETE",
        "max_run_duration": {"seconds": max(30, -(-spec.lifetime_ms // 1000))},
        "automatic_restart": False,
        "on_host_maintenance": "TERMINATE" if cannot_move else "MIGRATE",
    }


def _metadata(spec: LaunchSpec, settings: GcpSettings) -> list[dict[str, str]]:
    if settings.os == "windows":  # its name server has the metadata service's address: nothing can be closed
        launch = windows_launch(spec.boot, _package(spec, settings), spec.lifetime_ms, [])
        windows = {"windows-startup-script-ps1": program("windows.ps1").decode(), "autoscaler": launch}
        return [{"key": key, "value": value} for key, value in windows.items()]
    items = {
        "block-project-ssh-keys": "TRUE",
        "startup-script": files(__package__).joinpath("startup.py").read_text(encoding="utf-8"),
        "user-data": _user_data(spec, settings),
    }
    return [{"key": key, "value": value} for key, value in items.items()]


def _package(spec: LaunchSpec, settings: GcpSettings) -> dict[str, Any]:
    arch, os = spec.offer.hardware.arch, settings.os
    if spec.offer.hardware.os != os:
        raise Refused(f"this launch is for {spec.offer.hardware.os}, and settings.os says {os} now")
    package = settings.runner.for_arch(arch, os)
    if package is None:
        key = f"win-{arch}" if os == "windows" else arch
        raise Refused(f"settings.runner.sha256 has no entry for {key}, which {spec.offer.instance_type} needs")
    return package


def _user_data(spec: LaunchSpec, settings: GcpSettings) -> str:
    package = _package(spec, settings)
    notice = "gce" if spec.offer.purchase is Purchase.SPOT else ""
    head, _, body = linux_user_data(spec.boot, package, spec.lifetime_ms, notice=notice).partition("\n")
    plan = json.loads(body)
    plan["runcmd"].insert(0, NOT_FOR_JOBS)
    text = f"{head}\n{json.dumps(plan, sort_keys=True)}"
    if len(text) > METADATA_BYTES:
        raise Refused(
            f"user data of runner type {spec.runner_type} is {len(text)} bytes and Compute Engine takes "
            f"{METADATA_BYTES}: shorten the type's access lists"
        )
    return text


def last_part(url: str) -> str:
    """`https://.../zones/us-central1-a` -> `us-central1-a`."""
    return url.rpartition("/")[2]
