"""The bundled tables of what vendors sell, in `providers/data`: hand-checked, with a source and a date a row."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files

from providers.prices import NONE_TOLD, Prices
from scheduling.model import Gpu, Hardware, MicroUSD, Offer, Purchase, UnixMs


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One machine type. `prices` are micro-dollars an hour, on demand, by region; a region left out is unknown."""

    name: str
    family: str
    hardware: Hardware
    prices: Mapping[str, MicroUSD]
    source: str
    date: str

    @property
    def price_ms(self) -> UnixMs:
        """When its prices were true."""
        return int(datetime.fromisoformat(self.date).replace(tzinfo=UTC).timestamp() * 1000)


@cache
def table(file: str) -> Mapping[str, InstanceType]:
    """Instance types by name from `data/FILE`. Linux prices; disks are elastic, so `disk_gib` is 0.

    A type may have several rows, one for each set of regions with the same price; they agree in everything else.
    """
    text = files("providers").joinpath("data", file).read_text(encoding="utf-8")
    found: dict[str, InstanceType] = {}
    for row in csv.DictReader(text.splitlines()):
        entry = _instance_type(row)
        if known := found.get(entry.name):
            entry = replace(known, prices={**known.prices, **entry.prices})
        found[entry.name] = entry
    return found


def offers_at(
    provider: str, region: str, zone: str, kind: InstanceType, os: str = "linux", prices: Prices = NONE_TOLD
) -> Iterator[Offer]:
    """A type at one place, on demand and spot, at the price that was told; else on demand at the bundled one.

    Under Windows the same machines have other prices, which are not bundled.
    """
    hardware = replace(kind.hardware, os=os)
    bundled = kind.prices.get(region) if os == "linux" else None
    for purchase in (Purchase.ON_DEMAND, Purchase.SPOT):
        price, price_ms = prices.told.get((kind.name, purchase)), prices.at_ms
        if price is None and purchase is Purchase.ON_DEMAND:
            price, price_ms = bundled, kind.price_ms
        price_ms = 0 if price is None else price_ms
        yield Offer(provider, region, zone, kind.name, purchase, price, hardware, kind.family, price_ms=price_ms)


def micro_usd(amount: str) -> MicroUSD:
    """Dollars as a decimal string -> micro-dollars, rounded up."""
    return int((Decimal(amount) * 1_000_000).to_integral_value(rounding="ROUND_CEILING"))


def _instance_type(row: Mapping[str, str]) -> InstanceType:
    gpu = Gpu(row["gpu_vendor"], row["gpu_model"], int(row["gpu_count"])) if row["gpu_count"] else None
    hardware = Hardware("linux", row["arch"], int(row["cpus"]), int(row["memory_mib"]), 0, gpu)
    price = micro_usd(row["usd_per_hour"]) if row["usd_per_hour"] else None
    prices = {} if price is None else dict.fromkeys(row["regions"].split(), price)
    return InstanceType(row["instance_type"], row["family"], hardware, prices, row["source"], row["date"])
