"""A fleet without any I/O: the pure core, a cloud of dictionaries, and time that a test moves by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState, RerunState, RunnerState
from scheduling.model import Hardware, Job, Offer, Purchase, Runner
from scheduling.pending import pending
from scheduling.plan import Plan, plan
from scheduling.policy import Access, Forks, Fund, Policy, ProviderPolicy, RunnerType
from scheduling.world import World

NOON = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
USD = 1_000_000


def offer(provider: str, price: int | None = USD // 2, **changes: object) -> Offer:
    """An offer of a provider with one zone; `price` in micro-dollars an hour."""
    base = Offer(provider, "r1", "r1-a", "big", Purchase.ON_DEMAND, price, Hardware(cpus=8, memory_mib=16 * 1024))
    return replace(base, **changes)


def credit(name: str, dollars: int, *pays: str, days: int = 300, **changes: object) -> Fund:
    """Credit that began long ago, whose spend so far is freshly stated as nothing."""
    base = Fund(
        name,
        cash=False,
        limit=dollars * USD,
        until_ms=NOON + days * 24 * HOUR,
        pays=frozenset(pays) or None,
        spent=0,
        spent_as_of_ms=NOON,
    )
    return replace(base, **changes)


def runner_type(name: str = "linux", **changes: object) -> RunnerType:
    access = Access(("acme/*",), Forks.ALLOW)
    base = RunnerType(name, ("self-hosted", "Linux", name), Hardware(cpus=4), access=access)
    return replace(base, **changes)


def policy(*types: RunnerType, funds: tuple[Fund, ...] | None = None, **changes: object) -> Policy:
    """Providers `east` and `west` of plenty, one fund that pays both, unless told otherwise."""
    base = Policy(
        hash="p1",
        providers={name: ProviderPolicy(name, "sim") for name in ("east", "west")},
        runner_types={rtype.name: rtype for rtype in types or (runner_type(),)},
        funds={fund.name: fund for fund in ((credit("grant", 10_000),) if funds is None else funds)},
    )
    return replace(base, **changes)


@dataclass
class Cloud:
    """Machines by runner id. `refuse` maps an offer key to what a create there ends with."""

    machines: dict[str, str] = field(default_factory=dict)
    refuse: dict[str, m.Trouble] = field(default_factory=dict)
    refuse_image: str = ""
    lost_answers: set[str] = field(default_factory=set)
    created: int = 0


class Fleet:
    """One world under one policy. `step` plans, then performs every pending command at once."""

    def __init__(self, policy: Policy, offers: dict[str, tuple[Offer, ...]] | None = None) -> None:
        self.policy, self.now = policy, NOON
        self.world = World("acme")
        self.cloud = Cloud()
        self.registered: set[str] = set()
        self.busy: set[str] = set()
        self.reruns: list[str] = []
        self.plan = Plan()
        self.tell(m.LeadershipTaken(self.now, tuple(policy.providers), "epoch"))
        self.tell(m.PolicyActivated(self.now, policy.hash))
        offers = offers or {"east": (offer("east"),), "west": (offer("west", USD),)}
        for name in policy.providers:
            self.tell(m.OffersListed(self.now, name, offers.get(name, ())))
            self.tell(m.InventoryTaken(self.now, name, "epoch"))

    # ---- facts ---------------------------------------------------------------------------------------------

    def tell(self, *events: m.Event) -> None:
        for event in events:
            evolve(self.world, event, self.now)

    def job(self, number: int, state: JobState = JobState.QUEUED, **changes: object) -> m.JobReported:
        labels = ("self-hosted", "linux")
        event = m.JobReported(self.now, state, number, number * 10, 1, "acme/app", labels, created_ms=self.now)
        event = replace(event, **changes)
        self.tell(event)
        return event

    def start(self, number: int, runner: Runner, **changes: object) -> None:
        self.busy.add(runner.id)
        self.job(number, JobState.IN_PROGRESS, runner_name=f"acme-{runner.id}", **changes)

    def finish(
        self, number: int, runner: Runner | None = None, conclusion: str = "success", **changes: object
    ) -> None:
        name = f"acme-{runner.id}" if runner else ""
        if runner:
            self.busy.discard(runner.id)
        self.job(number, JobState.COMPLETED, runner_name=name, conclusion=conclusion, **changes)

    def boot(self, *runners: Runner) -> None:
        for runner in runners or tuple(self.runners(RunnerState.STARTING)):
            self.tell(m.StageReported(self.now, runner.id, m.Stage.BOOTED))

    def register(self, *runners: Runner) -> None:
        for runner in runners or tuple(self.runners(RunnerState.REGISTERING)):
            self.tell(m.StageReported(self.now, runner.id, m.Stage.REGISTERED))

    def idle(self) -> list[Runner]:
        """Bring every launch as far as an idle runner."""
        self.step()
        self.boot()
        self.step()
        self.register()
        self.step()
        return self.runners(RunnerState.IDLE)

    # ---- time ----------------------------------------------------------------------------------------------

    def step(self, ms: int = 0) -> Plan:
        """Let time pass, plan, perform."""
        self.now += ms
        self.plan = plan(self.world, self.policy, self.now)
        for command in pending(self.world, self.now).due:
            event = self.perform(command)
            if event is not None:
                self.tell(event)
        return self.plan

    def run(self, ms: int, every: int = 10 * SECOND) -> None:
        """Let time pass in steps, with an inventory in each."""
        end = self.now + ms
        while self.now < end:
            self.step(min(every, end - self.now))
            self.inventory()

    def inventory(self) -> None:
        for runner in list(self.world.runners.values()):
            if runner.id not in self.cloud.machines:
                self.tell(m.MachineAbsent(self.now, runner.id))
            elif not runner.ref:
                self.tell(m.MachineSeen(self.now, runner.id, self.cloud.machines[runner.id]))

    def perform(self, command: m.Command) -> m.Event | None:
        now = self.now
        if isinstance(command, m.FetchRun):
            return None
        if isinstance(command, m.RerunJob):
            self.reruns.append(command.job_key)
            return m.RerunAnswered(now, command.job_key, RerunState.ASKED)
        runner = self.world.runners[command.runner_id]
        if isinstance(command, m.CreateMachine):
            trouble = self.cloud.refuse.get(runner.offer.key)
            if trouble is not None:
                return m.CreateFailed(now, runner.id, trouble, f"{trouble} at {runner.offer.key}")
            if runner.terms.image and runner.terms.image == self.cloud.refuse_image:
                return m.CreateFailed(now, runner.id, m.Trouble.REFUSED, f"no image {runner.terms.image}")
            if runner.id not in self.cloud.machines:
                self.cloud.created += 1
            ref = self.cloud.machines.setdefault(runner.id, f"i-{self.cloud.created}")
            if runner.offer.key in self.cloud.lost_answers:
                return m.CreateUnknown(now, runner.id, "no answer")
            return m.MachineCreated(now, runner.id, ref)
        if isinstance(command, m.CreateJit):
            self.registered.add(runner.id)
            return m.JitStored(now, runner.id, 1000 + len(self.world.runners))
        if isinstance(command, m.DeleteRegistration):
            if runner.id in self.busy:
                return m.RegistrationBusy(now, runner.id)
            self.registered.discard(runner.id)
            return m.RegistrationDeleted(now, runner.id)
        self.cloud.machines.pop(runner.id, None)
        return m.StopAccepted(now, runner.id)

    # ---- what a test looks at ------------------------------------------------------------------------------

    def runners(self, *states: RunnerState) -> list[Runner]:
        return [self.world.runners[key] for state in states or RunnerState for key in self.world.by_state[state]]

    def record(self, number: int) -> Job:
        return self.world.jobs[f"{number}.1"]

    def planned(self) -> list[m.RunnerPlanned]:
        return [event for event in self.plan.decisions if isinstance(event, m.RunnerPlanned)]

    def at_rest(self) -> bool:
        """No machine, no registration, no hold is left."""
        held = any(account.held for account in self.world.funds.values())
        return not self.cloud.machines and not self.registered and not held
