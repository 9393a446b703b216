"""What EC2 sells and at which list price, as far as it is bundled: a hand-checked table with a source a row."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files

from scheduling.model import Gpu, Hardware, MicroUSD


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One machine type. `prices` are micro-dollars an hour, on demand, by region; a region left out is unknown."""

    name: str
    family: str
    hardware: Hardware
    prices: Mapping[str, MicroUSD]
    source: str
    date: str


@cache
def ec2() -> Mapping[str, InstanceType]:
    """EC2 instance types by name, from `data/ec2.csv`. Linux prices; disks are elastic, so `disk_gib` is 0."""
    text = files("providers").joinpath("data/ec2.csv").read_text(encoding="utf-8")
    return {row["instance_type"]: _ec2_type(row) for row in csv.DictReader(text.splitlines())}


def micro_usd(amount: str) -> MicroUSD:
    """Dollars as a decimal string -> micro-dollars, rounded up."""
    return int((Decimal(amount) * 1_000_000).to_integral_value(rounding="ROUND_CEILING"))


def _ec2_type(row: Mapping[str, str]) -> InstanceType:
    gpu = Gpu(row["gpu_vendor"], row["gpu_model"], int(row["gpu_count"])) if row["gpu_count"] else None
    hardware = Hardware("linux", row["arch"], int(row["cpus"]), int(row["memory_mib"]), 0, gpu)
    price = micro_usd(row["usd_per_hour"]) if row["usd_per_hour"] else None
    prices = {} if price is None else dict.fromkeys(row["regions"].split(), price)
    return InstanceType(row["instance_type"], row["family"], hardware, prices, row["source"], row["date"])
