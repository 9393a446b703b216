"""Simulated time: a heap of future facts, and the real `evolve`, `plan` and `pending` at each tick.

A tick takes in every fact up to its time, as the daemon reads a batch, then plans. Two ticks are at least
`TICK_MS` apart, so that a burst costs one plan. Facts that no job waits for, and deadlines of records, do not make
a tick of their own before the next full `LATER_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import msgspec

from autoscaler.backtest import tally as t
from autoscaler.backtest.hub import Hub
from autoscaler.backtest.machines import NEVER, Machine, Machines
from autoscaler.backtest.recording import NO_FACTS, Recording
from autoscaler.backtest.tally import Tally
from autoscaler.backtest.world_model import WorldModel
from autoscaler.sandbox.machines import AccessSaid, GivenJob, admission
from scheduling import ledger
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.job_facts import LONGEST_QUEUE_MS
from scheduling.lifecycle import JobState, RunnerState
from scheduling.matching import matcher
from scheduling.model import DurationMs, Offer, RunFacts, UnixMs
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import Fund, Policy
from scheduling.world import Key, World

FLEET = "backtest"
TICK_MS: DurationMs = 1_000
LATER_MS: DurationMs = 5_000
AFTER_MS: DurationMs = 12 * 3_600_000
"""After the last recorded event; what still waits then is counted as waiting."""
REFUSAL_MS: DurationMs = 3_000
"""From a job's start to the end that admission makes of it."""
ASSUMED = RunFacts(event="push", fork=False)
"""Of a run that the recording tells nothing about."""

_QUEUED, _RUNNING, _OVER = 1, 2, 3


class Driver:
    """One recording through one policy."""

    def __init__(
        self,
        recording: Recording,
        policy: Policy,
        offers: Mapping[str, Sequence[Offer]],
        model: WorldModel,
        seed: int = 0,
    ) -> None:
        self.recording, self.policy, self.model = recording, policy, model
        self.world = World(FLEET)
        self.tally = Tally(recording.first_ms, recording.last_ms, len(recording))
        self.hub = Hub()
        self.machines = Machines(self.world, model, self.hub, self.at, self.tell, self._job_began, self._job_ended)
        self.machines.use(policy)
        self.assumed_facts = 0
        self._heap: list[tuple[UnixMs, int, Callable[[UnixMs, Any], None], Any]] = []
        self._count = 0
        self._inbox: list[m.Event] = []
        self._urgent: list[UnixMs] = []  # heap: when something happens that a job waits for
        self._row = self._oldest = 0
        self._state = bytearray(len(recording))
        self._open = 0  # jobs that some runner type could serve and that have not ended
        self._cancelled: dict[int, Machine] = {}  # running rows that the recording cancels
        self._facts: dict[tuple[str, int], int] = {}
        self._admitted: dict[tuple[str, int, int], bool] = {}
        self._asked: set[m.FetchRun] = set()
        self.folded = [
            frozenset(label.casefold() for label in labels) for labels in recording.tables.get("labels", ())
        ]
        self._ours = [matcher(policy).is_ours(labels) for labels in recording.tables.get("labels", ())]
        self._routable = [bool(matcher(policy).types(tuple(sorted(labels)))) for labels in self.folded]
        self._live_bucket = -1
        self._offer_numbers: dict[str, int] = {}
        self._fund_numbers = {"": 0}
        self._begin(offers, seed)

    def at(self, at_ms: UnixMs, act: Callable[[UnixMs, Any], None], what: Any, urgent: bool = False) -> None:
        """Call `act(at_ms, what)` at that time. Urgent: a job may wait for it."""
        self._count += 1
        heappush(self._heap, (at_ms, self._count, act, what))
        if urgent:
            heappush(self._urgent, at_ms)

    def tell(self, event: m.Event) -> None:
        """A fact for the core: it sees it with the next tick."""
        self._inbox.append(event)

    def _begin(self, offers: Mapping[str, Sequence[Offer]], seed: int) -> None:
        now_ms = self.recording.first_ms
        self.tell(m.LeadershipTaken(now_ms, (), f"backtest/{seed}"))
        self.tell(m.PolicyActivated(now_ms, self.policy.hash, self.policy.fair_share.half_life_ms))
        for name, sold in offers.items():
            self.tell(m.OffersListed(now_ms, name, self.model.priced(sold)))
        for fund in self.policy.funds.values():
            self.tell(opened(fund, now_ms))

    # ---- time ----------------------------------------------------------------------------------------------

    def run(self, told: Callable[[float], None] = lambda share: None) -> Tally:
        """Until nothing is left to do, or `AFTER_MS` after the last event. `told` hears the share that is done."""
        recording, world, policy = self.recording, self.world, self.policy
        now_ms = due_ms = recording.first_ms
        end_ms, ticks, changed = recording.last_ms + AFTER_MS, 0, set[Key]()
        while due_ms <= end_ms:
            now_ms = due_ms
            self._take_in(now_ms)
            inbox, self._inbox = self._inbox, []
            for event in inbox:
                evolve(world, event, now_ms, changed)
            changed.clear()
            planned = plan(world, policy, now_ms)
            for decision in planned.decisions:
                if type(decision) is m.RunnerSettled:
                    self._settled(decision)
            commands = pending(world, now_ms)
            for command in commands.due:
                if type(command) is m.FetchRun:
                    self._fetch(command, now_ms)
                else:
                    self.machines.perform(command, now_ms)
            self._look(now_ms)
            if self._at_rest():
                break
            due_ms = self._next_ms(now_ms, planned.next_wake_ms, commands.next_ms)
            ticks += 1
            if not ticks % 500:
                told(self._row / len(recording))
        self._close(now_ms)
        return self.tally

    def _take_in(self, now_ms: UnixMs) -> None:
        """Everything that happens up to now, in the order of time."""
        heap, announced, rows = self._heap, self.recording.announced, len(self.recording)
        while True:
            row_ms = announced[self._row] if self._row < rows else now_ms + 1
            if heap and heap[0][0] <= row_ms:
                if heap[0][0] > now_ms:
                    break
                at_ms, _, act, what = heappop(heap)
                act(at_ms, what)
            elif row_ms <= now_ms:
                self._queue(row_ms, self._row)
                self._row += 1
            else:
                break
        while self._oldest < self._row and announced[self._oldest] + LONGEST_QUEUE_MS <= now_ms:
            if self._state[self._oldest] == _QUEUED:
                self._not_run(now_ms, self._oldest, "failure", t.LOST)
            self._oldest += 1

    def _next_ms(self, now_ms: UnixMs, wake_ms: UnixMs, retry_ms: UnixMs) -> UnixMs:
        """When the next tick is due."""
        urgent, heap = self._urgent, self._heap
        while urgent and urgent[0] <= now_ms:
            heappop(urgent)
        soon = urgent[0] if urgent else NEVER
        if self._row < len(self.recording):
            soon = min(soon, self.recording.announced[self._row])
        later = min(heap[0][0] if heap else NEVER, wake_ms or NEVER, retry_ms or NEVER)
        return max(now_ms + TICK_MS, min(soon, -(-later // LATER_MS) * LATER_MS))

    def _at_rest(self) -> bool:
        return (
            self._row == len(self.recording)
            and not self._open
            and not self._inbox
            and self.world.live_count("") == len(self.world.by_state[RunnerState.READY])
        )

    # ---- jobs ----------------------------------------------------------------------------------------------

    def _report(
        self, at_ms: UnixMs, row: int, state: JobState, runner_name: str = "", conclusion: str = ""
    ) -> None:
        recording, tables = self.recording, self.recording.tables
        new = state is JobState.QUEUED
        self.tell(
            m.JobReported(
                at_ms,
                state,
                recording.job_id[row],
                recording.run_id[row],
                recording.attempt[row],
                tables["repository"][recording.repository[row]],
                tables["labels"][recording.labels[row]] if new else (),
                tables["name"][recording.name[row]] if new else "",
                tables["workflow"][recording.workflow[row]] if new else "",
                tables["branch"][recording.branch[row]] if new else "",
                conclusion,
                runner_name,
                recording.queued[row] if new else 0,
            )
        )

    def _queue(self, now_ms: UnixMs, row: int) -> None:
        recording, labels = self.recording, self.recording.labels[row]
        if not self._ours[labels]:
            self.tally.fate[row] = t.FOREIGN
            return
        self._state[row] = _QUEUED
        if self._routable[labels]:
            self._open += 1
            self.tally.fate[row] = t.WAITING
        else:
            self.tally.fate[row] = t.UNROUTABLE
        repository = recording.tables["repository"][recording.repository[row]]
        self._facts[repository, recording.run_id[row]] = recording.facts[row]
        if recording.cancelled[row]:
            self.at(recording.cancelled[row], self._cancel, row)
        self._report(now_ms, row, JobState.QUEUED)
        registration = self.hub.queue(row, repository, self.folded[labels])
        if registration is not None:
            self.machines.start(now_ms, row, self.machines.alive[registration.runner_id])

    def _cancel(self, now_ms: UnixMs, row: int) -> None:
        """As recorded, whether it waits or runs by now."""
        if self._state[row] == _QUEUED:
            self.hub.cancel(row)
            self._not_run(now_ms, row, "cancelled", t.CANCELLED)
        elif machine := self._cancelled.pop(row, None):
            self._over(now_ms, (machine, "cancelled"))

    def _not_run(self, now_ms: UnixMs, row: int, conclusion: str, fate: int) -> None:
        self._state[row] = _OVER
        if self._routable[self.recording.labels[row]]:
            self._open -= 1
            self.tally.fate[row] = fate
        elif fate == t.CANCELLED:
            self.tally.fate[row] = fate
        if fate == t.LOST:
            self.hub.cancel(row)
        self._report(now_ms, row, JobState.COMPLETED, conclusion=conclusion)

    def _job_began(self, now_ms: UnixMs, row: int, machine: Machine) -> None:
        recording, registration = self.recording, machine.registration
        self._state[row] = _RUNNING
        self._report(now_ms, row, JobState.IN_PROGRESS, f"{FLEET}-{machine.runner_id}")
        planned_ms = self.world.runners[machine.runner_id].planned_ms
        online_ms = registration.online_ms if registration else now_ms
        marks = (planned_ms, machine.created_ms, machine.booted_ms, online_ms)
        self.tally.began(row, now_ms, recording.queued[row], marks)
        if self._refused(row, machine):
            self.at(now_ms + REFUSAL_MS, self._over, (machine, "refused"))
        elif recording.cancelled[row]:
            self._cancelled[row] = machine
        else:
            conclusion = recording.tables["conclusion"][recording.conclusion[row]] or "success"
            self.at(now_ms + recording.duration[row], self._over, (machine, conclusion))

    def _refused(self, row: int, machine: Machine) -> bool:
        """Admission at job start: GitHub gives a runner any job with its labels, the machine knows its access."""
        recording = self.recording
        access = self.world.runners[machine.runner_id].terms.access
        key = (access, recording.repository[row], recording.facts[row])
        found = self._admitted.get(key)
        if found is None:
            facts = recording.tables["facts"][recording.facts[row]] or ASSUMED
            repository = recording.tables["repository"][recording.repository[row]]
            job = GivenJob(0, 0, repository, "", facts.event, facts.fork, 0)
            found = self._admitted[key] = not admission(msgspec.json.decode(access, type=AccessSaid), job)
        return not found

    def _over(self, now_ms: UnixMs, what: tuple[Machine, str]) -> None:
        machine, conclusion = what
        if not machine.ended_ms and now_ms < machine.gone_ms:
            self.machines.finish(now_ms, machine, conclusion)

    def _job_ended(self, now_ms: UnixMs, machine: Machine, conclusion: str) -> None:
        row = machine.row
        self._state[row] = _OVER
        self._open -= 1
        self.tally.fate[row] = t.CANCELLED if conclusion == "cancelled" else t.COMPLETED
        if conclusion == "interrupted":
            self.tally.interrupted += 1
            conclusion = "failure"
        elif conclusion == "refused":
            self.tally.fate[row] = t.LOST
            self.tally.admission += 1
            conclusion = "failure"
        self._report(now_ms, row, JobState.COMPLETED, f"{FLEET}-{machine.runner_id}", conclusion)

    # ---- GitHub's answers ----------------------------------------------------------------------------------

    def _fetch(self, command: m.FetchRun, now_ms: UnixMs) -> None:
        if command not in self._asked:
            self._asked.add(command)
            self.at(now_ms + self.model.pace.github_ms, self._fetched, command, urgent=True)

    def _fetched(self, now_ms: UnixMs, command: m.FetchRun) -> None:
        self._asked.discard(command)
        number = self._facts.get((command.repository, command.run_id), NO_FACTS)
        facts = self.recording.tables["facts"][number] if number else ASSUMED
        self.assumed_facts += not number
        self.tell(m.RunFactsLearned(now_ms, command.repository, command.run_id, facts))

    # ---- what is kept --------------------------------------------------------------------------------------

    def _settled(self, event: m.RunnerSettled) -> None:
        runner, machine, tally = (
            self.world.runners[event.runner_id],
            self.machines.forget(event.runner_id),
            self.tally,
        )
        fund, cost = runner.fund, sum(amount for _, _, amount in event.parts)
        parts = tuple((name, amount) for name, _, amount in event.parts)
        tally.paid(event.at_ms, runner.offer.provider, cost, parts)
        if machine is None:
            return
        row, key = machine.row, f"{runner.offer.provider}/{runner.offer.instance_type}/{runner.offer.purchase}"
        if row < 0:
            tally.unused[key, fund] += cost
            return
        start_ms, end_ms = ledger.lifetime(runner)
        number = self._offer_numbers.get(key)
        if number is None:
            number = self._offer_numbers[key] = len(tally.offers)
            tally.offers.append(key)
            tally.offer_provider.append(runner.offer.provider)
        tally.offer[row] = number
        if fund not in self._fund_numbers:
            self._fund_numbers[fund] = len(tally.funds)
            tally.funds.append(fund)
        tally.fund[row] = self._fund_numbers[fund]
        tally.price[row], tally.cost[row] = runner.price, cost
        tally.life[row] = end_ms - start_ms
        tally.before[row] = max(0, machine.started_ms - start_ms)
        tally.ran[row] = machine.ended_ms - machine.started_ms

    def _look(self, now_ms: UnixMs) -> None:
        """The live runners of each type, once a bucket."""
        bucket = self.tally.bucket(now_ms)
        if bucket != self._live_bucket:
            self._live_bucket = bucket
            found = {k.removeprefix("type:"): v for k, v in self.world.live.items() if k.startswith("type:")}
            live = self.tally.live
            live += [live[-1] if live else {}] * (bucket - len(live)) + [found]

    def _close(self, now_ms: UnixMs) -> None:
        """Machines that are up at the end are paid until then."""
        self.tally.end_ms = now_ms
        for runner in self.world.runners.values():
            machine = self.machines.alive.get(runner.id)
            if machine is None or runner.state is RunnerState.GONE:
                continue
            cost = ledger.price_of(runner.price, min(machine.gone_ms, now_ms) - runner.planned_ms)
            self.tally.paid(now_ms, runner.offer.provider, cost, ((runner.fund, cost),) if runner.fund else ())
            self.tally.unused[
                f"{runner.offer.provider}/{runner.offer.instance_type}/{runner.offer.purchase}", runner.fund
            ] += cost


def opened(fund: Fund, now_ms: UnixMs) -> m.FundSpentStated:
    """Every fund opens with the spend that the policy states, however old; cash only of the same month."""
    period = ledger.period(fund, now_ms)
    spent = fund.spent or 0
    if fund.cash and ledger.month(fund.spent_as_of_ms) != period:
        spent = 0
    return m.FundSpentStated(now_ms, fund.name, period, spent, now_ms, "policy file, for the backtest")
