"""`provider check` for a Google project: permissions, quota, image and network, without launching anything.

Permissions: cloudresourcemanager `projects.testIamPermissions`. Quota: compute `regions.get`, whose `quotas` name
CPUS, PREEMPTIBLE_CPUS (0 where spot counts in CPUS) and IN_USE_ADDRESSES with limit and usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from providers import checking
from providers.base import CheckLine, LaunchSpec, ProviderError
from providers.gcp.client import Compute
from providers.gcp.settings import GcpSettings
from scheduling.model import Purchase, UnixMs

NEEDED = (
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.subnetworks.use",
    "compute.zoneOperations.get",
    "compute.machineTypes.list",
    "compute.acceleratorTypes.list",
)
ROLE = "grant the role of deploy/providers/gcp.md"


async def check(
    compute: Compute, settings: GcpSettings, samples: Sequence[LaunchSpec], now_ms: UnixMs
) -> list[CheckLine]:
    """Permissions, then quota and subnetwork of each region, each image, the clock."""
    lines = [await _permissions(compute)]
    for region in dict.fromkeys(sample.offer.region for sample in samples):
        here = [sample for sample in samples if sample.offer.region == region]
        lines += await _quotas(compute, settings, region, here)
        if (name := settings.subnetworks.get(region)) and "/" not in name:
            path = f"projects/{await compute.project()}/regions/{region}/subnetworks/{name}"
            lines.append(await checking.tried(f"{region}: subnetwork {name}", compute.rest("GET", path)))
    for image in dict.fromkeys(sample.image for sample in samples):
        lines.append(await checking.tried(f"image {image}", compute.rest("GET", image), _age))
    return [*lines, checking.clock(compute.date, now_ms)]


async def _permissions(compute: Compute) -> CheckLine:
    try:
        answer = await compute.permissions(NEEDED)
    except ProviderError as error:
        why = f"not known: {error}"
        return CheckLine("permissions", False, why, f"enable cloudresourcemanager.googleapis.com, and {ROLE}")
    return checking.permissions(NEEDED, answer.get("permissions", ()), ROLE)


async def _quotas(
    compute: Compute, settings: GcpSettings, region: str, samples: Sequence[LaunchSpec]
) -> list[CheckLine]:
    what = f"{region}: quota"
    try:
        found = await compute.rest("GET", f"projects/{await compute.project()}/regions/{region}")
    except ProviderError as error:
        return [checking.failed(what, error)]
    quotas = {each["metric"]: (each["usage"], each["limit"]) for each in found.get("quotas", ())}
    needed: dict[str, float] = {"IN_USE_ADDRESSES": 1} if settings.external_ip else {}
    for sample in samples:
        spot = sample.offer.purchase is Purchase.SPOT and quotas.get("PREEMPTIBLE_CPUS", (0, 0))[1]
        metric = "PREEMPTIBLE_CPUS" if spot else "CPUS"
        needed[metric] = max(needed.get(metric, 0), sample.offer.hardware.cpus)
    return checking.quotas(what, quotas, needed, "ask for more: console.cloud.google.com/iam-admin/quotas")


def _age(image: Any) -> str:
    state = (image.get("deprecated") or {}).get("state", "")
    return f"of {image.get('creationTimestamp', '')[:10]}" + (f", {state}" if state else "")
