"""Vendors' price APIs for tests, over HTTP: the AWS Price List Query API and Azure's retail prices.

Stand for: API reference of AWS Price List Service, GetProducts (JSON 1.1, `X-Amz-Target`, `PriceList` of JSON
texts, `NextToken`); learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices (`$filter`,
`Items` by system and purchase, `NextPageLink`). Filters are honoured, so that a wrong one shows.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.providers.rest_stand_in import Answer, Request, RestStandIn

PAGE = 2


class AwsPriceList(RestStandIn):
    """`products`: (region, system, type, USD an hour)."""

    def __init__(self, *products: tuple[str, str, str, str]) -> None:
        super().__init__()
        self.products = list(products)

    def perform(self, request: Request) -> Answer:
        assert request.headers["x-amz-target"] == "AWSPriceListService.GetProducts"
        assert request.body["ServiceCode"] == "AmazonEC2"
        wanted = {each["Field"]: each["Value"] for each in request.body["Filters"]}
        found = [
            json.dumps(_product(attributes, usd))
            for region, system, name, usd in self.products
            if wanted.items() <= (attributes := _attributes(region, system, name)).items()
        ]
        start = int(request.body.get("NextToken", 0))
        more = {"NextToken": str(start + PAGE)} if start + PAGE < len(found) else {}
        return Answer(200, {"FormatVersion": "aws_v1", "PriceList": found[start : start + PAGE], **more})


def _attributes(region: str, system: str, name: str) -> dict[str, str]:
    return {
        "regionCode": region,
        "operatingSystem": system,
        "instanceType": name,
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
    }


def _product(attributes: dict[str, str], usd: str) -> dict[str, Any]:
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": usd}}
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"SKU.JRTCKXETXF.6YS6EN2CT7": dimension}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": "SKU"},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU.JRTCKXETXF": term}, "Reserved": {}},
    }


class AzureRetail(RestStandIn):
    """`items`: (region, type, product's ending, sku's ending, USD an hour)."""

    def __init__(self, *items: tuple[str, str, str, str, float]) -> None:
        super().__init__()
        self.items = list(items)

    def perform(self, request: Request) -> Answer:
        assert request.path == "/api/retail/prices"
        wanted = request.query["$filter"]
        assert "serviceName eq 'Virtual Machines'" in wanted
        assert "priceType eq 'Consumption'" in wanted
        types = set(re.findall(r"armSkuName eq '([^']+)'", wanted))
        (region,) = re.findall(r"armRegionName eq '([^']+)'", wanted)
        found = [_item(*item) for item in self.items if item[0] == region and item[1] in types]
        start = int(request.query.get("$skip", 0))
        link = f"{self.url}{request.path}?$filter={wanted}&$skip={start + PAGE}"
        page = {"BillingCurrency": "USD", "Items": found[start : start + PAGE], "Count": PAGE}
        return Answer(200, {**page, "NextPageLink": link if start + PAGE < len(found) else None})


def _item(region: str, name: str, product: str, sku: str, usd: float) -> dict[str, Any]:
    return {
        "currencyCode": "USD",
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "armSkuName": name,
        "productName": f"Virtual Machines Dsv4 Series{product}",
        "skuName": f"{name.removeprefix('Standard_').replace('_', ' ')}{sku}",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
    }
