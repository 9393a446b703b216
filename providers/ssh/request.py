"""What the program on a host is told. Pure: one spec and one policy give the same request on every replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.base import LaunchSpec, Refused
from providers.bootstrap import program
from providers.ssh.settings import HostSettings, SshSettings
from scheduling.model import Gpu, Hardware, Offer, Purchase

PROGRAMS = {
    "machine.py": "linux.py",
    "install.py": "linux_install.py",
    "hook.py": "linux_hook.py",
    "started.sh": "linux_started.sh",
    "finished.sh": "linux_finished.sh",
}


def offer(provider: str, host: HostSettings, count: int | None = None) -> Offer:
    """What a host sells: slots of one size. It has no price of its own; region and zone are its name."""
    gpu = Gpu(host.gpu.vendor, host.gpu.model, host.gpu.count) if host.gpu else None
    hardware = Hardware("linux", host.arch, host.cpus, host.memory_gib * 1024, host.disk_gib, gpu)
    parts = ["slot", f"{host.cpus}c", f"{host.memory_gib}g"]
    if gpu:
        parts.append(f"{gpu.count}x{gpu.model}")
    if host.arch != "x64":
        parts.append(host.arch)
    return Offer(
        provider,
        host.name,
        host.name,
        "-".join(parts),
        Purchase.ON_DEMAND,
        None,
        hardware,
        "slot",
        elastic_disk=not host.disk_gib,
        count=host.slots if count is None else count,
    )


def request(call: str, fleet: str, settings: SshSettings, host: HostSettings) -> dict[str, Any]:
    """The part that every call has."""
    devices = host.gpu.devices if host.gpu else ((),) * host.slots
    return {
        "call": call,
        "fleet": fleet,
        "folder": str(settings.folder),
        "launcher": settings.launcher,
        "slots": [{"devices": list(each)} for each in devices],
    }


def size(host: HostSettings) -> dict[str, int]:
    """The limits of one slot."""
    return {"cpus": host.cpus, "memory_mib": host.memory_gib * 1024}


def lacks(host: HostSettings, has: Mapping[str, Any]) -> str:
    """What the probed hardware has less of than the policy sells; empty when all is there."""
    if has["arch"] != host.arch:
        return f"is {has['arch']}, and the policy says {host.arch}"
    if has["missing"]:
        return f"has no {', '.join(has['missing'])}"
    if host.gpu and host.gpu.vendor in has["gpus"]:
        there, sold = len(has["gpus"][host.gpu.vendor]), host.gpu.count * host.slots
        if there < sold:
            return f"has {there} GPUs of {host.gpu.vendor}, and its {host.slots} slots sell {sold}"
    for what, sold in (("cpus", host.cpus), ("memory_mib", host.memory_gib * 1024), ("disk_gib", host.disk_gib)):
        least = sold * host.slots * (95 if what == "memory_mib" else 100) // 100  # firmware and kernel keep some
        if has[what] < least:
            return f"has {what} {has[what]}, and its {host.slots} slots sell {sold * host.slots}"
    return ""


def launch_request(spec: LaunchSpec, settings: SshSettings, host: HostSettings) -> dict[str, Any]:
    """Refused when settings lack a part. Holds the callback token."""
    package = settings.runner.for_arch(host.arch)
    if package is None:
        raise Refused(
            f"settings.runner.sha256 of provider {spec.offer.provider} has no entry for {host.arch}, "
            f"which host {host.name} needs"
        )
    plan = {
        **package,
        "user": "",  # the unit or sandbox is one user's already
        "grace_seconds": 3,
        "shutdown": ["true"],  # the program's end is the machine's
        "unreachable": [],
    }
    return {
        **request("launch", spec.fleet, settings, host),
        "runner_id": spec.runner_id,
        "tags": spec.tags,
        "instance_type": spec.offer.instance_type,
        "lifetime_s": -(-spec.lifetime_ms // 1000),
        **size(host),
        "boot": spec.boot,
        "plan": plan,
        "programs": {name: program(file).decode() for name, file in PROGRAMS.items()},
    }
