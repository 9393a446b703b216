"""Prices read from the vendors' price APIs: what an offer costs, since when, and what stands if they fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from providers.catalogue import table
from providers.prices import REFRESH_MS
from scheduling.model import Purchase
from tests.providers.arm_bench import ArmBench
from tests.providers.arm_cloud import ArmCloud
from tests.providers.aws_bench import AwsBench
from tests.providers.price_lists import AwsPriceList, AzureRetail
from tests.providers.rest_stand_in import Answer, Rule

NEW = "Standard_D4s_v4"


@pytest.fixture
def ec2_list():
    rows = [
        ("us-east-1", "Linux", name, usd) for name, usd in (("c5.large", "0.0910000000"), ("m4.large", "0.12"))
    ]
    rows += [("us-east-1", "Linux", "c5.2xlarge", "0.0000000000"), ("eu-west-1", "Linux", "c5.large", "9.99")]
    rows += [("us-east-1", "Windows", "c5.large", "0.177"), ("us-east-1", "Linux", "x9.huge", "99")]
    with AwsPriceList(*rows) as found:
        yield found


@pytest.fixture
def retail():
    with AzureRetail(
        ("eastus", NEW, "", "", 0.2),
        ("eastus", NEW, "", " Spot", 0.05),
        ("eastus", NEW, "", " Low Priority", 0.04),
        ("eastus", NEW, " Windows", "", 0.4),
        ("eastus", NEW, " CloudServices", "", 0.3),
        ("westus2", NEW, "", "", 7.0),
    ) as found:
        yield found


async def prices(provider, instance_type, purchase=Purchase.ON_DEMAND):
    """(price, since when) of that type, the same wherever it is sold."""
    found = {
        (offer.list_price, offer.price_ms)
        for offer in await provider.offers()
        if (offer.instance_type, offer.purchase) == (instance_type, purchase)
    }
    assert len(found) == 1
    return found.pop()


def built(bench, **settings):
    changed = replace(bench.config, settings=bench.config.settings.model_copy(update=settings))
    return bench.kind.build(changed, bench.clock)


async def test_ec2_prices_come_from_the_price_list_with_the_time_of_asking(cloud, clock, ec2_list):
    provider = built(AwsBench(cloud, clock), price_endpoint=ec2_list.url)
    price, since_ms = await prices(provider, "c5.large")
    assert price == 91_000
    assert abs(clock.now_ms() - since_ms) < 60_000
    assert (await prices(provider, "m4.large"))[0] == 120_000  # it is on a later page
    assert await prices(provider, "c5.2xlarge") == (340_000, table("ec2.csv")["c5.2xlarge"].price_ms)  # told as 0
    await provider.close()


async def test_a_windows_machine_has_a_price_once_the_api_tells_it(cloud, clock, ec2_list):
    bench = AwsBench(cloud, clock, os="windows")
    asking, bundled = built(bench, price_endpoint=ec2_list.url), built(bench)
    assert (await prices(asking, "c5.large"))[0] == 177_000
    assert await prices(bundled, "c5.large") == (None, 0)
    await asking.close()
    await bundled.close()


async def test_prices_are_asked_for_twice_a_day_and_the_old_ones_stand_when_the_api_fails(cloud, clock, ec2_list):
    provider = built(AwsBench(cloud, clock), price_endpoint=ec2_list.url)
    _, first_ms = await prices(provider, "c5.large")
    asked = len(ec2_list.requests)
    await provider.offers()
    assert len(ec2_list.requests) == asked
    clock.skipped_ms += REFRESH_MS
    ec2_list.add(
        Rule("POST /", Answer(400, {"__type": "AccessDeniedException", "message": "pricing:GetProducts"}))
    )
    assert await prices(provider, "c5.large") == (91_000, first_ms)
    ec2_list.clear()
    ec2_list.products[0] = ("us-east-1", "Linux", "c5.large", "0.08")
    price, since_ms = await prices(provider, "c5.large")
    assert price == 80_000
    assert since_ms >= first_ms + REFRESH_MS
    await provider.close()


async def test_a_missing_permission_leaves_the_bundled_prices_and_is_logged_once(cloud, clock, ec2_list, caplog):
    denied = {"__type": "AccessDeniedException", "message": "not authorized to perform: pricing:GetProducts"}
    ec2_list.add(Rule("POST /", Answer(400, denied)))
    provider = built(AwsBench(cloud, clock), price_endpoint=ec2_list.url)
    for _ in range(2):
        assert await prices(provider, "c5.large") == (85_000, table("ec2.csv")["c5.large"].price_ms)
    assert [record.getMessage() for record in caplog.records if "pricing:GetProducts" in record.getMessage()] == [
        next(record.getMessage() for record in caplog.records)
    ]
    assert "gift: prices in us-east-1 cannot be read, the last known stand" in caplog.text
    await provider.close()


async def test_azure_prices_are_those_of_linux_machines_and_spot_gets_one(clock, retail):
    with ArmCloud() as arm:
        provider = built(ArmBench(arm, clock), price_endpoint=retail.url)
        assert (await prices(provider, NEW))[0] == 200_000
        price, since_ms = await prices(provider, NEW, Purchase.SPOT)
        assert price == 50_000
        assert abs(clock.now_ms() - since_ms) < 60_000
        bundled = table("azure.csv")["Standard_D2s_v4"]
        assert await prices(provider, "Standard_D2s_v4") == (96_000, bundled.price_ms)
        await provider.close()


@pytest.mark.parametrize(
    "answer", [Answer(429, {}), Answer(200, {"Items": [{"skuName": "odd"}]}), Answer(200, None)]
)
async def test_an_answer_of_azures_that_is_no_price_list_changes_nothing(clock, retail, answer):
    retail.add(Rule("GET /", answer))
    with ArmCloud() as arm:
        provider = built(ArmBench(arm, clock), price_endpoint=retail.url)
        assert await prices(provider, "Standard_D2s_v4") == (
            96_000,
            table("azure.csv")["Standard_D2s_v4"].price_ms,
        )
        await provider.close()


async def test_an_emulator_has_no_price_api_of_its_own(cloud, clock):
    bench = AwsBench(cloud, clock)
    provider = built(bench)
    assert await prices(provider, "c5.large") == (85_000, table("ec2.csv")["c5.large"].price_ms)
    assert not [request for request in bench.cloud.requests if "GetProducts" in str(request)]
    await provider.close()
