"""The compiled policy: what `autoscaler.policy.file` makes of the operators' YAML. Immutable and complete.

Defaults are filled in, names are resolved, units are parsed. Patterns (`pytorch/*`) match case-insensitively
with `fnmatch` rules. Unknown references were refused before this point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from scheduling.model import DurationMs, Hardware, MicroUSD, Purchase, UnixMs

MINUTE_MS: DurationMs = 60_000


def matches(patterns: tuple[str, ...], value: str) -> bool:
    """True when any of the patterns matches the whole value, case-insensitively."""
    folded = value.casefold()
    return any(fnmatchcase(folded, pattern.casefold()) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Window:
    """Weekly time window, `Mon-Fri 19:00-08:00 Europe/Berlin`. Past midnight it belongs to its first day.

    `days` are 0 (Monday) to 6; `start_min` and `end_min` are minutes after local midnight; `end_min` at or
    below `start_min` means the next day. `text` is what the operator wrote.
    """

    days: frozenset[int]
    start_min: int
    end_min: int
    zone: tzinfo
    text: str


@dataclass(frozen=True, slots=True)
class Fund:
    """Whose money. `credit`: `limit` in all from `from_ms` to `until_ms` (exclusive). Cash: `limit` a month.

    `spent` counts what was spent before this fleet knew the fund, true at `spent_as_of_ms` (0: not stated).
    `pays` None means every provider; `purchase` empty means any; empty patterns mean everything. `balance`: the
    provider whose billing tells what is spent; empty: none.
    """

    name: str
    cash: bool
    limit: MicroUSD
    from_ms: UnixMs | None = None
    until_ms: UnixMs | None = None
    pays: frozenset[str] | None = None
    purchase: frozenset[Purchase] = frozenset()
    repositories: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    daily: MicroUSD | None = None
    spent: MicroUSD | None = None
    spent_as_of_ms: UnixMs = 0
    balance: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """How the list price becomes ours: list x `times_ppm` / 10^6 + `plus`, or `fixed` instead of both."""

    times_ppm: int = 1_000_000
    plus: MicroUSD = 0
    fixed: MicroUSD | None = None

    def of(self, list_price: MicroUSD | None) -> MicroUSD | None:
        """Micro-dollars an hour; None when the list price is unknown and no fixed price is stated."""
        if self.fixed is not None:
            return self.fixed
        if list_price is None:
            return None
        return -(-list_price * self.times_ppm // 1_000_000) + self.plus


@dataclass(frozen=True, slots=True)
class ProviderPolicy:
    """One account that can run machines. `settings` was validated by its kind's own model."""

    name: str
    kind: str
    regions: tuple[str, ...] = ()
    max_runners: int | None = None
    from_cluster: bool = False  # what runs there at once is bounded by what its offers count
    launch_rate: float | None = None  # launches a second; None: unbounded
    price: Price = Price()
    available: Window | None = None
    endpoint: str | None = None
    takes_image: bool = True  # its kind starts machines from an image that the policy names
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Selector:
    """One entry of a type's `offers`: whatever this provider sells that passes every stated filter.

    `count`: how many machines of the entry are reserved, paid for whether they run or not.
    """

    provider: str
    instance_types: tuple[str, ...] = ()
    purchase: tuple[Purchase, ...] = (Purchase.ON_DEMAND,)
    regions: tuple[str, ...] = ()
    count: int = 0


class Forks(StrEnum):
    DENY = "deny"
    ONLY = "only"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a type. No repositories: nobody."""

    repositories: tuple[str, ...] = ()
    forks: Forks = Forks.DENY
    events: tuple[str, ...] = ()  # empty: every event


@dataclass(frozen=True, slots=True)
class ReadyFloor:
    count: int
    when: Window | None = None  # None: always


@dataclass(frozen=True, slots=True)
class Share:
    """Take `percent` of job ids at once and the rest after `all_after_ms` of waiting."""

    percent: int = 100
    all_after_ms: DurationMs | None = None


@dataclass(frozen=True, slots=True)
class RunnerType:
    """A set of labels plus hardware needs, with limits. `labels` are as written; matching folds case."""

    name: str
    labels: tuple[str, ...]
    hardware: Hardware
    selectors: tuple[Selector, ...] | None = None  # None: whatever meets hardware and max_price
    max_price: MicroUSD | None = None
    max_runners: int | None = None
    ready: tuple[ReadyFloor, ...] = ()
    share: Share = Share()
    access: Access = Access()
    image: str = ""
    register: str = "repository"  # `repository`, `organization` or `group:NAME`
    bootstrap: str = "callback"  # or `userdata`
    boot_timeout_ms: DurationMs = 8 * MINUTE_MS
    register_timeout_ms: DurationMs = 3 * MINUTE_MS
    idle_timeout_ms: DurationMs = 5 * MINUTE_MS
    max_lifetime_ms: DurationMs = 180 * MINUTE_MS
    ready_max_age_ms: DurationMs = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Rule:
    """Taste. `repository`, `ref`, `event`, `workflow`, `job`, `labels` are patterns, empty: any.

    `prefer` and `avoid`: first match; `only` and `deny`: all matches combine.
    """

    repository: tuple[str, ...] = ()
    ref: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    waiting_hour: MicroUSD | None = None
    rerun: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    waiting_hour: MicroUSD = 2_000_000
    restart_cost: MicroUSD = 500_000


@dataclass(frozen=True, slots=True)
class FairShare:
    by: str = "repository"  # or `owner`
    half_life_ms: DurationMs = 24 * 60 * MINUTE_MS
    weights: Mapping[str, float] = field(default_factory=dict)
    fifo_after_ms: DurationMs | None = None
    max_runners: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnDeadline:
    after_ms: DurationMs
    action: str = "alert"  # or `explain`


@dataclass(frozen=True, slots=True)
class Image:
    """Image references by provider name, then kind; a value is one reference or one a region.

    `trial_percent` of all launches that would get this image try the image `trial` instead, where it boots.
    """

    name: str
    by: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    trial: str = ""
    trial_percent: int = 0

    def reference(self, provider: str, kind: str, region: str) -> str | None:
        """The provider's own image id at this place, None where the image does not exist there."""
        found = self.by.get(provider, self.by.get(kind))
        return found if found is None or isinstance(found, str) else found.get(region)


@dataclass(frozen=True, slots=True)
class Policy:
    """One installation's policy. `hash` is over the merged source text: the name of this version."""

    hash: str
    providers: Mapping[str, ProviderPolicy]
    runner_types: Mapping[str, RunnerType]
    funds: Mapping[str, Fund] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    ignore_labels: tuple[str, ...] = ()
    max_runners: int | None = None
    placement: Placement = Placement()
    fair_share: FairShare = FairShare()
    on_deadline: OnDeadline | None = None
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # derived: the matcher
