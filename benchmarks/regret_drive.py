"""Runs a month through the real `evolve`, `plan` and `pending` in simulated time: a heap, a cloud and a GitHub
of a few lines each. Holds, caps, cooldowns, fair share and the planner's bids are the product's own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log

from benchmarks.regret_month import BOOT_MS, DAY_MS, END, START, Month, SimJob
from scheduling import demand, learning, ledger
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState, RunnerState
from scheduling.model import MicroUSD, Runner, UnixMs
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import Policy
from scheduling.world import World, job_key

Planner = Callable[[World, Policy, UnixMs], m.FundsValued]

GRID_MS = 5_000
"""Facts are told this often, as a loop that reads in batches would."""
OFFERS_MS = 600_000
GIVE_UP_MS = END + 3 * DAY_MS


@dataclass(slots=True)
class Outcome:
    """What one strategy made of a month. Money in micro-dollars; `waits_ms` from queued to started, sorted."""

    cash: MicroUSD
    credit: MicroUSD
    waits_ms: list[int]
    unfinished: int = 0
    overrun: MicroUSD = 0
    left: dict[str, MicroUSD] = field(default_factory=dict)  # of each credit when its runners had settled
    held: dict[str, MicroUSD] = field(default_factory=dict)  # of `left`: what lay in holds at its end

    def wait_ms(self, share: float) -> int:
        return self.waits_ms[min(len(self.waits_ms) - 1, int(share * len(self.waits_ms)))] if self.waits_ms else 0


class Drive:
    """One month with the product. `planner` None: the simple order."""

    def __init__(self, month: Month, planner: Planner | None, every_ms: int = 8 * 3_600_000) -> None:
        self.month, self.policy, self.planner, self.every_ms = month, month.policy, planner, every_ms
        self.world = World("bench")
        self.heap: list[tuple[UnixMs, int, Callable[[], None]]] = []
        self.number = 0
        self.now = START
        self.news: list[m.Event] = []
        self.begun: set[tuple[type, str]] = set()
        self.jobs = {job_key(job.job_id, 1): job for job in month.jobs}
        self.idle: dict[tuple[str, str], deque[str]] = defaultdict(deque)  # (repository, label) -> runner ids
        self.waiting: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        self.started: dict[str, UnixMs] = {}
        self.held: dict[str, MicroUSD] = {}

    def at(self, when: UnixMs, do: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.heap, (-(-when // GRID_MS) * GRID_MS, self.number, do))

    def tell(self, *events: m.Event) -> None:
        self.news += events

    def later(self, delay_ms: int, *events: m.Event) -> None:
        self.at(self.now + delay_ms, lambda: self.tell(*events))

    def run(self) -> Outcome:
        self._begin()
        wake = START
        while self.heap:
            self.now = max(self.now, min(self.heap[0][0], wake or self.heap[0][0]))
            if self.now > GIVE_UP_MS or (len(self.started) == len(self.jobs) and not self.world.live_count("")):
                break
            while self.heap and self.heap[0][0] <= self.now:
                heapq.heappop(self.heap)[2]()
            news, self.news = self.news, []
            for event in news:
                evolve(self.world, event, self.now)
            wake = plan(self.world, self.policy, self.now).next_wake_ms
            commands = pending(self.world, self.now)
            for command in commands.due:
                self._perform(command)
            wake = min((t for t in (wake, commands.next_ms) if t > self.now), default=0)
        return self._outcome()

    def _begin(self) -> None:
        self.tell(m.LeadershipTaken(START, (), self.month.name), m.PolicyActivated(START, self.policy.hash))
        for job in self.month.history:
            _remember(self.world, job)
        for since, _ in self.month.offers_at:
            self.at(since, self._list_offers)
        for job in self.month.jobs:
            self.at(job.queued_ms, lambda job=job: self._queue(job))  # type: ignore[misc]
        for fund in self.policy.funds.values():
            if fund.until_ms:
                self.at(fund.until_ms, lambda name=fund.name: self._close(name))  # type: ignore[misc]
        if self.planner:
            self.at(START, self._value)

    def _list_offers(self) -> None:
        offers = next(o for since, o in reversed(self.month.offers_at) if since <= self.now)
        for name in self.policy.providers:
            self.tell(m.OffersListed(self.now, name, tuple(offer for offer in offers if offer.provider == name)))
        if self.now > START and self.planner:
            self.at(self.now + GRID_MS, lambda: self._value(again=False))

    def _value(self, again: bool = True) -> None:
        assert self.planner
        if self.now > START:
            self.tell(self.planner(self.world, self.policy, self.now))
        else:  # offers and funds are known after the first tick
            self.at(START + GRID_MS, lambda: self._value(again=False))
        if again and self.now < END:
            self.at(self.now + self.every_ms, self._value)

    def _close(self, name: str) -> None:
        """A fund has ended: what its holds still keep."""
        account = self.world.funds.get(name)
        self.held[name] = sum(account.held.values()) if account else 0

    # ---- GitHub -------------------------------------------------------------------------------------------------

    def _report(self, job: SimJob, state: JobState, runner_id: str = "") -> m.JobReported:
        return m.JobReported(
            self.now, state, job.job_id, job.job_id, 1, job.repository, (job.runner_type,), name=job.runner_type,
            conclusion="success" if state is JobState.COMPLETED else "",
            runner_name=f"bench-{runner_id}" if runner_id else "", created_ms=job.queued_ms,
        )  # fmt: skip

    def _queue(self, job: SimJob) -> None:
        self.tell(self._report(job, JobState.QUEUED))
        place = (job.repository, job.runner_type)
        self.waiting[place].append(job_key(job.job_id, 1))
        self._match(place)

    def _match(self, place: tuple[str, str]) -> None:
        """GitHub gives the oldest job to a runner that is online."""
        idle, waiting = self.idle[place], self.waiting[place]
        while idle and waiting:
            runner_id, key = idle.popleft(), waiting.popleft()
            if self.world.runners[runner_id].state not in (RunnerState.IDLE, RunnerState.REGISTERING):
                waiting.appendleft(key)
                continue
            job = self.jobs[key]
            self.started[key] = self.now
            self.tell(self._report(job, JobState.IN_PROGRESS, runner_id))
            self.at(self.now + job.lasts_ms, lambda r=runner_id, j=job: self._end(j, r))  # type: ignore[misc]

    def _end(self, job: SimJob, runner_id: str) -> None:
        self.tell(self._report(job, JobState.COMPLETED, runner_id))

    # ---- clouds -------------------------------------------------------------------------------------------------

    def _perform(self, command: m.Command) -> None:
        if isinstance(command, m.FetchRun | m.RerunJob):
            raise AssertionError("these types let every run in")
        mark = (type(command), command.runner_id)
        if mark in self.begun:
            return
        self.begun.add(mark)
        runner = self.world.runners[command.runner_id]
        name, now = runner.id, self.now
        match command:
            case m.CreateMachine():
                self._create(runner)
            case m.CreateJit():
                self.later(GRID_MS, m.JitStored(now, name, 1), m.StageReported(now, name, m.Stage.REGISTERED))
                self.at(now + GRID_MS, lambda: self._online(runner))
            case m.DeleteRegistration():
                self.later(GRID_MS, m.RegistrationDeleted(now, name))
            case m.StopMachine():
                self.later(GRID_MS, m.StopAccepted(now + GRID_MS, name))
                for wait in (20_000, 40_000):
                    self.later(wait, m.MachineAbsent(now + wait, name))

    def _create(self, runner: Runner) -> None:
        provider, name = runner.offer.provider, runner.id
        if self.month.is_out(provider, self.now):
            self.begun.discard((m.CreateMachine, name))
            self.later(GRID_MS, m.CreateFailed(self.now, name, m.Trouble.NO_CAPACITY, "no capacity"))
            self.begun.add((m.CreateMachine, name))
            return
        booted = self.now + BOOT_MS[provider]
        self.later(GRID_MS, m.MachineCreated(self.now, name, f"i-{name}"))
        self.later(BOOT_MS[provider], m.StageReported(booted, name, m.Stage.BOOTED))

    def _online(self, runner: Runner) -> None:
        place = (runner.repository, runner.runner_type)
        self.idle[place].append(runner.id)
        self.at(self.now + GRID_MS, lambda: self._match(place))

    # ---- the bill -----------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        cash = credit = overrun = 0
        left: dict[str, MicroUSD] = {}
        for name, account in self.world.funds.items():
            settled, fund = sum(account.settled.values()), self.policy.funds[name]
            overrun += ledger.overrun(fund, account)
            if fund.cash:
                cash += settled
            else:
                credit += settled
                left[name] = fund.limit - settled
        held = {name: min(amount, left.get(name, 0)) for name, amount in self.held.items()}
        waits = sorted(at - self.jobs[key].queued_ms for key, at in self.started.items())
        return Outcome(cash, credit, waits, len(self.jobs) - len(waits), overrun, left, held)


def _remember(world: World, job: SimJob) -> None:
    """What the weeks before left in the records: demand and durations, by the product's own hands."""
    end = job.queued_ms + job.lasts_ms
    if end < START:
        demand.used(world, job.runner_type, job.queued_ms, end, end)
        keys = (f"repository/{job.repository}/{job.runner_type}", f"type/{job.runner_type}")
        for key in keys:
            learning._learn(world, key, log(job.lasts_ms), 0.0)
