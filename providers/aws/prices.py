"""EC2's list prices on demand, from the AWS Price List API.

Source: AWS Billing User Guide, "Using the AWS Price List Query API", and API reference, GetProducts (`PriceList`:
a JSON text a product, with `product.attributes` and `terms.OnDemand`). Its us-east-1 endpoint knows all regions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from providers.aws.client import Service
from providers.catalogue import micro_usd
from providers.prices import Told
from scheduling.model import MicroUSD, Purchase

HOME = "us-east-1"
SYSTEMS = {"linux": "Linux", "windows": "Windows"}


async def on_demand(pricing: Service, region: str, os: str) -> Told:
    """Prices of shared-tenancy machines without preinstalled software, by type; never repeated on failure."""
    wanted = {
        "regionCode": region,
        "operatingSystem": SYSTEMS[os],
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    token: dict[str, str] = {}
    told: dict[tuple[str, Purchase], MicroUSD] = {}
    while True:
        asked: dict[str, Any] = {
            "ServiceCode": "AmazonEC2",
            "FormatVersion": "aws_v1",
            "Filters": filters,
            **token,
        }
        page = await pricing.call(HOME, "get_products", **asked)
        for product in map(json.loads, page["PriceList"]):
            name = product["product"]["attributes"].get("instanceType", "")
            for price in _hourly(product):
                told[name, Purchase.ON_DEMAND] = max(price, told.get((name, Purchase.ON_DEMAND), 0))
        if not page.get("NextToken"):
            return told
        token = {"NextToken": page["NextToken"]}


def _hourly(product: Mapping[str, Any]) -> Iterator[MicroUSD]:
    """A price of 0 belongs to a reservation's or a block's row, not to a machine."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            usd = dimension["pricePerUnit"].get("USD")
            if dimension["unit"] == "Hrs" and usd and (price := micro_usd(usd)):
                yield price
