"""The adapter of kind `azure`: five verbs on virtual machines, on demand and spot.

One PUT a launch under a fixed name that must not exist yet; inventory of the resource group by tag; prices from
Azure's retail prices API or the bundled table. A reference is `virtualMachines/NAME`, or a leftover's (see
`leftovers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from providers.azure.check import check
from providers.azure.client import LATER_POLL_MS, OPERATION_LIMIT_MS, Arm
from providers.azure.errors import STILL_HELD, Absent, NameExists, code_of, of_operation
from providers.azure.leftovers import leftovers, path_of
from providers.azure.prices import RETAIL, retail
from providers.azure.request import virtual_machine
from providers.azure.settings import AzureSettings
from providers.azure.skus import Skus
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
from providers.catalogue import offers_at, table
from providers.prices import NONE_TOLD, PriceReader, Prices, Told
from scheduling.model import Offer

log = logging.getLogger(__name__)

MACHINE = "virtualMachines/"
FAILED = "ProvisioningState/failed"
REMEMBERED = 10_000


class Azure:
    """One resource group of one subscription. `endpoint` replaces management.azure.com."""

    def __init__(self, config: ProviderConfig, clock: Clock) -> None:
        self._config = config
        self._settings: AzureSettings = config.settings
        self._clock = clock
        self._arm = Arm(config.name, self._settings, config.endpoint, clock)
        self._skus = Skus(self._arm, self._settings, clock)
        elsewhere = config.endpoint and not self._settings.price_endpoint
        self._prices = PriceReader(config.name, clock, None if elsewhere else self._read_prices)
        self._ended: dict[str, None] = {}  # names that we asked the end of: Azure forgets them

    async def offers(self) -> Sequence[Offer]:
        """The bundled table's types in the policy's regions that have a subnet; only Azure tells spot prices.

        What Azure restricts for this subscription is there with the reason, as far as the daemon may ask for it.
        """
        regions = [region for region in self._config.regions if self._settings.zones_of(region)]
        prices = await asyncio.gather(*map(self._prices.of, regions))
        offers = list(_offers(self._config, dict(zip(regions, prices, strict=True))))
        try:
            return [replace(offer, refusal=await self._skus.refusal(offer)) for offer in offers]
        except ProviderError as error:
            log.warning("what is restricted for the subscription is not known: %s", error)
            return offers

    async def check(self, samples: Sequence[LaunchSpec]) -> list[CheckLine]:
        """Permissions, subnets, quotas, restricted sizes and the clock."""
        return await check(self._arm, self._settings, samples, self._clock.now_ms())

    async def launch(self, spec: LaunchSpec) -> Instance:
        """A replay finds the machine of the first call by its name, and waits for it or tells why it failed."""
        self._check()
        if spec.name in self._ended:
            raise OutcomeUnknown(f"{self._config.name}: {spec.name} was made by an earlier call and has ended")
        body = virtual_machine(spec, self._settings, await self._arm.public_key())
        try:
            answer = await self._arm.create(spec.name, body)
        except NameExists:
            return await self._existing(spec)
        try:
            await self._arm.finished(spec.name, answer)
        except OutcomeUnknown:
            raise
        except ProviderError:
            await self._sweep(spec.name)
            raise
        tags = {**self._settings.tags, **spec.tags}
        place = (spec.offer.region, spec.offer.zone, spec.offer.instance_type)
        return Instance(spec.runner_id, MACHINE + spec.name, *place, self._clock.now_ms(), tags)

    async def terminate(self, ref: str) -> None:
        """Accepted is enough: the inventory shows the end. What is still held is listed, and asked for, again."""
        self._check()
        if ref.startswith(MACHINE):
            name = ref.removeprefix(MACHINE)
            self._ended[name] = None
            if len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]
            with contextlib.suppress(Absent):
                await self._arm.delete(name)
        elif part := path_of(ref):
            try:
                await self._arm.rest("DELETE", part[0], **{"api-version": part[1]})
            except Absent:
                return
            except ProviderError as error:
                if code_of(error.__cause__)[0] not in STILL_HELD:
                    raise

    async def instances(self) -> Sequence[Instance]:
        """Machines with our fleet's tag; failed and stopped ones too: they exist, and mostly cost.

        An entry without `ref` is only what outlived a machine.
        """
        self._check()
        left = await leftovers(
            self._arm, self._config.fleet, self._clock.now_ms()
        )  # first: then who has a machine
        found = []
        async for machine in self._arm.machines():
            if (machine.tags or {}).get(TAG_FLEET) == self._config.fleet:
                found.append(_instance(machine))
                left.pop(found[-1].runner_id, None)
        return found + [
            Instance(runner, "", region, "", "", 0, orphans=refs) for runner, (region, refs) in left.items()
        ]

    async def balance(self) -> FundBalance | None:
        """Azure tells credits only to billing accounts of some agreements, a day late."""
        return None

    async def close(self) -> None:
        self._prices.close()
        await self._arm.close()

    async def _read_prices(self, region: str) -> Told:
        return await retail(self._settings.price_endpoint or RETAIL, region, list(table("azure.csv")))

    def _check(self) -> None:
        for name in ("subscription", "resource_group"):
            if not getattr(self._settings, name):
                raise Refused(f"settings.{name} is missing for provider {self._config.name}")

    async def _existing(self, spec: LaunchSpec) -> Instance:
        """The machine that has the launch's name: the one of an earlier call, by its tags, when it is done."""
        where = f"{self._config.name} create {spec.name}"
        deadline_ms = self._clock.now_ms() + OPERATION_LIMIT_MS
        while True:
            try:
                machine = await self._arm.get(spec.name)
            except ProviderError as error:
                raise OutcomeUnknown(f"{error} (an earlier call of this launch was applied)") from error
            found = _instance(machine)
            if (found.tags.get(TAG_FLEET), found.tags.get(TAG_RUNNER)) != (spec.fleet, spec.runner_id):
                raise Refused(f"{where}: exists and does not carry this runner's tags")
            if machine.provisioning_state == "Succeeded":
                return found
            if machine.provisioning_state == "Failed":
                why = of_operation(*_failure(machine), where)
                if not isinstance(why, OutcomeUnknown):
                    await self._sweep(spec.name)
                raise why
            if machine.provisioning_state == "Deleting" or self._clock.now_ms() >= deadline_ms:
                raise OutcomeUnknown(f"{where}: an earlier call's machine is {machine.provisioning_state}")
            await self._clock.sleep(LATER_POLL_MS)

    async def _sweep(self, name: str) -> None:
        """A creation that failed leaves the machine's object behind. If it stays, the inventory lists it."""
        with contextlib.suppress(ProviderError):
            await self._arm.delete(name)


def _offers(config: ProviderConfig, prices: Mapping[str, Prices] | None = None) -> Iterable[Offer]:
    """Everything in the table wherever there is a subnet. `prices` by region."""
    for region in config.regions:
        for zone in config.settings.zones_of(region):
            for kind in table("azure.csv").values():
                yield from offers_at(config.name, region, zone, kind, prices=(prices or {}).get(region, NONE_TOLD))


def _instance(machine: Any) -> Instance:
    tags = dict(machine.tags or {})
    zones = machine.zones or ()
    created = machine.time_created
    return Instance(
        runner_id=tags.get(TAG_RUNNER, ""),
        ref=MACHINE + machine.name,
        region=machine.location,
        zone=f"{machine.location}-{zones[0]}" if zones else machine.location,
        instance_type=machine.hardware_profile.vm_size,
        launched_ms=int(created.timestamp() * 1000) if created else 0,
        tags=tags,
    )


def _failure(machine: Any) -> tuple[str, str]:
    """Code and message from a status like `ProvisioningState/failed/AllocationFailed`."""
    for status in (machine.instance_view and machine.instance_view.statuses) or ():
        if str(status.code).startswith(FAILED):
            return str(status.code).removeprefix(FAILED).lstrip("/"), str(status.message or "")
    return "", ""


class AzureKind:
    name = "azure"
    settings = AzureSettings
    extra = "azure"
    takes_image = True

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        missing = [name for name in ("azure-mgmt-compute", "azure-identity") if not _installed(name)]
        if missing:
            raise MissingSdk(
                f"provider {config.name} is of kind azure, which needs {' and '.join(missing)}: "
                'pip install ".[azure]" in a checkout'
            )
        return Azure(config, clock)

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return list(_offers(config))


def _installed(distribution: str) -> bool:
    try:
        return find_spec(distribution.replace("-", ".")) is not None
    except ModuleNotFoundError:  # not even `azure`
        return False


KIND = AzureKind()
