"""The adapter of kind `ssh`: five verbs on the slots of donated hosts, whichever way calls reach them.

A lease on the host, named by the runner, makes a launch idempotent. A reference is `HOST/RUNNER ID`. Hosts come
and go: one that is away offers nothing, and what it was last known to run counts as running until its own timer
has ended it, so that the other hosts' machines can still be proven gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from providers.base import (
    CheckLine,
    Clock,
    FundBalance,
    Instance,
    LaunchSpec,
    MissingSdk,
    NoCapacity,
    OutcomeUnknown,
    Provider,
    ProviderConfig,
    ProviderError,
    Refused,
)
from providers.retry import ask
from providers.ssh.check import probed, refused
from providers.ssh.client import Away, Client, Ended, Full
from providers.ssh.outbound import Outbound
from providers.ssh.packed import caller_program
from providers.ssh.request import lacks, launch_request, offer, request, size
from providers.ssh.settings import HostSettings, SshSettings
from scheduling.model import DurationMs, Offer, UnixMs

log = logging.getLogger(__name__)

AWAY_MS: DurationMs = 600_000
"""So long a host that this process has never heard holds up the list; after that it is taken to run nothing."""
LAG_MS: DurationMs = 120_000


@dataclass
class Known:
    """One host as far as this process knows it."""

    settings: HostSettings
    client: Client | Outbound
    listed: bool = False
    away_since_ms: UnixMs = 0
    machines: dict[str, tuple[Instance, UnixMs]] = field(
        default_factory=dict
    )  # by ref; surely over after that time
    said: str = ""  # why it offers nothing, or less


class Ssh:
    """The hosts of one donor. `hosts`, `sponsors`, `terms` and `lacks` are for hosts that call us."""

    def __init__(self, config: ProviderConfig, clock: Clock) -> None:
        self._config = config
        self._settings: SshSettings = config.settings
        self._clock = clock
        self._outbound = self._settings.reach == "outbound"
        self._hosts = {host.name: Known(host, self._client(host)) for host in config.settings.hosts}
        self.hosts = tuple(self._hosts)
        self.sponsors = {sha256: name for name, sha256 in self._settings.sponsors.items()}

    def _client(self, host: HostSettings) -> Client | Outbound:
        if not self._outbound:
            return Client(self._config.name, host, self._settings)
        return Outbound(self._config.name, host, self._config.board, self._clock)

    # ---- the five verbs ------------------------------------------------------------------------------------

    async def offers(self) -> Sequence[Offer]:
        """One offer a host that answers and has what the policy says; slots out of use are not counted."""
        found = await asyncio.gather(*map(self._offer, self._hosts.values()), return_exceptions=True)
        failed = [each for each in found if isinstance(each, BaseException)]
        for host, each in zip(self._hosts.values(), found, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, ProviderError):
                raise each
            if isinstance(each, BaseException):
                self._say(host, str(each))
        if failed and len(failed) == len(found) and not self._outbound:
            raise failed[0]
        return [each for each in found if isinstance(each, Offer) and each.count]

    async def launch(self, spec: LaunchSpec) -> Instance:
        """A replay after the machine's end is `OutcomeUnknown`. A host that is away has no capacity."""
        host = self._hosts.get(spec.offer.zone)
        if host is None:
            raise Refused(f"{self._config.name}: settings.hosts names no {spec.offer.zone} any more")
        body = launch_request(spec, self._settings, host.settings)
        ref = f"{host.settings.name}/{spec.runner_id}"
        over_ms = self._clock.now_ms() + spec.lifetime_ms + LAG_MS
        try:
            answer = await host.client.call(body, launching=True)
        except (Away, Full) as error:
            raise NoCapacity(str(error)) from error
        except Ended as error:
            raise OutcomeUnknown(str(error)) from error
        except (OutcomeUnknown, asyncio.CancelledError):
            now_ms = self._clock.now_ms()
            perhaps = _instance(host.settings, {**body, "launched_ms": now_ms}, now_ms)
            host.machines[ref] = (perhaps, over_ms)
            raise
        made = _instance(host.settings, answer["lease"], self._clock.now_ms())
        host.machines[ref] = (made, over_ms)
        return made

    async def terminate(self, ref: str) -> None:
        """Ends the machine and cleans its slot; a slot that will not be clean is out of use for half an hour."""
        name, _, runner_id = ref.partition("/")
        host = self._hosts.get(name)
        if host is None:
            raise Refused(
                f"{self._config.name}: settings.hosts names no {name} any more, whose machine {ref} may run"
            )
        body = {
            **request("terminate", self._config.fleet, self._settings, host.settings),
            "runner_id": runner_id,
            "keep_s": 60 * await self._keep_minutes(name),
        }
        answer = await ask(self._clock, lambda: host.client.call(body))
        if answer["cooled"]:
            log.warning("%s: a slot of %s is out of use: %s", self._config.name, name, answer["cooled"])
        host.machines.pop(ref, None)

    async def instances(self) -> Sequence[Instance]:
        """Every host's machines; an ended one whose slot is not clean yet is an entry without `ref`."""
        found = await asyncio.gather(*map(self._list, self._hosts.values()), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [instance for each in found if not isinstance(each, BaseException) for instance in each]

    async def check(self, samples: Sequence[LaunchSpec]) -> list[CheckLine]:
        """The way into each host, its launcher, hardware, slots and clock."""
        lines: list[CheckLine] = []
        for host in self._hosts.values():
            body = request("probe", self._config.fleet, self._settings, host.settings)
            try:
                has = await host.client.call(body)
            except ProviderError as error:
                lines.append(refused(host.settings, error))
                continue
            lines += probed(host.settings, has, self.lacks(host.settings.name, has), self._clock.now_ms())
        return lines

    async def balance(self) -> FundBalance | None:
        """Donated hosts have no bills."""
        return None

    async def close(self) -> None:
        await asyncio.gather(*(host.client.close() for host in self._hosts.values()))

    # ---- hosts that call us --------------------------------------------------------------------------------

    def program(self) -> bytes:
        return caller_program()

    def terms(self, host: str) -> Mapping[str, Any]:
        """What it must know of its slots: `launcher`, `slots` with their devices, and how large one is."""
        settings = self._hosts[host].settings
        body = request("", self._config.fleet, self._settings, settings)
        return {"launcher": body["launcher"], "slots": body["slots"], **size(settings)}

    def lacks(self, host: str, has: Mapping[str, Any]) -> str:
        """What the probed hardware has less of than the policy sells; empty when all is there."""
        return lacks(self._hosts[host].settings, has)

    # ---- one host ------------------------------------------------------------------------------------------

    async def _offer(self, host: Known) -> Offer:
        body = request("probe", self._config.fleet, self._settings, host.settings)
        has = await ask(self._clock, lambda: host.client.call(body))
        if lacks := self.lacks(host.settings.name, has):
            raise Refused(f"{self._config.name}: host {host.settings.name} {lacks}")
        where = f"{self._config.name}: slot {{}} of {host.settings.name} is out of use: {{}}"
        self._say(host, "; ".join(where.format(slot, why) for slot, why in has["cooled"].items()))
        return offer(self._config.name, host.settings, max(0, host.settings.slots - len(has["cooled"])))

    def _say(self, host: Known, text: str) -> None:
        """In the log, when it is news."""
        if text and text != host.said:
            log.warning("%s", text)
        host.said = text

    async def _keep_minutes(self, host: str) -> int:
        """A switch that must not hold up the end of a machine."""
        try:
            board = self._config.board
            return (await board.read(f"{self._config.name}/{host}")).keep_minutes if board else 0
        except ProviderError:
            return 0

    async def _list(self, host: Known) -> list[Instance]:
        body, now_ms = request("list", self._config.fleet, self._settings, host.settings), self._clock.now_ms()
        try:
            leases = (await ask(self._clock, lambda: host.client.call(body)))["leases"]
        except ProviderError as error:
            host.away_since_ms = host.away_since_ms or now_ms
            if not host.listed and now_ms < host.away_since_ms + AWAY_MS:
                raise
            log.warning("%s; what it was last known to run counts as running", error)
            return [instance for instance, over_ms in host.machines.values() if now_ms < over_ms]
        host.listed, host.away_since_ms = True, 0
        found = [(_instance(host.settings, lease, now_ms), lease) for lease in leases]
        host.machines = {
            instance.ref: (instance, now_ms + lease["lifetime_s"] * 1000 + LAG_MS)
            for instance, lease in found
            if instance.ref
        }
        return [instance for instance, _ in found]


def _instance(host: HostSettings, lease: Mapping[str, Any], now_ms: UnixMs) -> Instance:
    """`launched_ms` is the host's own word: it may be neither of the future nor older than a machine can be."""
    oldest_ms = now_ms - lease["lifetime_s"] * 1000 - LAG_MS
    ref = f"{host.name}/{lease['runner_id']}"
    ended = bool(lease.get("started")) and not lease.get("running", True)
    return Instance(
        runner_id=lease["runner_id"],
        ref="" if ended else ref,
        region=host.name,
        zone=host.name,
        instance_type=lease["instance_type"],
        launched_ms=min(now_ms, max(oldest_ms, lease["launched_ms"])),
        tags=lease["tags"],
        orphans=(ref,) if ended else (),
    )


class SshKind:
    name = "ssh"
    settings = SshSettings
    extra = "ssh"
    takes_image = False

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        if config.settings.reach == "ssh" and find_spec("asyncssh") is None:
            raise MissingSdk(
                f'provider {config.name} is of kind ssh, which needs asyncssh: pip install ".[ssh]" in a checkout'
            )
        return Ssh(config, clock)

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        return [offer(config.name, host) for host in config.settings.hosts]


KIND = SshKind()
