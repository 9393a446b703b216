"""The bench of kind aws: a moto account with an image, and the faults that its wrapping can inject."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from botocore.loaders import create_loader

from providers.aws import KIND, AwsSettings
from providers.base import TAG_FLEET, TAG_RUNNER, Instance, LaunchSpec, ProviderConfig
from providers.conformance import TOKEN, Fault
from scheduling.model import Offer, Purchase
from tests.providers.moto_cloud import MotoCloud, Rule

REGION = "us-east-1"
ROOT_DEVICE = "/dev/xvda"
ALWAYS = 10**6

RULES = {
    Fault.NO_CAPACITY: Rule("RunInstances", ALWAYS, code="InsufficientInstanceCapacity", status=500),
    Fault.QUOTA: Rule("RunInstances", ALWAYS, code="VcpuLimitExceeded"),
    Fault.REFUSED: Rule("RunInstances", ALWAYS, code="InvalidParameterValue"),
    Fault.UNAUTHORIZED: Rule("RunInstances", ALWAYS, code="UnauthorizedOperation", status=403),
    Fault.THROTTLED: Rule("RunInstances", ALWAYS, code="RequestLimitExceeded", status=503),
    Fault.ANSWER_LOST: Rule("RunInstances", ALWAYS, cut=True, apply=True),
    Fault.REQUEST_LOST: Rule("RunInstances", ALWAYS, cut=True),
    Fault.APPLIED_LATE: Rule("RunInstances", ALWAYS, cut=True, late=True),
    Fault.LIST_THROTTLED_ONCE: Rule("DescribeInstances", code="RequestLimitExceeded", status=503),
    Fault.LIST_UNAUTHORIZED: Rule("DescribeInstances", ALWAYS, code="AuthFailure", status=401),
    Fault.LIST_BREAKS: Rule("DescribeInstances", ALWAYS, skip=1, code="InternalError", status=500),
}

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def moto_account() -> Iterator[MotoCloud]:
    """An account with credentials that the SDK finds, and nobody's real ones."""
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patch, MotoCloud() as cloud:
        patch.setattr("botocore.session.create_loader", lambda *_: loader)  # EC2's description is read once
        for key, value in ENVIRONMENT.items():
            patch.setenv(key, value)
        yield cloud
        cloud.reset()


class AwsBench:
    kind = KIND

    def __init__(self, cloud: MotoCloud, clock: Any, **settings: Any) -> None:
        self.cloud = cloud
        self.clock: Any = clock
        backend = cloud.backend(REGION)
        image = backend.register_image("image", "")
        image.architecture, image.root_device_name = "x86_64", ROOT_DEVICE
        self.image: str = image.id
        self.subnets = {subnet.availability_zone: subnet.id for subnet in backend.describe_subnets()}
        self.zones = sorted(self.subnets)[:2]
        subnets = {REGION: {zone: self.subnets[zone] for zone in self.zones}}
        self.config = ProviderConfig(
            name="gift",
            fleet="fleet",
            regions=(REGION,),
            endpoint=cloud.url,
            settings=AwsSettings.model_validate({"subnets": subnets, **settings}),
            needs={},
        )

    def offer(
        self, instance_type: str = "c5.large", purchase: Purchase = Purchase.ON_DEMAND, zone: int = 0
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
            price=85_000,
            fund="gift-2026",
            hold=400_000,
            image=self.image,
            disk_gib=30,
            boot=json.dumps({"token": TOKEN}),
            lifetime_ms=4 * 3_600_000,
        )
        return replace(spec, **changes)

    async def machines(self) -> list[str]:
        return [
            {tag["key"]: tag["value"] for tag in machine.get_tags()}.get(TAG_RUNNER, "")
            for machine in self.cloud.backend(REGION).all_instances()
            if machine.state not in ("shutting-down", "terminated")
        ]

    async def inject(self, fault: Fault) -> None:
        if fault is Fault.LIST_STALE:
            self.cloud.stale = True
        else:
            self.cloud.add(replace(RULES[fault]))

    async def clear(self) -> None:
        self.cloud.clear()

    async def arrive(self) -> None:
        self.cloud.release()

    async def fill(self, count: int) -> None:
        tags = [{TAG_FLEET: "fleet", TAG_RUNNER: f"r{number:020}"} for number in range(count)]
        self.cloud.fill(REGION, self.image, self.subnets[self.zones[0]], tags)

    async def strangers(self) -> None:
        self.cloud.fill(REGION, self.image, self.subnets[self.zones[0]], [{"Name": "somebody's"}])

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        backend = self.cloud.backend(REGION)
        machine = backend.get_instance(instance.ref.partition(":")[2])
        for device in machine.block_device_mapping.values():
            device.delete_on_termination = False
        backend.terminate_instances([machine.id])
        self.clock.skipped_ms = 3_600_000
