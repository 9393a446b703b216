"""The adapter of kind `sim`: five verbs on a simulated account."""

from __future__ import annotations

from collections.abc import Sequence

from providers.base import Clock, FundBalance, Instance, LaunchSpec, Provider, ProviderConfig
from providers.sim.cloud import Cloud, SimCloud
from providers.sim.remote import RemoteCloud
from providers.sim.settings import Settings, catalogue
from scheduling.model import Offer


class SimProvider:
    """One account; `cloud` is in this process or, with an `endpoint`, behind HTTP."""

    def __init__(self, config: ProviderConfig, cloud: Cloud) -> None:
        self._fleet = config.fleet
        self._offers = SimKind().catalogue(config)
        self._cloud = cloud

    async def offers(self) -> Sequence[Offer]:
        return self._offers

    async def launch(self, spec: LaunchSpec) -> Instance:
        return await self._cloud.create(spec)

    async def terminate(self, ref: str) -> None:
        await self._cloud.terminate(ref)

    async def instances(self) -> Sequence[Instance]:
        return await self._cloud.instances(self._fleet)

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        return await self._cloud.taken(refs)

    async def balance(self) -> FundBalance | None:
        return None

    async def close(self) -> None:
        await self._cloud.close()


class SimKind:
    name = "sim"
    settings = Settings
    extra = ""
    takes_image = False

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        """Without an `endpoint` the account lives in this process: its machines end with it and run nothing."""
        if config.endpoint:
            return SimProvider(config, RemoteCloud(config.endpoint))
        return SimProvider(config, SimCloud(config.name, config.settings, clock))

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return catalogue(config.name, config.regions, config.settings, config.needs)


KIND = SimKind()
