"""The adapter of kind `aws`: five verbs on EC2, on demand and spot.

One RunInstances a launch, idempotent by its client token; inventory by tag over all regions; prices on demand from
the price list API or the bundled table, spot prices from EC2. A reference is `REGION:ID`: an instance, or a volume
that outlived one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from providers.aws import billing, catalogue
from providers.aws.check import check
from providers.aws.client import Service
from providers.aws.errors import code_of
from providers.aws.prices import on_demand
from providers.aws.request import Root, run_instances
from providers.aws.settings import AwsSettings
from providers.base import (
    TAG_FLEET,
    TAG_RUNNER,
    CheckLine,
    Clock,
    FundBalance,
    Instance,
    LaunchSpec,
    MissingSdk,
    OutcomeUnknown,
    Provider,
    ProviderConfig,
    ProviderError,
    Refused,
)
from providers.catalogue import offers_at
from providers.prices import NONE_TOLD, PriceReader, Prices, Told
from scheduling.model import DurationMs, MicroUSD, Offer, Purchase, UnixMs

PAGE = 100
TAKEN = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
"""Reasons of an instance's state that mean that EC2 took it back. Source: API reference, StateReason."""
SPOT_PRODUCTS = {
    "linux": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
    "windows": ["Windows", "Windows (Amazon VPC)"],
}
NOT_ENDED = ["pending", "running", "stopping", "stopped"]
VOLUME_IS_ORPHAN_AFTER_MS: DurationMs = 5 * 60_000
"""A volume is `available` for a moment while its machine starts and while it ends."""


class Aws:
    """One AWS account. `endpoint` replaces EC2's own for every region."""

    def __init__(self, config: ProviderConfig, clock: Clock) -> None:
        self._config = config
        self._settings: AwsSettings = config.settings
        self._clock = clock
        self._ec2 = Service("ec2", config.name, self._settings.profile, config.endpoint, clock)
        priced_at = self._settings.price_endpoint
        self._pricing = Service("pricing", config.name, self._settings.profile, priced_at, clock)
        self._billing = Service("billing", config.name, self._settings.profile, config.endpoint, clock)
        self._sts = Service("sts", config.name, self._settings.profile, config.endpoint, clock)
        elsewhere = config.endpoint and not priced_at
        self._prices = PriceReader(config.name, clock, None if elsewhere else self._read_prices)
        self._roots: dict[tuple[str, str], asyncio.Task[Root]] = {}

    @property
    def regions(self) -> tuple[str, ...]:
        """Where machines of ours may be: also a region that the policy no longer launches in but still knows."""
        return tuple(dict.fromkeys([*self._config.regions, *self._settings.subnets]))

    async def offers(self) -> Sequence[Offer]:
        """One offer per (zone with a subnet, type sold there, purchase). Spot at the zone's present price."""
        found = await asyncio.gather(*(self._offers_in(region) for region in self._config.regions))
        return [offer for offers in found for offer in offers]

    async def launch(self, spec: LaunchSpec) -> Instance:
        """A replay whose machine has ended by now returns it or is `OutcomeUnknown`: the inventory settles it."""
        region = spec.offer.region
        request = run_instances(spec, self._settings, await self._root(region, spec.image))
        answer = await self._ec2.call(region, "run_instances", launching=True, **request)
        for machine in answer.get("Instances", ()):
            return _instance(region, machine)
        raise OutcomeUnknown(f"{self._config.name} ({region}): RunInstances answered without an instance")

    async def terminate(self, ref: str) -> None:
        region, _, resource = ref.partition(":")
        try:
            if resource.startswith("vol-"):
                await self._ec2.ask(region, "delete_volume", VolumeId=resource)
            else:
                await self._ec2.ask(region, "terminate_instances", InstanceIds=[resource])
        except ProviderError as error:
            if code_of(error.__cause__) not in ("InvalidInstanceID.NotFound", "InvalidVolume.NotFound"):
                raise

    async def instances(self) -> Sequence[Instance]:
        """Machines with our fleet's tag in all regions; an entry without `ref` is only what outlived a machine."""
        found = await asyncio.gather(*(self._instances_in(region) for region in self.regions))
        return [instance for instances in found for instance in instances]

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        """EC2 still describes an ended instance for about an hour, with the reason of its end."""
        found: list[str] = []
        for region in self.regions:
            ids = [ref.partition(":")[2] for ref in refs if ref.startswith(f"{region}:")]
            for start in range(0, len(ids), PAGE):
                ours = _filter("instance-id", ids[start : start + PAGE])  # a filter: ids long gone are no error
                pages = self._ec2.pages(region, "describe_instances", "Reservations", Filters=[ours])
                async for reservation in pages:
                    found += [
                        f"{region}:{machine['InstanceId']}"
                        for machine in reservation["Instances"]
                        if machine.get("StateReason", {}).get("Code") in TAKEN
                    ]
        return found

    async def check(self, samples: Sequence[LaunchSpec]) -> list[CheckLine]:
        """Permissions, subnets, images and quotas, tried without launching anything."""
        return await check(self._ec2, self._settings, samples, self._clock.now_ms())

    async def balance(self) -> FundBalance | None:
        """Spend of the credit that `credit` names, or of all that are enabled; a day behind."""
        return await billing.balance(self._billing, self._sts, self._settings.credit, self._clock.now_ms())

    async def close(self) -> None:
        self._prices.close()
        for service in (self._ec2, self._pricing, self._billing, self._sts):
            service.close()

    async def _read_prices(self, region: str) -> Told:
        return await on_demand(self._pricing, region, self._settings.os)

    async def _root(self, region: str, image: str) -> Root:
        """Asked for once, however many launches of a burst need it; a failure is asked again by the next."""
        asked = self._roots.get((region, image))
        if asked is None or (asked.done() and (asked.cancelled() or asked.exception())):
            asked = self._roots[region, image] = asyncio.ensure_future(self._ask_root(region, image))
        return await asyncio.shield(asked)

    async def _ask_root(self, region: str, image: str) -> Root:
        answer = await self._ec2.ask(region, "describe_images", ImageIds=[image])
        if not answer["Images"]:
            raise Refused(f"{self._config.name}: image {image} does not exist in {region}")
        return Root.of(answer["Images"][0])

    async def _offers_in(self, region: str) -> list[Offer]:
        zones = self._settings.subnets.get(region, {})
        if not zones:
            return []
        sold = await self._sold(region, zones)
        spot, now_ms = await self._spot_prices(region), self._clock.now_ms()
        offers = []
        for offer in _offers(self._config, region, await self._prices.of(region)):
            place = (offer.zone, offer.instance_type)
            if place not in sold:
                continue
            if offer.purchase is not Purchase.SPOT:
                offers.append(offer)
            elif place in spot:
                offers.append(replace(offer, list_price=spot[place], price_ms=now_ms))
        return offers

    async def _sold(self, region: str, zones: Iterable[str]) -> set[tuple[str, str]]:
        """(zone, type) pairs that EC2 offers at all: not every zone has every type."""
        filters = [_filter("location", zones), _filter("instance-type", catalogue.ec2())]
        pages = self._ec2.pages(
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=filters,
        )
        return {(offering["Location"], offering["InstanceType"]) async for offering in pages}

    async def _spot_prices(self, region: str) -> dict[tuple[str, str], MicroUSD]:
        """Latest spot price by (zone, type)."""
        pages = self._ec2.pages(
            region,
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=sorted(catalogue.ec2()),
            ProductDescriptions=SPOT_PRODUCTS[self._settings.os],
            StartTime=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC),
        )
        latest: dict[tuple[str, str], tuple[datetime, MicroUSD]] = {}
        async for entry in pages:
            place, at = (entry["AvailabilityZone"], entry["InstanceType"]), entry["Timestamp"]
            if place not in latest or latest[place][0] < at:
                latest[place] = (at, catalogue.micro_usd(entry["SpotPrice"]))
        return {place: price for place, (_, price) in latest.items()}

    async def _instances_in(self, region: str) -> list[Instance]:
        ours = _filter(f"tag:{TAG_FLEET}", [self._config.fleet])
        orphans = await self._orphans_in(region, ours)  # first: whose machine is not listed after that has none
        filters = [ours, _filter("instance-state-name", NOT_ENDED)]
        reservations = self._ec2.pages(
            region, "describe_instances", "Reservations", Filters=filters, MaxResults=PAGE
        )
        found = []
        async for reservation in reservations:
            for machine in reservation["Instances"]:
                runner_id = _tags(machine).get(TAG_RUNNER, "")
                found.append(_instance(region, machine, orphans.pop(runner_id, ())))
        return found + [Instance(runner, "", region, "", "", 0, orphans=refs) for runner, refs in orphans.items()]

    async def _orphans_in(self, region: str, ours: dict[str, Any]) -> dict[str, tuple[str, ...]]:
        """References of volumes that no machine holds, by runner id."""
        filters = [ours, _filter("status", ["available"])]
        volumes = self._ec2.pages(region, "describe_volumes", "Volumes", Filters=filters, MaxResults=PAGE)
        young = self._clock.now_ms() - VOLUME_IS_ORPHAN_AFTER_MS
        found: dict[str, tuple[str, ...]] = defaultdict(tuple)
        async for volume in volumes:
            if _ms(volume["CreateTime"]) < young:
                found[_tags(volume).get(TAG_RUNNER, "")] += (f"{region}:{volume['VolumeId']}",)
        return found


def _offers(config: ProviderConfig, region: str, prices: Prices = NONE_TOLD) -> Iterable[Offer]:
    """Everything in the table at every zone with a subnet, spot without a price."""
    for zone in config.settings.subnets.get(region, {}):
        for kind in catalogue.ec2().values():
            yield from offers_at(config.name, region, zone, kind, config.settings.os, prices)


def _instance(region: str, machine: Mapping[str, Any], orphans: tuple[str, ...] = ()) -> Instance:
    tags = _tags(machine)
    return Instance(
        runner_id=tags.get(TAG_RUNNER, ""),
        ref=f"{region}:{machine['InstanceId']}",
        region=region,
        zone=machine["Placement"]["AvailabilityZone"],
        instance_type=machine["InstanceType"],
        launched_ms=_ms(machine["LaunchTime"]),
        tags=tags,
        orphans=orphans,
    )


def _tags(resource: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", ())}


def _filter(name: str, values: Iterable[str]) -> dict[str, Any]:
    return {"Name": name, "Values": sorted(values)}


def _ms(at: datetime) -> UnixMs:
    return int(at.timestamp() * 1000)


class AwsKind:
    name = "aws"
    settings = AwsSettings
    extra = "aws"
    takes_image = True

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        if find_spec("boto3") is None:
            raise MissingSdk(
                f'provider {config.name} is of kind aws, which needs boto3: pip install ".[aws]" in a checkout'
            )
        return Aws(config, clock)

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return [offer for region in config.regions for offer in _offers(config, region)]


KIND = AwsKind()
