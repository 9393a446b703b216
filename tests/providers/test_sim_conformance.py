"""Kind sim under the suite that every kind passes: one account in this process, shared by all its providers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.base import Clock, Instance, LaunchSpec, Provider, ProviderConfig
from providers.conformance import TOKEN, Bench, Conformance, Fault
from providers.sim import KIND, Faults, Settings, SimCloud, SimProvider
from providers.sim.cloud import DISK, LATE_MS, STALE_MS
from scheduling.model import Hardware

SHARES = {
    Fault.NO_CAPACITY: Faults(no_capacity=1),
    Fault.QUOTA: Faults(quota=1),
    Fault.REFUSED: Faults(refused=1),
    Fault.UNAUTHORIZED: Faults(unauthorized=1),
    Fault.THROTTLED: Faults(transient=1),
    Fault.ANSWER_LOST: Faults(answer_lost=1),
    Fault.REQUEST_LOST: Faults(not_applied=1),
    Fault.APPLIED_LATE: Faults(applied_late=1),
    Fault.LIST_STALE: Faults(stale_list=1),
}


class SharedAccount(type(KIND)):
    def __init__(self, cloud: SimCloud) -> None:
        self.cloud = cloud

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        return SimProvider(config, self.cloud)


class SimBench:
    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.config = ProviderConfig(
            name="lab",
            fleet="fleet",
            regions=(),
            endpoint=None,
            settings=Settings(),
            needs={"linux": Hardware(cpus=8)},
        )
        self.cloud = SimCloud("lab", self.config.settings, clock)
        self.kind = SharedAccount(self.cloud)

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux") -> LaunchSpec:
        return LaunchSpec(
            fleet=fleet,
            runner_id=f"r{number:020}",
            runner_type=runner_type,
            offer=KIND.catalogue(self.config)[0],
            price=0,
            fund="gift",
            hold=0,
            image="",
            disk_gib=0,
            boot=json.dumps({"token": TOKEN}),
            lifetime_ms=4 * 3_600_000,
        )

    async def machines(self) -> list[str]:
        now = self.clock.now_ms()
        return [machine.spec.runner_id for machine in self.cloud.machines() if machine.exists(now)]

    async def inject(self, fault: Fault) -> None:
        if fault not in SHARES:
            pytest.skip("a list of the simulated account is one page that is never refused")
        self.cloud.settings = self.config.settings.model_copy(update={"faults": SHARES[fault]})
        if fault is Fault.LIST_STALE:
            self.clock.skipped_ms += STALE_MS

    async def clear(self) -> None:
        self.cloud.settings = self.config.settings

    async def arrive(self) -> None:
        self.clock.skipped_ms += LATE_MS

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.cloud.create(self.spec(number))

    async def strangers(self) -> None:
        await self.cloud.create(self.spec(0, fleet="other"))

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        (machine,) = (machine for machine in self.cloud.machines() if machine.ref == instance.ref)
        machine.orphans = (f"{machine.ref}{DISK}",)
        await self.cloud.terminate(machine.ref)


class TestSim(Conformance):
    @pytest.fixture
    def bench(self, clock) -> Bench:
        return SimBench(clock)
