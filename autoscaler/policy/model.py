"""The shape of the policy file (pydantic): one class a section, one field a key, units converted on the way in.

Also the source of the JSON Schema and of the keys that errors suggest. Validate with `policy_values.Names` as the
context. A provider's `settings` are its kind's business and are only a mapping here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from autoscaler.policy.values import (
    Cap,
    Count,
    DiskGib,
    Duration,
    ImageName,
    ImageReference,
    Instant,
    KindName,
    Labels,
    Lasting,
    MemoryMib,
    Money,
    Monthly,
    Name,
    Patterns,
    Percent,
    Price,
    ProviderName,
    Purchase,
    RatePerHour,
    Repositories,
    Repository,
    Some,
    Text,
    Weekly,
    form,
)


class Part(BaseModel):
    """A mapping of the policy. Unknown keys are errors; `5` is no text and `"5"` no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


# ---- money and machines ------------------------------------------------------------------------------------


class Spent(Part):
    amount: Money
    as_of: Instant


class Fund(Part):
    """Whose money, and what it may pay for. What is left out does not limit."""

    credit: Money | None = Field(default=None, description="A grant of this much in all")
    cash: Monthly | None = Field(default=None, description="Up to this much a calendar month (UTC)")
    from_: Instant | None = Field(default=None, alias="from", description="First instant")
    until: Instant | None = Field(default=None, description="First instant at which it is closed again")
    spent: Spent | None = Field(
        default=None, description="What was spent before this fleet knew the fund; for cash, in this month"
    )
    pays: Some[ProviderName] | None = Field(default=None, description="Providers")
    purchase: Some[Purchase] | None = None
    repositories: Some[Repository] | None = None
    regions: Some[Text] | None = None
    families: Some[Text] | None = Field(default=None, description="Families of instance types, such as c5")
    daily: Money | None = Field(default=None, description="At most this much a day (UTC)")
    balance: ProviderName | None = Field(
        default=None, description="The provider whose billing tells what is spent of this credit"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Fund:
        if (self.credit is None) == (self.cash is None):
            raise ValueError("expected either `credit: 50000 USD` or `cash: 20000 USD/month`")
        if self.from_ is not None and self.until is not None and self.until <= self.from_:
            raise ValueError("`until` must be later than `from`")
        if self.balance is not None and self.credit is None:
            raise ValueError("`balance` is for credit: billing does not tell cash by month")
        return self


class PriceTerms(Part):
    """Our price = list price x times + plus."""

    times: float = Field(1.0, ge=0, le=1000)
    plus: Price = 0


class Provider(Part):
    """One account that can run machines."""

    kind: KindName
    regions: Some[Text] | None = None
    max_runners: Cap | None = None
    launch_rate: RatePerHour | None = Field(
        default=None, description="Launches at most, such as 2/s; left out: unbounded"
    )
    price: (
        Annotated[Annotated[Price, Tag("(plain)")] | Annotated[PriceTerms, Tag("(mapping)")], Discriminator(form)]
        | None
    ) = Field(default=None, description="Replaces the list price, or {times, plus} corrects it")
    available: Weekly | None = Field(default=None, description="Placements only in this window")
    endpoint: Text | None = Field(
        default=None, description="Other API address: GovCloud, private clouds, emulators"
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="What this kind needs to know")

    @model_validator(mode="after")
    def _cluster(self) -> Provider:
        if self.max_runners == "from_cluster" and self.kind != "kubernetes":
            raise ValueError("`max_runners: from_cluster` is for kind kubernetes; write a number")
        return self


class Trial(Part):
    image: ImageName
    percent: Percent


class Image(Part):
    """References by provider name, then kind: one for everywhere, or one a region."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ImageReference]

    trial: Trial | None = None

    @property
    def by(self) -> dict[str, str | dict[str, str]]:
        return self.__pydantic_extra__


# ---- what runs, for whom -----------------------------------------------------------------------------------


class Access(Part):
    """Who may use a type: security, enforced at placement and at job start."""

    repositories: list[Repository] | None = None
    forks: Literal["deny", "only", "allow"] | None = None
    events: Some[Text] | None = Field(default=None, description="Left out: every event")


class Group(Part):
    group: Text


class Life(Part):
    """What `defaults` says for all types and a type may say for itself."""

    image: ImageName | None = Field(default=None, description="A key of `images`; built-in: none")
    boot_timeout: Lasting | None = Field(default=None, description="Launch to first call; built-in: 8m")
    register_timeout: Lasting | None = Field(default=None, description="JIT to registration; built-in: 3m")
    idle_timeout: Lasting | None = Field(default=None, description="Registered without a job; built-in: 5m")
    max_lifetime: Lasting | None = Field(default=None, description="JIT to the end, whatever runs; built-in: 3h")
    ready_max_age: Lasting | None = Field(default=None, description="Booted and not wanted; built-in: 1h")
    register_: (
        Annotated[
            Annotated[Literal["repository", "organization"], Tag("(plain)")] | Annotated[Group, Tag("(mapping)")],
            Discriminator(form),
        ]
        | None
    ) = Field(default=None, alias="register", description="Where runners register at GitHub; built-in: repository")
    bootstrap: Literal["callback", "userdata"] | None = Field(
        default=None,
        description="How a machine gets its JIT configuration: it asks for it, or, where it cannot call this "
        "daemon, it is made before the machine and put into its user data; built-in: callback",
    )
    access: Access = Access()


class Gpu(Part):
    vendor: Text
    model: str = Field("", max_length=100)
    count: int = Field(1, ge=1)


class Hardware(Part):
    """At least this. What is left out does not matter."""

    os: Literal["linux", "windows", "macos"] = "linux"
    arch: Literal["x64", "arm64"] = "x64"
    cpus: Count = 0
    memory: MemoryMib = 0
    disk: DiskGib = 0
    gpu: Gpu | None = None


class Selector(Part):
    """Whatever this provider sells that passes every filter."""

    provider: ProviderName
    instance_types: Some[Text] | None = None
    purchase: Some[Purchase] | None = Field(default=None, description="Left out: on_demand")
    regions: Some[Text] | None = None
    count: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="For `reserved`: how many machines of this entry are paid for already"
    )

    @model_validator(mode="after")
    def _reserved_has_a_count(self) -> Selector:
        reserved = "reserved" in (self.purchase or ())
        if reserved and self.count is None:
            raise ValueError("`purchase: [reserved]` needs `count`: how many machines of this entry are paid for")
        if self.count is not None and not reserved:
            raise ValueError("`count` is for `purchase: [reserved]`; to limit runners write `max_runners`")
        return self


class Ready(Part):
    count: Count
    when: Weekly | None = None


class Share(Part):
    percent: Percent
    all_after: Duration | None = None


class RunnerType(Life):
    """Labels and hardware needs, with limits."""

    labels: Labels
    hardware: Hardware = Hardware()
    max_price: Price | None = None
    offers: Some[Selector] | None = Field(
        default=None, description="Left out: whatever meets hardware and max_price"
    )
    max_runners: Count | None = None
    ready: list[Ready] = Field(default_factory=list, description="Machines kept booted; overlapping: the largest")
    share: Share | None = None


# ---- rules and the rest ------------------------------------------------------------------------------------


class Match(Part):
    """Patterns; what is left out matches everything."""

    repository: Repositories | None = None
    ref: Patterns | None = None
    event: Patterns | None = None


class Rule(Part):
    """Taste: `prefer` and `avoid` by the first match, `only` and `deny` of all matches together."""

    match: Match = Match()
    prefer: Some[ProviderName] | None = None
    avoid: Some[ProviderName] | None = None
    only: Some[ProviderName] | None = None
    deny: Some[ProviderName] | None = None
    waiting_hour: Money | None = Field(default=None, description="What an hour of waiting costs, for these jobs")
    rerun: bool = Field(False, description="Run a job again whose spot machine was taken")

    @model_validator(mode="after")
    def _does_something(self) -> Rule:
        if not self.model_fields_set - {"match"}:
            raise ValueError("this rule does nothing: write prefer, avoid, only, deny, waiting_hour or rerun")
        return self


class Limits(Part):
    runners: Count | None = Field(default=None, description="Live runners of the whole fleet")


class Placement(Part):
    waiting_hour: Money | None = Field(default=None, description="What an hour of waiting costs")
    restart_cost: Money | None = Field(
        default=None, description="What it costs when a spot machine is taken under a job"
    )


class FairShare(Part):
    by: Literal["repository", "owner"] = "repository"
    half_life: Lasting | None = None
    weights: dict[Text, Annotated[float, Field(gt=0, le=1_000_000)]] = Field(default_factory=dict)
    fifo_after: Duration | None = None
    max_runners: dict[Text, Count] = Field(default_factory=dict)


class OnDeadline(Part):
    after: Lasting = Field(description="How long a job of ours may wait")
    action: Literal["alert", "explain"] = Field(
        "alert",
        description="`alert`: the metric autoscaler_jobs_past_deadline; `explain`: a short-lived runner "
        "also ends the job, with the reason in its log",
    )


class Document(Part):
    """The whole policy after `include`."""

    version: Literal[1]
    include: list[Text] = Field(
        default_factory=list, description="Further files, relative to this one; * is allowed"
    )
    ignore_labels: list[Text] = Field(
        default_factory=list, description="Labels of jobs that are not ours; * is allowed"
    )
    limits: Limits = Limits()
    funds: dict[Name, Fund] = Field(default_factory=dict)
    providers: dict[Name, Provider]
    images: dict[Name, Image] = Field(default_factory=dict)
    defaults: Life = Life()
    runner_types: dict[Name, RunnerType]
    rules: list[Rule] = Field(default_factory=list)
    placement: Placement = Placement()
    fair_share: FairShare | None = None
    on_deadline: OnDeadline | None = None

    @field_validator("funds")
    @classmethod
    def _balances(cls, funds: dict[str, Fund]) -> dict[str, Fund]:
        taken: dict[str, str] = {}
        for name, fund in funds.items():
            if fund.balance and (first := taken.setdefault(fund.balance, name)) != name:
                raise ValueError(f"{first} and {name} both take the balance of {fund.balance}: only one can")
        return funds
