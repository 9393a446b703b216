"""List prices of virtual machines, from Azure's retail prices API: public, no credentials.

Source: learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices (filters, `Items`,
`NextPageLink`). A machine has one item for each system and purchase, told apart by words in its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import aiohttp

from providers.base import Transient
from providers.catalogue import micro_usd
from providers.prices import Told
from scheduling.model import MicroUSD, Purchase

RETAIL = "https://prices.azure.com"
ASKED_AT_ONCE = 15
"""Types in one filter: a URL holds about 2,000 characters."""
TIMEOUT = aiohttp.ClientTimeout(total=60, connect=5)


async def retail(endpoint: str, region: str, types: Sequence[str]) -> Told:
    """Linux prices by type and purchase. Raises `Transient`: one request that fails ends the reading."""
    told: dict[tuple[str, Purchase], MicroUSD] = {}
    try:
        async with aiohttp.ClientSession(timeout=TIMEOUT) as session:
            for start in range(0, len(types), ASKED_AT_ONCE):
                url, query = (
                    f"{endpoint.rstrip('/')}/api/retail/prices",
                    _query(region, types[start:][:ASKED_AT_ONCE]),
                )
                while url:
                    async with session.get(url, params=query) as response:
                        response.raise_for_status()
                        page = await response.json()
                    for key, price in _prices(page["Items"], region):
                        told[key] = max(price, told.get(key, 0))  # two that cannot be told apart: never too cheap
                    url, query = page.get("NextPageLink") or "", {}
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise Transient(f"{endpoint}: {error or 'no answer'}") from error
    return told


def _query(region: str, types: Sequence[str]) -> dict[str, str]:
    named = " or ".join(f"armSkuName eq '{name}'" for name in types)
    where = f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and priceType eq 'Consumption'"
    return {"$filter": f"{where} and ({named})"}


def _prices(items: Sequence[Any], region: str) -> Iterator[tuple[tuple[str, Purchase], MicroUSD]]:
    for item in items:
        product, sku = item["productName"], item["skuName"]
        hourly = item["unitOfMeasure"] == "1 Hour" and item["type"] == "Consumption"
        other = "Windows" in product or product.replace(" ", "").endswith("CloudServices") or "Low Priority" in sku
        if not hourly or other or item["armRegionName"] != region or item["currencyCode"] != "USD":
            continue
        purchase = Purchase.SPOT if "Spot" in sku else Purchase.ON_DEMAND
        if price := micro_usd(str(Decimal(str(item["retailPrice"])))):
            yield (item["armSkuName"], purchase), price
