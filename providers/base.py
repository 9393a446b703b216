"""The contract between the core and every kind of provider: five verbs, what they take, and six errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from scheduling.messages import Trouble
from scheduling.model import DurationMs, Hardware, MicroUSD, Offer, UnixMs

TAG_FLEET = "autoscaler-fleet"
TAG_RUNNER = "autoscaler-runner"
TAG_TYPE = "autoscaler-type"
TAG_FUND = "autoscaler-fund"
TAG_HOLD = "autoscaler-hold"
TAG_PRICE = "autoscaler-price"
TAG_PURCHASE = "autoscaler-purchase"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything one launch needs, frozen at the decision: every replay of it is byte-identical.

    `boot` is the JSON that the machine reads (who it is, where to call, its token, lifetimes, access); the adapter
    wraps it in its bootstrap as data, never interpolated. It holds the callback token: never log or tag it.
    `lifetime_ms` is the longest that the machine may exist: the provider's or the machine's own dead-man switch.
    """

    fleet: str
    runner_id: str
    runner_type: str
    offer: Offer
    price: MicroUSD
    fund: str
    hold: MicroUSD
    image: str
    disk_gib: int
    boot: str = field(repr=False)
    lifetime_ms: DurationMs

    @property
    def name(self) -> str:
        """The machine's and the GitHub runner's name."""
        return f"{self.fleet}-{self.runner_id}"

    @property
    def tags(self) -> dict[str, str]:
        """What adoption needs when the store has lost the record. Values are plain ASCII."""
        return {
            TAG_FLEET: self.fleet,
            TAG_RUNNER: self.runner_id,
            TAG_TYPE: self.runner_type,
            TAG_FUND: self.fund,
            TAG_HOLD: str(self.hold),
            TAG_PRICE: str(self.price),
            TAG_PURCHASE: self.offer.purchase.value,
        }


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine of ours as the provider sees it: not yet ended (a terminated machine is left out).

    `orphans` are references of disks, NICs or addresses that outlived their machine and still cost; `ref` is empty
    where nothing but them is left.
    """

    runner_id: str
    ref: str
    region: str
    zone: str
    instance_type: str
    launched_ms: UnixMs
    tags: Mapping[str, str] = field(default_factory=dict)
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FundBalance:
    """What the provider's own billing says of a credit grant: use up to `as_of_ms` is certainly in it."""

    spent: MicroUSD
    as_of_ms: UnixMs


class ProviderError(Exception):
    """A call failed. The subclass says what the core does next; the text says what an operator should know."""

    trouble = Trouble.TRANSIENT
    retry_after_ms: DurationMs = 0  # what the vendor asked for; 0: our own back-off


class NoCapacity(ProviderError):
    """The offer is sold out: cool the offer, take the next at once."""

    trouble = Trouble.NO_CAPACITY


class QuotaExceeded(ProviderError):
    """A limit of the account: cool provider and region."""

    trouble = Trouble.QUOTA


class Refused(ProviderError):
    """The request itself is bad (image, spec): cool the offer and alert."""

    trouble = Trouble.REFUSED


class Unauthorized(ProviderError):
    """Credentials or permissions: cool the provider and alert."""

    trouble = Trouble.UNAUTHORIZED


class Transient(ProviderError):
    """Throttling or a fault that was retried inside the adapter and certainly made no machine: back off."""

    trouble = Trouble.TRANSIENT


class OutcomeUnknown(ProviderError):
    """Sent and not answered: there may be a machine. Never followed by a launch elsewhere."""


class Provider(Protocol):
    """Five verbs. Every method may raise a `ProviderError`; none blocks the event loop."""

    async def offers(self) -> Sequence[Offer]:
        """Everything this account sells that a runner type could use, with present list prices."""

    async def launch(self, spec: LaunchSpec) -> Instance:
        """Create the machine. Idempotent on `spec.runner_id` at `spec.offer`: a replay finds the first one."""

    async def terminate(self, ref: str) -> None:
        """Ask for its end, with disks, NICs and addresses. An absent machine is success."""

    async def instances(self) -> Sequence[Instance]:
        """All machines of this fleet that have not ended, all pages. An incomplete list raises instead."""

    async def balance(self) -> FundBalance | None:
        """Spend of the grant that pays this account, where its billing tells; else None. Asked rarely, once."""

    async def close(self) -> None:
        """Release sockets and threads."""


@runtime_checkable
class TellsTaken(Protocol):
    """What a provider adds whose account can say which spot machines it took back."""

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        """Those of these spot machines, no longer listed and not stopped by us, that the account says it took."""


@dataclass(frozen=True, slots=True)
class HostState:
    """One host as the board has it, at one instant.

    `wanted` are machines that the host has not confirmed yet, by runner id: what to launch, or None for one that
    shall end. `report` is the host's last word: `leases`, `answers` by runner id to what was wanted up to the
    board's number `acted`, and `has`, its hardware. `present`: it was heard within the last minute of real time.
    """

    joined: bool = False
    present: bool = False
    since_ms: UnixMs = 0  # when it joined or, before that, when it was first looked for
    reported_ms: UnixMs = 0
    acted: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)
    wanted: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    paused: str = ""  # by whom
    keep_minutes: int = 0  # how long the work of a failed machine is kept for debugging


class HostBoard(Protocol):
    """What is wanted of hosts, and the last word of those that call us: kept where every replica sees it.

    A host is named `PROVIDER/HOST`. Every method may raise `Transient`.
    """

    async def read(self, host: str) -> HostState: ...

    async def look_for(self, host: str) -> UnixMs:
        """Remember when a host that has not joined was first looked for; that time."""

    async def want(self, host: str, runner_id: str, launch: Mapping[str, Any] | None) -> int:
        """Ask for a machine, or with None for its end, which nothing takes back. The board's number from then."""

    async def withdraw(self, host: str, runner_id: str) -> None:
        """No longer ask for that machine."""


@runtime_checkable
class HostKeeper(Protocol):
    """A provider whose machines are slots of named hosts: what the daemon's `/host/v1` asks it."""

    hosts: Sequence[str]
    sponsors: Mapping[str, str]  # SHA-256 of a join token, hex -> whose it is; empty where hosts do not call us

    def program(self) -> bytes:
        """What a host that calls us installs."""

    def terms(self, host: str) -> Mapping[str, Any]:
        """What a host that calls us must know of its slots."""

    def lacks(self, host: str, has: Mapping[str, Any]) -> str:
        """What the probed hardware has less of than the policy sells; empty when all is there."""


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One thing that `provider check` tried. `detail` says what was found, or why not; `mend` what to do then."""

    what: str
    ok: bool
    detail: str = ""
    mend: str = ""


class Checked(Protocol):
    """What a provider offers beside the five verbs, where its kind can look without launching anything."""

    async def check(self, samples: Sequence[LaunchSpec]) -> Sequence[CheckLine]:
        """Permissions, images, network, quota and clock, for launches as the policy would make them.

        `samples` have one launch a zone, purchase and image. Failures are lines: nothing raises.
        """


class Clock(Protocol):
    """The part of `autoscaler.clock` that a provider may use."""

    def now_ms(self) -> UnixMs: ...

    async def sleep(self, ms: DurationMs) -> None: ...


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """What a kind needs to build a provider: the account's part of the policy.

    `needs` are the hardware needs of all runner types that may run here, by type name: for kinds that sell
    whatever is asked for (`sim`, `kubernetes`). `from_cluster`: its offers shall count what it has room for.
    """

    name: str
    fleet: str
    regions: tuple[str, ...]
    endpoint: str | None
    settings: Any  # an instance of the kind's settings model
    needs: Mapping[str, Hardware]
    from_cluster: bool = False
    board: HostBoard | None = field(default=None, compare=False, repr=False)  # the running daemon's


class Kind(Protocol):
    """What the entry point group `autoscaler.providers` names: one object a kind, cheap to import."""

    name: str
    settings: type[Any]  # a pydantic model that validates `settings:` of the policy
    extra: str  # the extra that installs its SDK; empty when none is needed
    takes_image: bool  # its machines start from an image that the policy names

    def build(self, config: ProviderConfig, clock: Clock) -> Provider:
        """Make the provider without I/O. A missing SDK raises `MissingSdk`."""

    def catalogue(self, config: ProviderConfig) -> Sequence[Offer]:
        """The offers that are known without I/O (bundled prices, hosts of the policy): for `policy explain`."""


class MissingSdk(Exception):
    """The kind's SDK is not installed; the text names the extra that brings it."""
