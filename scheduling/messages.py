"""Facts in, commands out: the Event and Command unions.

An Event is a fact (webhook, effect result, callback, inventory) or a decision of `plan`; both enter the world
through `evolve` only. A Command is what the records say must still be done; `autoscaler.effects` performs it and
answers with an Event. `autoscaler.store.codec` turns each of these dataclasses into JSON and back.
"""

from __future__ import annotations

from enum import StrEnum

from scheduling.frozen import frozen
from scheduling.lifecycle import GoneReason, JobState, RerunState
from scheduling.model import (
    Bid,
    DurationMs,
    HoldPart,
    LaunchTerms,
    MicroUSD,
    Offer,
    Pool,
    RunFacts,
    UnixMs,
    Verdict,
)

# ---- facts from GitHub -------------------------------------------------------------------------------------


@frozen
class JobReported:
    """A `workflow_job` delivery, a poll or a sweep said so. Empty strings and zeros mean: not stated.

    `labels` as GitHub sent them (case and order included). `runner_name` is empty for a job cancelled while
    queued. Times are GitHub's own; `at_ms` is when we received it.
    """

    at_ms: UnixMs
    state: JobState
    job_id: int
    run_id: int
    run_attempt: int
    repository: str
    labels: tuple[str, ...]
    name: str = ""
    workflow: str = ""
    branch: str = ""
    conclusion: str = ""
    runner_name: str = ""
    created_ms: UnixMs = 0
    started_ms: UnixMs = 0
    completed_ms: UnixMs = 0
    delivery: str = ""


@frozen
class RunFactsLearned:
    """Answer to `FetchRun`; `facts` None when GitHub no longer knows the run."""

    at_ms: UnixMs
    repository: str
    run_id: int
    facts: RunFacts | None


@frozen
class JobChecked:
    """GitHub was asked about a job that nothing picks up, and says that it still waits."""

    at_ms: UnixMs
    job_key: str


@frozen
class RegistrationSeen:
    """GitHub lists our runner (by name). `online` False after a create is normal."""

    at_ms: UnixMs
    runner_id: str
    registration_id: int
    online: bool
    busy: bool
    target: str = ""  # where it is registered


@frozen
class RegistrationAbsent:
    """GitHub, asked by id, has no such registration."""

    at_ms: UnixMs
    runner_id: str


@frozen
class RegistrationsListed:
    """GitHub listed every target where a runner of ours may be registered, from `at_ms` on; each was reported."""

    at_ms: UnixMs


# ---- results of effects ------------------------------------------------------------------------------------


class Trouble(StrEnum):
    """What went wrong with an effect, named for what the core does next (see `providers.base`)."""

    NO_CAPACITY = "no_capacity"
    QUOTA = "quota_exceeded"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    TRANSIENT = "transient"
    OBSERVED = "observed"  # `--observe`: nothing was sent


@frozen
class MachineCreated:
    at_ms: UnixMs
    runner_id: str
    ref: str


@frozen
class CreateFailed:
    """A definite error: this call made no machine. TRANSIENT means: try the same call again later."""

    at_ms: UnixMs
    runner_id: str
    trouble: Trouble
    detail: str
    retry_after_ms: DurationMs = 0


@frozen
class CreateUnknown:
    """Sent, no answer: there may be a machine."""

    at_ms: UnixMs
    runner_id: str
    detail: str


@frozen
class JitStored:
    """GitHub made the registration and its config lies encrypted in the store for the machine."""

    at_ms: UnixMs
    runner_id: str
    registration_id: int
    sealed: str = ""  # the config, encrypted, for a machine that gets it as user data


@frozen
class RegistrationDeleted:
    """204 or 404 for our registration."""

    at_ms: UnixMs
    runner_id: str


@frozen
class RegistrationBusy:
    """422: GitHub says that a job runs on it."""

    at_ms: UnixMs
    runner_id: str


@frozen
class RerunAnswered:
    """What GitHub says to a re-run. DUE: not now, `detail` says why; asked again after `retry_after_ms`."""

    at_ms: UnixMs
    job_key: str
    state: RerunState
    detail: str = ""
    retry_after_ms: DurationMs = 0


@frozen
class StopAccepted:
    """The provider accepted (or had already done) the termination."""

    at_ms: UnixMs
    runner_id: str


@frozen
class EffectFailed:
    """JIT, DELETE or terminate failed for now; tried again after `retry_after_ms` (0: our own back-off)."""

    at_ms: UnixMs
    runner_id: str
    trouble: Trouble
    detail: str
    retry_after_ms: DurationMs = 0


# ---- callbacks and inventory -------------------------------------------------------------------------------


class Stage(StrEnum):
    """What a machine reports about itself. Never a reason to kill it or to settle its hold."""

    BOOTING = "booting"  # `detail` says what it does; repeated while it lasts
    BOOTED = "booted"
    REGISTERED = "registered"
    STARTED = "started"
    FINISHED = "finished"
    EXITED = "exited"
    FAILED = "failed"
    TOO_OLD = "too_old"  # GitHub refuses its version of the runner
    REFUSED = "refused"  # admission at job start refused the job
    INTERRUPTED = "interrupted"  # the cloud announced that it will take the machine; `detail` has its words


@frozen
class StageReported:
    at_ms: UnixMs
    runner_id: str
    stage: Stage
    detail: str = ""
    log: tuple[str, ...] = ()  # with FAILED: what the machine printed last


@frozen
class MachineSeen:
    """A provider's inventory shows our machine and the record does not have its ref yet."""

    at_ms: UnixMs
    runner_id: str
    ref: str


@frozen
class MachineAbsent:
    """A complete inventory, begun at `at_ms`, did not show the machine."""

    at_ms: UnixMs
    runner_id: str


@frozen
class MachineTaken:
    """The provider itself says that it took this spot machine back."""

    at_ms: UnixMs
    runner_id: str


@frozen
class MachineAdopted:
    """A machine with our fleet's tags that the store does not know: it gets a record, never a kill."""

    at_ms: UnixMs
    runner_id: str
    ref: str
    runner_type: str
    offer: Offer
    price: MicroUSD
    fund: str
    hold: tuple[HoldPart, ...]
    terms: LaunchTerms
    launched_ms: UnixMs


@frozen
class InventoryTaken:
    """All facts of one complete inventory were emitted; opens the provider's gate in the leader's epoch."""

    at_ms: UnixMs
    provider: str
    epoch: str


@frozen
class OffersListed:
    """What a provider sells now. Replaces what was known of that provider."""

    at_ms: UnixMs
    provider: str
    offers: tuple[Offer, ...]


@frozen
class GitHubPaced:
    """How many registrations a minute GitHub lets us make at an owner (case-folded) now, through all our Apps."""

    at_ms: UnixMs
    owner: str
    per_minute: int


@frozen
class LeadershipTaken:
    """This replica leads now: no provider launches before its own inventory was adopted.

    `epoch` is random text from outside: runner ids are derived from it, so that no two leaders and no two lives of
    a store can make the same one.
    """

    at_ms: UnixMs
    providers: tuple[str, ...]
    epoch: str
    whole: bool = True
    """False when the store may have lost intents: a list proves that it shows them only after a while."""


@frozen
class PolicyActivated:
    """This policy version rules from now on: every queued job is routed anew."""

    at_ms: UnixMs
    hash: str
    half_life_ms: DurationMs = 86_400_000  # of the usage that fair share weighs


# ---- the operator ------------------------------------------------------------------------------------------


@frozen
class SwitchSet:
    """`pause`/`resume` (target `fleet`) and `drain`/`undrain` (`provider:NAME`, `type:NAME`, `all`)."""

    at_ms: UnixMs
    target: str
    on: bool
    by: str = ""


@frozen
class FundSpentStated:
    """All that was spent of a fund in a period, our own settlements included, true at `as_of_ms`."""

    at_ms: UnixMs
    fund: str
    period: str
    amount: MicroUSD
    as_of_ms: UnixMs
    source: str


@frozen
class FundsValued:
    """What the planner found a dollar of each fund to be worth; replaces all earlier bids."""

    at_ms: UnixMs
    bids: tuple[Bid, ...]


# ---- decisions ---------------------------------------------------------------------------------------------


@frozen
class JobRouted:
    """The job belongs to a pool, or `blocked` says why to none (then routing is tried again at `again_ms`)."""

    at_ms: UnixMs
    job_key: str
    pool: Pool | None
    blocked: str = ""
    again_ms: UnixMs = 0
    flexible: bool = False  # other runner types could serve it too


@frozen
class RunnerPlanned:
    """Intent and hold of one launch. `pool` None: for the ready floor of the type."""

    at_ms: UnixMs
    runner_id: str
    runner_type: str
    pool: str
    repository: str
    launched_for: str
    offer: Offer
    price: MicroUSD
    fund: str
    hold: tuple[HoldPart, ...]
    terms: LaunchTerms
    placement: tuple[Verdict, ...] = ()
    probes: tuple[str, ...] = ()  # cooldown scopes that this launch probes
    queued_ms: UnixMs = 0  # since when the job waits that it is for
    waited_for: str = ""  # what refused the pool's demand in the round before


@frozen
class RunnerAssigned:
    """A free machine joins the pool; a booted one registers for it now."""

    at_ms: UnixMs
    runner_id: str
    pool: str
    target: str
    repository: str
    queued_ms: UnixMs = 0  # since when the job waits that it is for


@frozen
class RunnerReleased:
    """Its pool does not need it: a ready machine (or one on its way) that any pool of the type may take."""

    at_ms: UnixMs
    runner_id: str


@frozen
class RunnerSuspected:
    """First confirmation that it is idle and surplus; `clear` takes it back."""

    at_ms: UnixMs
    runner_id: str
    clear: bool = False


@frozen
class ReapDecided:
    at_ms: UnixMs
    runner_id: str
    reason: GoneReason
    detail: str = ""


@frozen
class RunnerSettled:
    """The machine is proven absent: `parts` are (fund, period, amount) that its lifetime cost."""

    at_ms: UnixMs
    runner_id: str
    parts: tuple[tuple[str, str, MicroUSD], ...]
    cost: MicroUSD


@frozen
class RerunDecided:
    """The spot machine of this job, which has failed, was taken: it is run again unless `refusal` says why not."""

    at_ms: UnixMs
    job_key: str
    refusal: str = ""


@frozen
class RecordsForgotten:
    """Finished records that nobody needs any more. Jobs leave a tombstone first, which goes later."""

    at_ms: UnixMs
    jobs: tuple[str, ...] = ()
    tombstones: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()


Event = (
    JobReported
    | RunFactsLearned
    | JobChecked
    | RegistrationSeen
    | RegistrationAbsent
    | RegistrationsListed
    | MachineCreated
    | CreateFailed
    | CreateUnknown
    | JitStored
    | RegistrationDeleted
    | RegistrationBusy
    | RerunAnswered
    | StopAccepted
    | EffectFailed
    | StageReported
    | MachineSeen
    | MachineAbsent
    | MachineTaken
    | MachineAdopted
    | InventoryTaken
    | OffersListed
    | GitHubPaced
    | LeadershipTaken
    | PolicyActivated
    | SwitchSet
    | FundSpentStated
    | FundsValued
    | JobRouted
    | RunnerPlanned
    | RunnerAssigned
    | RunnerReleased
    | RunnerSuspected
    | ReapDecided
    | RunnerSettled
    | RerunDecided
    | RecordsForgotten
)


# ---- commands ----------------------------------------------------------------------------------------------


@frozen
class CreateMachine:
    """Create (or create again with the same key) the machine of a planned runner."""

    runner_id: str


@frozen
class CreateJit:
    """Make the registration and store its config for the machine."""

    runner_id: str


@frozen
class DeleteRegistration:
    runner_id: str


@frozen
class StopMachine:
    runner_id: str


@frozen
class FetchRun:
    """Learn event, fork flag and ref of a run, where access or a rule needs them."""

    repository: str
    run_id: int


@frozen
class RerunJob:
    """Ask GitHub for a new attempt of this job, unless there is one."""

    job_key: str


Command = CreateMachine | CreateJit | DeleteRegistration | StopMachine | FetchRun | RerunJob


@frozen
class Commands:
    """What the records say must still be done now, and when to look again (0: only after a new fact)."""

    due: tuple[Command, ...] = ()
    next_ms: UnixMs = 0
