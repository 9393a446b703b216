"""What a simulated account sells and how it misbehaves: the model behind `settings:` of kind `sim`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from scheduling.model import Gpu, Hardware, MicroUSD, Offer, Purchase

DEFAULT_REGION = "sim-1"
CPU_HOUR: MicroUSD = 40_000
GPU_HOUR: MicroUSD = 600_000
SPOT_PERCENT = 35
ASKED_CPUS = 2  # of a machine made to measure whose type does not say
ASKED_MEMORY_MIB = 4096

_PRICE = re.compile(r"(\d+(?:\.\d{1,6})?) ?USD/h")


def _price(value: Any) -> Any:
    if isinstance(value, str) and (found := _PRICE.fullmatch(value.strip())):
        return int(Decimal(found[1]) * 1_000_000)
    raise ValueError(f"expected a price such as '0.34 USD/h', found {value!r}")


Price = Annotated[MicroUSD, BeforeValidator(_price, json_schema_input_type=str)]
Share = Annotated[float, Field(ge=0, le=1)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(StrEnum):
    """What can go wrong with one launch; at most one of them does. Each is a key of `faults`."""

    NO_CAPACITY = "no_capacity"
    QUOTA = "quota"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    TRANSIENT = "transient"
    NOT_APPLIED = "not_applied"  # sent, no answer, no machine
    ANSWER_LOST = "answer_lost"  # sent, no answer, a machine
    APPLIED_LATE = "applied_late"  # sent, no answer, a machine some time later
    BOOT_HANG = "boot_hang"  # a machine that never calls
    BOOT_FAILURE = "boot_failure"  # a machine that reports that its boot failed, and leaves


class Faults(Model):
    """Shares of launches (0 to 1) that meet each fault, and shares of other calls and machines."""

    no_capacity: Share = 0
    quota: Share = 0
    refused: Share = 0
    unauthorized: Share = 0
    transient: Share = 0
    not_applied: Share = 0
    answer_lost: Share = 0
    applied_late: Share = 0
    boot_hang: Share = 0
    boot_failure: Share = 0
    preempted: Share = Field(default=0, description="share of spot machines that are taken within an hour")
    zombie: Share = Field(default=0, description="share of machines that ignore the first terminate call")
    orphan: Share = Field(default=0, description="share of machines whose disk outlives them")
    stale_list: Share = Field(default=0, description="share of lists that show the state of a minute ago")

    @model_validator(mode="after")
    def _at_most_everything(self) -> Faults:
        total = sum(share for _, share in self.launch_shares())
        if total > 1:
            raise ValueError(f"the shares of launch faults add up to {total:g}, more than 1")
        return self

    def launch_shares(self) -> Iterator[tuple[Fault, float]]:
        return ((fault, getattr(self, fault.value)) for fault in Fault)


class GpuSettings(Model):
    vendor: str
    model: str
    count: int = Field(1, ge=1)


class InstanceType(Model):
    """One entry of a price list. `capacity` is how many of it each zone really has, which buyers cannot see."""

    cpus: int = Field(ge=1)
    memory_gib: int = Field(ge=1)
    disk_gib: int | None = Field(None, ge=1, description="left out: chosen at launch")
    os: str = "linux"
    arch: str = "x64"
    gpu: GpuSettings | None = None
    family: str = ""
    on_demand: Price | None = None
    spot: Price | None = None
    capacity: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _is_sold(self) -> InstanceType:
        if self.on_demand is None and self.spot is None:
            raise ValueError("state a price: on_demand, spot or both")
        return self

    @property
    def hardware(self) -> Hardware:
        gpu = Gpu(self.gpu.vendor, self.gpu.model, self.gpu.count) if self.gpu else None
        return Hardware(self.os, self.arch, self.cpus, self.memory_gib * 1024, self.disk_gib or 0, gpu)

    def prices(self) -> Iterator[tuple[Purchase, MicroUSD]]:
        if self.on_demand is not None:
            yield Purchase.ON_DEMAND, self.on_demand
        if self.spot is not None:
            yield Purchase.SPOT, self.spot


class Settings(Model):
    """All optional: left empty, the account sells machines made to measure and never fails."""

    seed: int = 0
    latency_ms: int = Field(0, ge=0, description="of one call, half as much again either way")
    boot_seconds: float = Field(0, ge=0, description="from the launch to the machine's first call, likewise")
    zones: int = Field(1, ge=1, le=26, description="zones in each region")
    capacity: int | None = Field(None, ge=0, description="of each offer that does not state its own")
    instance_types: dict[str, InstanceType] = Field(
        default_factory=dict, description="left out: whatever the runner types ask for"
    )
    faults: Faults = Field(default_factory=Faults)


def catalogue(
    provider: str, regions: Sequence[str], settings: Settings, needs: Mapping[str, Hardware]
) -> tuple[Offer, ...]:
    """Every offer of the account, by region, zone, instance type and purchase."""
    types = settings.instance_types or made_to_measure(needs)
    return tuple(
        Offer(
            provider=provider,
            region=region,
            zone=f"{region}{chr(ord('a') + zone)}",
            instance_type=name,
            purchase=purchase,
            list_price=price,
            hardware=sold.hardware,
            family=sold.family or name.partition(".")[0].partition("-")[0],
            elastic_disk=sold.disk_gib is None,
        )
        for region in regions or (DEFAULT_REGION,)
        for zone in range(settings.zones)
        for name, sold in types.items()
        for purchase, price in sold.prices()
    )


def made_to_measure(needs: Mapping[str, Hardware]) -> dict[str, InstanceType]:
    """One instance type for each different need: `sim-8c-16g`, `sim-8c-16g-1xt4`, `sim-4c-8g-arm64`."""
    return dict(_measure(need) for need in needs.values())


def _measure(need: Hardware) -> tuple[str, InstanceType]:
    cpus = need.cpus or ASKED_CPUS
    memory_gib = -(-(need.memory_mib or ASKED_MEMORY_MIB) // 1024)
    gpu = need.gpu
    parts = ["sim", f"{cpus}c", f"{memory_gib}g"]
    if gpu:
        parts.append(f"{gpu.count}x{gpu.model or gpu.vendor}")
    parts += [part for part, usual in ((need.arch, "x64"), (need.os, "linux")) if part != usual]
    price = CPU_HOUR * cpus + GPU_HOUR * (gpu.count if gpu else 0)
    sold = InstanceType.model_construct(
        cpus=cpus,
        memory_gib=memory_gib,
        disk_gib=None,
        os=need.os,
        arch=need.arch,
        gpu=gpu and GpuSettings(vendor=gpu.vendor, model=gpu.model, count=gpu.count),
        family="sim",
        on_demand=price,
        spot=price * SPOT_PERCENT // 100,
        capacity=None,
    )
    return "-".join(parts), sold
