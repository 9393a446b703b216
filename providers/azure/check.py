"""`provider check` for an Azure subscription: permissions, SKUs, quota and network, without launching anything.

Sources (learn.microsoft.com/rest/api): authorization "Permissions - List For Resource Group"; compute
"Usage - List" and "Resource Skus - List" (see `skus`); virtualnetwork "Subnets - Get".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from providers import checking
from providers.azure.client import Arm
from providers.azure.settings import AzureSettings
from providers.base import CheckLine, LaunchSpec, ProviderError
from scheduling.model import Purchase, UnixMs

COMPUTE, NETWORK = "Microsoft.Compute", "Microsoft.Network"
NEEDED = (
    f"{COMPUTE}/virtualMachines/read",
    f"{COMPUTE}/virtualMachines/write",
    f"{COMPUTE}/virtualMachines/delete",
    f"{COMPUTE}/disks/write",
    f"{COMPUTE}/disks/delete",
    f"{NETWORK}/networkInterfaces/write",
    f"{NETWORK}/networkInterfaces/delete",
    f"{NETWORK}/networkInterfaces/join/action",
    "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
)
PERMISSIONS = "providers/Microsoft.Authorization/permissions"
ROLE = "grant the role of deploy/providers/azure.md at the resource group"


async def check(
    arm: Arm, settings: AzureSettings, samples: Sequence[LaunchSpec], now_ms: UnixMs
) -> list[CheckLine]:
    """Permissions and clock, then subnet and quota of each region, and sizes that are restricted."""
    lines = await _permissions(arm, now_ms)
    for region in dict.fromkeys(sample.offer.region for sample in samples):
        here = [sample for sample in samples if sample.offer.region == region]
        subnet = arm.whole(settings.subnets[region], **{"api-version": "2024-05-01"})
        lines.append(await checking.tried(f"{region}: subnet", subnet, _room))
        lines += await _quotas(arm, settings, region, here)
        for sample in here:
            why = sample.offer.refusal
            mend = "ask support to open it for the subscription, or name other instance_types" if why else ""
            lines.append(
                CheckLine(f"{region}: {sample.offer.instance_type} in {sample.offer.zone}", not why, why, mend)
            )
    return lines


async def _permissions(arm: Arm, now_ms: UnixMs) -> list[CheckLine]:
    try:
        found = await arm.rest("GET", PERMISSIONS, **{"api-version": "2022-04-01"})
    except ProviderError as error:
        return [checking.failed("permissions", error, ROLE)]
    granted = [action for action in NEEDED if any(_grants(each, action) for each in found.get("value", ()))]
    return [checking.permissions(NEEDED, granted, ROLE), checking.clock(arm.date, now_ms)]


def _grants(role: Mapping[str, Any], action: str) -> bool:
    """Whether one role gives it: named by `actions` and not taken back by `notActions`."""

    def names(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(action.casefold(), pattern.casefold()) for pattern in patterns)

    return names(role.get("actions", ())) and not names(role.get("notActions", ()))


async def _quotas(
    arm: Arm, settings: AzureSettings, region: str, samples: Sequence[LaunchSpec]
) -> list[CheckLine]:
    """Regional cores, which every machine counts in; spot has a limit of its own."""
    what = f"{region}: quota"
    path = f"/subscriptions/{settings.subscription}/providers/{COMPUTE}/locations/{region}/usages"
    try:
        found = await arm.whole(path, **{"api-version": "2024-07-01"})
    except ProviderError as error:
        return [checking.failed(what, error)]
    usages = {each["name"]["value"]: (each["currentValue"], each["limit"]) for each in found["value"]}
    needed: dict[str, float] = {}
    for sample in samples:
        name = "lowPriorityCores" if sample.offer.purchase is Purchase.SPOT else "cores"
        needed[name] = max(needed.get(name, 0), sample.offer.hardware.cpus)
    return checking.quotas(what, usages, needed, "ask for more in the portal: Quotas, Compute")


def _room(subnet: Any) -> str:
    properties = subnet.get("properties", {})
    used = len(properties.get("ipConfigurations") or ())
    return f"{properties.get('addressPrefix', '')}, {used} addresses in use"
