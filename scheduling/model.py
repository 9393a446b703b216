"""The records of the world, and what providers sell. Plain slotted dataclasses, encoded by `store.codec`.

Units: `_ms` fields are Unix milliseconds (UTC) or milliseconds of duration, `MicroUSD` is 10^-6 US dollars,
memory and disk are GiB x 1024 (MiB) and GiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from scheduling.frozen import frozen
from scheduling.lifecycle import GoneReason, JobState, RerunState, RunnerState

MicroUSD = int
UnixMs = int
DurationMs = int

HOUR_MS: DurationMs = 3_600_000


class Purchase(StrEnum):
    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPUs of one machine; `model` is the vendor's own short name (`gfx942`, `a10g`, `t4`)."""

    vendor: str
    model: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a machine has, or (as a need) must have at least. Zero and empty mean: does not matter."""

    os: str = "linux"
    arch: str = "x64"
    cpus: int = 0
    memory_mib: int = 0
    disk_gib: int = 0
    gpu: Gpu | None = None


@dataclass(frozen=True)  # without slots, so that it can keep what is derived
class Offer:
    """Something a provider sells at one place.

    `list_price` is micro-dollars an hour before the policy's `price`, None where the provider does not know it
    (then it is refused until the policy states one); `price_ms` is when that price was true, 0 where it does not
    age. `elastic_disk`: the disk is chosen at launch, so the hardware need for disk always holds. `count` bounds
    how many can run at once (slots, reservations). `refusal` says why this account cannot have what the vendor
    sells there.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    purchase: Purchase
    list_price: MicroUSD | None
    hardware: Hardware
    family: str = ""
    elastic_disk: bool = True
    count: int | None = None
    refusal: str = ""
    price_ms: UnixMs = 0

    @cached_property
    def key(self) -> str:
        """`provider/zone/instance_type/purchase`."""
        return f"{self.provider}/{self.zone}/{self.instance_type}/{self.purchase}"

    @cached_property
    def scopes(self) -> tuple[str, str, str]:
        """Every cooldown scope that it falls under; the first and the last count live runners, too."""
        return f"offer:{self.key}", f"region:{self.provider}/{self.region}", f"provider:{self.provider}"


@frozen
class RunFacts:
    """What `GET runs/{id}` says and the webhook does not carry."""

    event: str
    fork: bool
    ref: str = ""


@dataclass(slots=True)
class Job:
    """One GitHub `workflow_job`. `key` is `{job id}.{run attempt}`; labels are case-folded, sorted, unique."""

    key: str
    job_id: int
    run_id: int
    repository: str
    labels: tuple[str, ...]
    state: JobState
    name: str = ""
    workflow: str = ""
    branch: str = ""
    seen_ms: UnixMs = 0
    queued_ms: UnixMs = 0
    started_ms: UnixMs = 0
    completed_ms: UnixMs = 0
    conclusion: str = ""
    runner_name: str = ""
    runner: str = ""  # our runner id, where the name is ours
    runner_type: str = ""
    pool: str = ""  # pool key; empty while not routed
    flexible: bool = False  # runner types beside its pool's could serve it
    blocked: str = ""  # why it has no pool: unroutable, access, waiting for facts
    facts: RunFacts | None = None
    checked_ms: UnixMs = 0  # when GitHub was last asked whether it still waits
    waited_for: str = ""  # the last reason that kept it from being launched for
    notice: str = ""  # the notice runner that was launched to tell it why it waits


@frozen
class HoldPart:
    """Part of a hold: one fund pays the runner's price from `from_ms` (inclusive) to `until_ms` (exclusive).

    A part never crosses the end of a fund or, for cash, of a month, so `amount` is counted in one `period`:
    empty for credit, `YYYY-MM` for cash.
    """

    fund: str
    period: str
    from_ms: UnixMs
    until_ms: UnixMs
    amount: MicroUSD


@frozen
class Verdict:
    """One offer in a placement: its rank terms, or the reason why it lost. Shown by `why` as it stands."""

    offer: str
    fund: str = ""
    price: MicroUSD | None = None
    score: MicroUSD | None = None
    refusal: str = ""


@frozen
class LaunchTerms:
    """Parameters frozen at the decision, so that a reload of the policy never changes a launch under way."""

    policy_hash: str
    access: str  # JSON of the type's access rules, for admission at job start
    labels: tuple[str, ...]
    image: str
    boot_timeout_ms: DurationMs
    register_timeout_ms: DurationMs
    idle_timeout_ms: DurationMs
    ready_max_age_ms: DurationMs
    max_lifetime_ms: DurationMs
    disk_gib: int = 0
    notice: bool = False  # a notice runner: it tells one job why it waited, and ends it
    trial: bool = False  # its image is the one on trial
    userdata: bool = False  # its JIT config is made before the machine and travels in its user data


BOOT_FAILED = "failed"
"""`Runner.boot` of a machine that said it gives up."""


@dataclass(slots=True)
class Runner:
    """One launch at one offer. `id` is `r` + 20 characters of [a-z0-9]; its GitHub name is `{fleet}-{id}`."""

    id: str
    runner_type: str
    offer: Offer
    price: MicroUSD  # an hour, after the policy's `price`
    fund: str
    hold: tuple[HoldPart, ...]
    terms: LaunchTerms
    state: RunnerState
    planned_ms: UnixMs
    pool: str = ""  # pool it is counted in; empty for a ready machine that belongs to no pool
    target: str = ""  # registration target of its JIT: `repo:o/r`, `org:o` or `group:o/NAME`
    repository: str = ""  # whose job it is meant for or runs; empty for a ready machine that belongs to no pool
    launched_for: str = ""  # job key that the demand stood for
    running: str = ""  # job key that GitHub gave it
    ref: str = ""  # the provider's own id of the machine
    registration_id: int = 0
    unknown_ms: UnixMs = 0  # last create call without an answer
    created_ms: UnixMs = 0
    booted_ms: UnixMs = 0
    assigned_ms: UnixMs = 0
    jit_ms: UnixMs = 0
    registered_ms: UnixMs = 0
    started_ms: UnixMs = 0
    ended_ms: UnixMs = 0
    free_ms: UnixMs = 0  # since when a ready machine belongs to no pool
    suspect_ms: UnixMs = 0  # first confirmation that it is idle and surplus
    interrupted_ms: UnixMs = 0  # when the machine said that its provider will take it; job code could say so too
    taken_ms: UnixMs = 0  # when the provider itself said that it took the machine
    leaving_ms: UnixMs = 0
    stop_ms: UnixMs = 0  # first terminate call that the provider accepted
    absent_ms: UnixMs = 0  # first complete inventory without it
    absences: int = 0
    gone_ms: UnixMs = 0
    reason: GoneReason | None = None
    detail: str = ""  # last error, refusal or boot failure, in words
    boot: str = ""  # what the machine said last that it does while it boots; BOOT_FAILED when it gave up
    boot_since_ms: UnixMs = 0  # since when it does that
    heard_ms: UnixMs = 0  # its last report
    log: tuple[str, ...] = ()  # last lines that it printed before it gave up; bounded, without secrets
    sealed: str = ""  # userdata: the JIT config, encrypted, until the outcome of the create call is known
    queued_ms: UnixMs = 0  # since when the job waited that it was launched or assigned for
    waited_for: str = ""  # what had refused its pool's demand before it was planned
    failures: int = 0  # failed attempts of the effect that is due
    retry_ms: UnixMs = 0  # not before this time
    cost: MicroUSD = 0
    placement: tuple[Verdict, ...] = ()
    adopted: bool = False


@dataclass(slots=True)
class Rerun:
    """A job (`job_key` names the attempt) under which a spot machine was taken. `ended_ms` is GitHub's time."""

    job_key: str
    job_id: int
    run_id: int
    repository: str
    name: str
    state: RerunState
    at_ms: UnixMs
    ended_ms: UnixMs
    detail: str = ""  # why not, or why not yet
    failures: int = 0
    retry_ms: UnixMs = 0


@dataclass(slots=True)
class Pool:
    """Demand and supply of (runner type, registration target, providers that access rules allow)."""

    key: str
    runner_type: str
    target: str
    repository: str
    providers: frozenset[str] | None = None  # None: all


@dataclass(slots=True)
class Cooldown:
    """A scope we have stopped asking for. `probe` names the one runner let through after `until_ms`."""

    scope: str  # `offer:KEY`, `region:PROVIDER/REGION`, `provider:NAME`, `image:NAME`
    until_ms: UnixMs
    why: str
    failures: int = 1
    probe: str = ""


@dataclass(slots=True)
class FundAccount:
    """What the ledger knows about one fund. Amounts by period: `""` for credit, `YYYY-MM` for cash."""

    name: str
    known: bool = False  # closed until its spend is known
    spent_before: dict[str, MicroUSD] = field(default_factory=dict)  # stated from outside
    spent_as_of_ms: UnixMs = 0
    spent_said_ms: UnixMs = 0  # when that was said, and by whom
    spent_source: str = ""
    settled: dict[str, MicroUSD] = field(default_factory=dict)
    held: dict[str, MicroUSD] = field(default_factory=dict)
    settled_by_day: dict[str, MicroUSD] = field(default_factory=dict)


@dataclass(slots=True)
class Usage:
    """Machine time that one repository or owner has used, halved every half-life; true at `at_ms`."""

    name: str
    machine_ms: float
    at_ms: UnixMs


@dataclass(slots=True)
class Spend:
    """What one fund paid for one repository in one month (`YYYY-MM`, UTC): a line of the sponsor's statement."""

    fund: str
    month: str
    repository: str  # empty: machines that no job used
    jobs: int = 0
    machine_ms: DurationMs = 0
    amount: MicroUSD = 0

    @property
    def key(self) -> str:
        return f"{self.fund}/{self.month}/{self.repository}"


@dataclass(slots=True)
class Estimate:
    """Something learned: `value` (unit by the kind of key, see `learning`) from `weight` observations."""

    name: str
    value: float
    weight: float


@dataclass(slots=True)
class Demand:
    """Machine time of one runner type by slots of the week, faded with age; true at `at_ms`."""

    runner_type: str
    since_ms: UnixMs
    at_ms: UnixMs
    machine_ms: list[DurationMs]


@dataclass(slots=True)
class Bid:
    """What a dollar of this fund counts for in a score, in millionths, until `until_ms`; `why` in words.

    Or, where `fund` is the scope of a cap (`provider:NAME`, `offer:KEY`): its machines are scarce and count
    `premium` an hour more.
    """

    fund: str
    value_ppm: int
    until_ms: UnixMs
    why: str = ""
    premium: MicroUSD = 0


@dataclass(slots=True)
class Totals:
    """Counts since the fleet began; survive restarts with the records."""

    launched: int = 0
    failed_launches: int = 0
    reaped_unused: int = 0
    completed: int = 0
    cancelled: int = 0
    cost_by_provider: dict[str, MicroUSD] = field(default_factory=dict)
    boot: MicroUSD = 0
    idle: MicroUSD = 0
    policy_hash: str = ""  # of the version that routed the queued jobs
    half_life_ms: DurationMs = 86_400_000  # of usage, by that policy
