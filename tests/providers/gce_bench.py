"""The bench of kind gcp: a stand-in project, and the faults that it can inject."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from providers.base import TAG_FLEET, TAG_RUNNER, Instance, LaunchSpec, ProviderConfig
from providers.conformance import TOKEN, Fault
from providers.gcp import KIND, GcpSettings
from providers.gcp.labels import labels_of, tags_of
from scheduling.model import Offer, Purchase
from tests.providers.gce_cloud import INSERT, LIST, PROJECT, GceCloud, error
from tests.providers.rest_stand_in import Rule

REGION = "us-central1"
IMAGE = f"projects/{PROJECT}/global/images/family/runner"

RULES = {
    Fault.QUOTA: Rule(INSERT, error(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0")),
    Fault.REFUSED: Rule(INSERT, error(400, "invalid", "Invalid value for field 'resource.machineType'")),
    Fault.UNAUTHORIZED: Rule(INSERT, error(403, "forbidden", "Required 'compute.instances.create' permission")),
    Fault.THROTTLED: Rule(INSERT, error(403, "rateLimitExceeded", "Rate Limit Exceeded")),
    Fault.ANSWER_LOST: Rule(INSERT, cut=True, apply=True),
    Fault.REQUEST_LOST: Rule(INSERT, cut=True),
    Fault.APPLIED_LATE: Rule(INSERT, late=True),
    Fault.LIST_THROTTLED_ONCE: Rule(LIST, error(429, "rateLimitExceeded", "slow down"), times=1),
    Fault.LIST_UNAUTHORIZED: Rule(LIST, error(401, "authError", "Invalid Credentials")),
    Fault.LIST_BREAKS: Rule(LIST, error(503, "backendError", "try again"), skip=1),
}


class GceBench:
    kind = KIND

    def __init__(self, cloud: GceCloud, clock: Any, **settings: Any) -> None:
        self.cloud = cloud
        self.clock: Any = clock
        self.zones = [f"{REGION}-a", f"{REGION}-b"]
        given = {"project": PROJECT, "zones": {REGION: self.zones}, **settings}
        self.config = ProviderConfig(
            name="gift",
            fleet="fleet",
            regions=(REGION,),
            endpoint=cloud.url,
            settings=GcpSettings.model_validate(given),
            needs={},
        )

    def offer(
        self, instance_type: str = "n2-standard-2", purchase: Purchase = Purchase.ON_DEMAND, zone: int = 0
    ) -> Offer:
        return next(
            offer
            for offer in KIND.catalogue(self.config)
            if (offer.instance_type, offer.purchase, offer.zone) == (instance_type, purchase, self.zones[zone])
        )

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux", **changes: Any) -> LaunchSpec:
        spec = LaunchSpec(
            fleet=fleet,
            runner_id=f"r{number:020}",
            runner_type=runner_type,
            offer=self.offer(),
            price=97_118,
            fund="gift-2026",
            hold=400_000,
            image=IMAGE,
            disk_gib=30,
            boot=json.dumps({"token": TOKEN}),
            lifetime_ms=4 * 3_600_000,
        )
        return replace(spec, **changes)

    async def machines(self) -> list[str]:
        return [tags_of(machine["labels"]).get(TAG_RUNNER, "") for machine in self.cloud.machines.values()]

    async def inject(self, fault: Fault) -> None:
        if fault is Fault.LIST_STALE:
            self.cloud.stale = True
        elif fault is Fault.NO_CAPACITY:
            self.cloud.fails = ["ZONE_RESOURCE_POOL_EXHAUSTED"]
        else:
            self.cloud.add(replace(RULES[fault]))

    async def clear(self) -> None:
        self.cloud.clear()

    async def arrive(self) -> None:
        self.cloud.release()

    async def fill(self, count: int) -> None:
        for number in range(count):
            tags = {TAG_FLEET: "fleet", TAG_RUNNER: f"r{number:020}"}
            self.cloud.put(self.zones[number % 2], f"fleet-r{number:020}", labels_of(tags))

    async def strangers(self) -> None:
        self.cloud.put(self.zones[0], "somebodys", {"team": "web"})

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        zone, _, name = instance.ref.partition("/")
        del self.cloud.machines[zone, name]
        del self.cloud.disks[zone, name]["users"]
        self.clock.skipped_ms = 3_600_000
