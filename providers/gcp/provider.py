"""The adapter of kind `gcp`: five verbs on Compute Engine, on demand and spot.

One insert a launch, idempotent by its request id and by the machine's fixed name; inventory by label over all
zones; prices on demand from the bundled table. A reference is `ZONE/NAME` of an instance, or `ZONE/disks/NAME` of
a disk that outlived one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any

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
    Refused,
)
from providers.catalogue import offers_at, table
from providers.gcp.check import check
from providers.gcp.client import Compute
from providers.gcp.errors import Absent, NameExists, of_operation
from providers.gcp.labels import escape, tags_of
from providers.gcp.request import instance, joined_type, last_part, machine_name, parts_of, request_id
from providers.gcp.settings import GcpSettings
from scheduling.model import DurationMs, Offer, UnixMs

PREEMPTED = "compute.instances.preempted"

DISK_IS_ORPHAN_AFTER_MS: DurationMs = 5 * 60_000
"""A disk has no user for a moment while its machine starts and while it ends."""


class Gcp:
    """One project. `endpoint` replaces compute.googleapis.com."""

    def __init__(self, config: ProviderConfig, clock: Clock) -> None:
        self._config = config
        self._settings: GcpSettings = config.settings
        self._clock = clock
        self._compute = Compute(
            config.name, self._settings.project, self._settings.credentials_file, config.endpoint, clock
        )

    async def offers(self) -> Sequence[Offer]:
        """What of the bundled table each zone of the policy's regions sells; spot prices are unknown."""
        offers = list(_offers(self._config))
        zones = sorted({offer.zone for offer in offers})
        sold = dict(zip(zones, await asyncio.gather(*map(self._sold, zones)), strict=True))
        return [offer for offer in offers if parts_of(offer.instance_type) <= sold[offer.zone]]

    async def launch(self, spec: LaunchSpec) -> Instance:
        """A replay finds the operation of the first call, or its machine; both end in the same reference."""
        zone, name = spec.offer.zone, machine_name(spec)
        made = instance(spec, self._settings, await self._compute.project())
        where = f"{self._config.name} ({zone}) insert"
        try:
            operation = await self._compute.call(
                "instances",
                "insert_unary",
                launching=True,
                zone=zone,
                request_id=request_id(spec.runner_id),
                instance_resource=made,
            )
            operation = await self._compute.finished(zone, operation)
            if operation.error.errors:
                raise of_operation(operation.error.errors, where)
        except NameExists:
            return await self._existing(spec)
        launched_ms = _ms(operation.insert_time or operation.creation_timestamp) or self._clock.now_ms()
        tags = {**self._settings.labels, **spec.tags}
        place = (spec.offer.region, zone, spec.offer.instance_type)
        return Instance(spec.runner_id, f"{zone}/{name}", *place, launched_ms, tags)

    async def terminate(self, ref: str) -> None:
        """Accepted is enough: the inventory shows the end, which takes a minute."""
        zone, _, name = ref.partition("/")
        disk = name.removeprefix("disks/")
        try:
            if disk != name:
                await self._compute.ask("disks", "delete_unary", zone=zone, disk=disk)
            else:
                await self._compute.ask("instances", "delete_unary", zone=zone, instance=name)
        except Absent:
            return

    async def instances(self) -> Sequence[Instance]:
        """Machines with our fleet's label in all zones, stopped ones too: they exist until they are deleted.

        An entry without `ref` is only what outlived a machine.
        """
        ours = f"labels.{TAG_FLEET}={escape(self._config.fleet)}"
        orphans = await self._orphans(ours)  # first: whose machine is not listed after that has none
        found = []
        async for zone, machine in self._compute.aggregated("instances", "instances", wanted=ours):
            runner_id = tags_of(machine.labels).get(TAG_RUNNER, "")
            found.append(_instance(zone, machine, orphans.pop(runner_id, ())))
        return found + [
            Instance(runner, "", _region(refs[0].partition("/")[0]), "", "", 0, orphans=refs)
            for runner, refs in orphans.items()
        ]

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        """By the operations with which Compute Engine preempted them."""
        found = []
        for ref in refs:
            zone, _, name = ref.partition("/")
            if await self._compute.operations(zone, PREEMPTED, name):
                found.append(ref)
        return found

    async def check(self, samples: Sequence[LaunchSpec]) -> list[CheckLine]:
        """Permissions, quotas, subnetworks, images and the clock."""
        return await check(self._compute, self._settings, samples, self._clock.now_ms())

    async def balance(self) -> FundBalance | None:
        """Google tells the spend of a credit only in a billing export that the project must set up."""
        return None

    async def close(self) -> None:
        self._compute.close()

    async def _sold(self, zone: str) -> set[str]:
        """Names of a zone's machine types and accelerators; few have them all. None where no zone is."""
        try:
            machines = {kind.name async for kind in self._compute.in_zone("machine_types", zone)}
            return machines | {kind.name async for kind in self._compute.in_zone("accelerator_types", zone)}
        except Absent:
            return set()

    async def _existing(self, spec: LaunchSpec) -> Instance:
        """The machine that has the launch's name: the one of an earlier call, by its labels."""
        zone, name = spec.offer.zone, machine_name(spec)
        try:
            found = _instance(zone, await self._compute.ask("instances", "get", zone=zone, instance=name))
        except Absent as error:
            raise OutcomeUnknown(f"{error} (an earlier call of this launch was applied)") from error
        if (found.tags.get(TAG_FLEET), found.tags.get(TAG_RUNNER)) != (spec.fleet, spec.runner_id):
            raise Refused(f"{self._config.name} ({zone}): {name} exists and does not carry this runner's labels")
        return found

    async def _orphans(self, ours: str) -> dict[str, tuple[str, ...]]:
        """References of disks that no machine holds, by runner id."""
        young = self._clock.now_ms() - DISK_IS_ORPHAN_AFTER_MS
        found: dict[str, tuple[str, ...]] = defaultdict(tuple)
        async for zone, disk in self._compute.aggregated("disks", "disks", wanted=ours):
            if not disk.users and _ms(disk.creation_timestamp) < young:
                found[tags_of(disk.labels).get(TAG_RUNNER, "")] += (f"{zone}/disks/{disk.name}",)
        return found


def _offers(config: ProviderConfig) -> Iterable[Offer]:
    """Everything in the table at every zone, spot without a price."""
    for region in config.regions:
        for zone in config.settings.zones_of(region):
            for kind in table("gce.csv").values():
                yield from offers_at(config.name, region, zone, kind, config.settings.os)


def _instance(zone: str, machine: Any, orphans: tuple[str, ...] = ()) -> Instance:
    tags = tags_of(machine.labels)
    machine_type = last_part(machine.machine_type)
    if machine_type.startswith("n1-") and machine.guest_accelerators:  # others bring theirs along
        extra = machine.guest_accelerators[0]
        machine_type = joined_type(machine_type, last_part(extra.accelerator_type), extra.accelerator_count)
    return Instance(
        runner_id=tags.get(TAG_RUNNER, ""),
        ref=f"{zone}/{machine.name}",
        region=_region(zone),
        zone=zone,
        instance_type=machine_type,
        launched_ms=_ms(machine.creation_timestamp),
        tags=tags,
        orphans=orphans,
    )


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]


def _ms(at: str) -> UnixMs:
    """RFC 3339 text; empty is 0."""
    return int(datetime.fromisoformat(at).timestamp() * 1000) if at else 0


class GcpKind:
    name = "gcp"
    settings = GcpSettings
    extra = "gcp"
    takes_image = True

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        if not _installed():
            raise MissingSdk(
                f"provider {config.name} is of kind gcp, which needs google-cloud-compute: "
                'pip install ".[gcp]" in a checkout'
            )
        return Gcp(config, clock)

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return list(_offers(config))


def _installed() -> bool:
    try:
        return find_spec("google.cloud.compute_v1") is not None
    except ModuleNotFoundError:  # not even `google.cloud`
        return False


KIND = GcpKind()
