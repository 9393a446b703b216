"""The bench of kind azure: a stand-in resource group, and the faults that it can inject."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from providers.azure import KIND, AzureSettings
from providers.base import TAG_FLEET, TAG_RUNNER, Instance, LaunchSpec, ProviderConfig
from providers.conformance import TOKEN, Fault
from scheduling.model import Offer, Purchase
from tests.providers.arm_cloud import BASE, CREATE, GROUP, LIST, SUBSCRIPTION, ArmCloud, error
from tests.providers.rest_stand_in import Rule

REGION = "eastus"
IMAGE = "Canonical:ubuntu-24_04-lts:server:latest"
NETWORK = f"{BASE}/providers/Microsoft.Network"
SUBNET = f"{NETWORK}/virtualNetworks/ci/subnets/runners"
QUOTA = "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."

RULES = {
    Fault.QUOTA: Rule(CREATE, error(409, "OperationNotAllowed", QUOTA)),
    Fault.REFUSED: Rule(CREATE, error(400, "InvalidParameter", "The value of parameter vmSize is invalid.")),
    Fault.UNAUTHORIZED: Rule(CREATE, error(403, "AuthorizationFailed", "The client does not have authorization")),
    Fault.THROTTLED: Rule(CREATE, error(429, "TooManyRequests", "slow down", Retry_After="5")),
    Fault.ANSWER_LOST: Rule(CREATE, cut=True, apply=True),
    Fault.REQUEST_LOST: Rule(CREATE, cut=True),
    Fault.APPLIED_LATE: Rule(CREATE, late=True),
    Fault.LIST_THROTTLED_ONCE: Rule(LIST, error(429, "TooManyRequests", "slow down", Retry_After="1"), times=1),
    Fault.LIST_UNAUTHORIZED: Rule(LIST, error(401, "InvalidAuthenticationToken", "The access token is invalid.")),
    Fault.LIST_BREAKS: Rule(LIST, error(503, "ServerTimeout", "try again"), skip=1),
}


class ArmBench:
    kind = KIND

    def __init__(self, cloud: ArmCloud, clock: Any, **settings: Any) -> None:
        self.cloud = cloud
        self.clock: Any = clock
        given = {
            "subscription": SUBSCRIPTION,
            "resource_group": GROUP,
            "subnets": {REGION: SUBNET},
            "zones": {REGION: ["1", "2"]},
            **settings,
        }
        self.config = ProviderConfig(
            name="gift",
            fleet="fleet",
            regions=(REGION,),
            endpoint=cloud.url,
            settings=AzureSettings.model_validate(given),
            needs={},
        )

    def offer(
        self, instance_type: str = "Standard_D2s_v4", purchase: Purchase = Purchase.ON_DEMAND, zone: int = 0
    ) -> Offer:
        zones = self.config.settings.zones_of(REGION)
        return next(
            offer
            for offer in KIND.catalogue(self.config)
            if (offer.instance_type, offer.purchase, offer.zone) == (instance_type, purchase, zones[zone])
        )

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux", **changes: Any) -> LaunchSpec:
        spec = LaunchSpec(
            fleet=fleet,
            runner_id=f"r{number:020}",
            runner_type=runner_type,
            offer=self.offer(),
            price=96_000,
            fund="gift-2026",
            hold=400_000,
            image=IMAGE,
            disk_gib=64,
            boot=json.dumps({"token": TOKEN}),
            lifetime_ms=4 * 3_600_000,
        )
        return replace(spec, **changes)

    async def machines(self) -> list[str]:
        return [machine["tags"].get(TAG_RUNNER, "") for machine in self.cloud.machines.values()]

    async def inject(self, fault: Fault) -> None:
        if fault is Fault.LIST_STALE:
            self.cloud.stale = True
        elif fault is Fault.NO_CAPACITY:
            self.cloud.fails = "AllocationFailed"
        else:
            self.cloud.add(replace(RULES[fault]))

    async def clear(self) -> None:
        self.cloud.clear()

    async def arrive(self) -> None:
        self.cloud.release()

    async def fill(self, count: int) -> None:
        for number in range(count):
            tags = {TAG_FLEET: "fleet", TAG_RUNNER: f"r{number:020}"}
            self.cloud.put(f"fleet-r{number:020}", tags, {})

    async def strangers(self) -> None:
        self.cloud.put("somebodys", {"team": "web"}, {})

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        name = instance.ref.partition("/")[2]
        del self.cloud.machines[name]
        del self.cloud.parts["networkInterfaces", f"{name}-nic"]
        del self.cloud.parts["publicIPAddresses", f"{name}-ip"]
        self.clock.skipped_ms = 3_600_000
