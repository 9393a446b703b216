"""Which sizes a subscription may not have where: compute "Resource Skus - List", asked once an hour a region.

A SKU's `restrictions` have a type (`Location`, or `Zone` with the zones meant) and a reason:
`NotAvailableForSubscription` (support opens it) or `QuotaId` (the offer behind the subscription excludes it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers.azure.client import Arm
from providers.azure.settings import AzureSettings
from providers.base import Clock
from scheduling.model import HOUR_MS, Offer, UnixMs

Restrictions = Mapping[str, list[Mapping[str, Any]]]


class Skus:
    """The restrictions of one subscription."""

    def __init__(self, arm: Arm, settings: AzureSettings, clock: Clock) -> None:
        self._arm, self._settings, self._clock = arm, settings, clock
        self._known: dict[str, tuple[UnixMs, Restrictions]] = {}

    async def refusal(self, offer: Offer) -> str:
        """Why the subscription cannot have this size there; empty where it can. `ProviderError` as usual."""
        zone = offer.zone.removeprefix(offer.region).lstrip("-")
        for each in (await self._in(offer.region)).get(offer.instance_type.casefold(), ()):
            zones = (each.get("restrictionInfo") or {}).get("zones") or ()
            if each.get("type") == "Location" or (zone and zone in zones):
                return f"Azure restricts it for this subscription: {each.get('reasonCode', 'no reason given')}"
        return ""

    async def _in(self, region: str) -> Restrictions:
        now_ms = self._clock.now_ms()
        asked_ms, found = self._known.get(region, (0, {}))
        if not asked_ms or asked_ms + HOUR_MS < now_ms:
            found = await self._ask(region)
            self._known[region] = (now_ms, found)
        return found

    async def _ask(self, region: str) -> Restrictions:
        path = f"/subscriptions/{self._settings.subscription}/providers/Microsoft.Compute/skus"
        query = {"api-version": "2021-07-01", "$filter": f"location eq '{region}'"}
        found: dict[str, list[Mapping[str, Any]]] = {}
        async for sku in self._arm.whole_pages(path, **query):
            if sku.get("resourceType") == "virtualMachines" and sku.get("restrictions"):
                found[str(sku["name"]).casefold()] = sku["restrictions"]
        return found
