"""What a simulated account sells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from providers.base import ProviderConfig
from providers.registry import kind
from providers.sim import KIND, Settings
from scheduling.model import Gpu, Hardware, Purchase

Config = Callable[..., ProviderConfig]


def test_the_entry_point_names_the_kind() -> None:
    assert kind("sim") is KIND


def test_without_settings_it_sells_what_the_hardware_asks(config: Config) -> None:
    needs = {
        "large": Hardware(cpus=8, memory_mib=16 * 1024),
        "gpu": Hardware(cpus=4, memory_mib=16 * 1024, gpu=Gpu("nvidia", "t4", 2)),
        "arm": Hardware(arch="arm64", cpus=4, memory_mib=8 * 1024, disk_gib=100),
        "modest": Hardware(),
    }
    offers = KIND.catalogue(config(needs=needs))
    on_demand = {o.instance_type: o for o in offers if o.purchase is Purchase.ON_DEMAND}
    assert list(on_demand) == ["sim-8c-16g", "sim-4c-16g-2xt4", "sim-4c-8g-arm64", "sim-2c-4g"]
    assert on_demand["sim-8c-16g"].list_price == 320_000
    assert on_demand["sim-4c-16g-2xt4"].list_price == 1_360_000
    assert on_demand["sim-4c-16g-2xt4"].hardware.gpu == Gpu("nvidia", "t4", 2)
    assert on_demand["sim-4c-8g-arm64"].elastic_disk
    spot = next(o for o in offers if o.instance_type == "sim-8c-16g" and o.purchase is Purchase.SPOT)
    assert spot.list_price == 112_000


def test_a_price_list_is_sold_in_every_region_and_zone(config: Config) -> None:
    types = {"c5.2xlarge": {"cpus": 8, "memory_gib": 16, "on_demand": "0.34 USD/h", "spot": "0.1234 USD/h"}}
    offers = KIND.catalogue(config({"instance_types": types, "zones": 2}, regions=("us-east-1", "us-west-2")))
    assert len(offers) == 8
    assert {offer.zone for offer in offers} == {"us-east-1a", "us-east-1b", "us-west-2a", "us-west-2b"}
    assert {offer.list_price for offer in offers} == {340_000, 123_400}
    assert {offer.family for offer in offers} == {"c5"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"boot_secs": 3}, "boot_secs"),
        (
            {"instance_types": {"m": {"cpus": 1, "memory_gib": 1, "spot": 0.5}}},
            "expected a price such as '0.34 USD/h'",
        ),
        ({"instance_types": {"m": {"cpus": 1, "memory_gib": 1}}}, "state a price"),
        ({"faults": {"no_capacity": 0.6, "quota": 0.6}}, "add up to 1.2, more than 1"),
        ({"faults": {"zombie": 2}}, "less than or equal to 1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Settings.model_validate(settings)


def test_settings_have_a_schema_for_editors() -> None:
    schema = Settings.model_json_schema()
    assert schema["$defs"]["InstanceType"]["properties"]["spot"]["anyOf"][0]["type"] == "string"
