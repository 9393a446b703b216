"""What outlived its machine: disks, network interfaces and addresses of ours in the resource group.

Tags tell whose they are; the disk of a machine gets none from Azure, so its name does, which the launch chose.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from providers.azure.client import Arm
from providers.base import TAG_FLEET, TAG_RUNNER
from scheduling.model import DurationMs, UnixMs

YOUNG_MS: DurationMs = 5 * 60_000
"""They exist for a moment before their machine is listed, and after it is not."""

KINDS = {  # in this order: an address cannot go before its interface
    "Microsoft.Network/networkInterfaces": "2024-05-01",
    "Microsoft.Network/publicIPAddresses": "2024-05-01",
    "Microsoft.Compute/disks": "2024-03-02",
}
"""Resource type -> version of its API."""

RESOURCES_API = "2021-04-01"


async def leftovers(arm: Arm, fleet: str, now_ms: UnixMs) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Runner id -> region and references (`disks/NAME`) of what the group holds of it, machine or no machine.

    From "Resources - List By Resource Group", which gives the time of creation only when it is asked for.
    """
    wanted = " or ".join(f"resourceType eq '{kind}'" for kind in KINDS)
    name = re.compile(rf"{re.escape(fleet)}-(r[a-z0-9]{{20}})-(disk|nic|ip)\b.*")
    order = {kind.casefold(): number for number, kind in enumerate(KINDS)}
    found: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    query = {"$filter": wanted, "$expand": "createdTime", "api-version": RESOURCES_API}
    async for resource in arm.rest_pages("resources", **query):
        kind = order.get(str(resource["type"]).casefold())
        runner_id = _runner_of(resource, fleet, name)
        if kind is None or runner_id is None or _ms(resource["createdTime"]) > now_ms - YOUNG_MS:
            continue
        short = list(KINDS)[kind].rpartition("/")[2]
        found[runner_id].append((kind, f"{short}/{resource['name']}", str(resource["location"])))
    return {runner: (parts[0][2], tuple(ref for _, ref, _ in sorted(parts))) for runner, parts in found.items()}


def path_of(ref: str) -> tuple[str, str] | None:
    """Path below the resource group and API version of a leftover's reference; None for a machine's."""
    short, _, name = ref.partition("/")
    for kind, version in KINDS.items():
        if kind.endswith(f"/{short}"):
            return f"providers/{kind}/{name}", version
    return None


def _runner_of(resource: Mapping[str, object], fleet: str, name: re.Pattern[str]) -> str | None:
    tags = resource.get("tags") or {}
    assert isinstance(tags, dict)
    if TAG_FLEET in tags:
        return str(tags.get(TAG_RUNNER, "")) if tags[TAG_FLEET] == fleet else None
    found = name.fullmatch(str(resource["name"]))
    return found[1] if found else None


def _ms(at: str) -> UnixMs:
    return int(datetime.fromisoformat(at).timestamp() * 1000)
