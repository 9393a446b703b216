"""The promises of README.md, asserted from the outside world's truth and from every commit.

Safety is judged at each commit, append, registration, config, terminate call and job start; liveness at rest.
The ledger is computed again from runner records and settlements; it does not trust the fund records.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoscaler.sandbox import github_records as records
from autoscaler.store import codec
from scheduling.lifecycle import SUPPLY, GoneReason, JobState, RunnerState
from scheduling.model import FundAccount, Job, Runner
from scheduling.policy import Forks, RunnerType, matches
from tests.simulation.github import CANARY
from tests.simulation.looks import Looks
from tests.simulation.outside import ENDED, Outside
from tests.simulation.redis_server import Commit

if TYPE_CHECKING:
    from tests.simulation.world import SimWorld

SECRET = CANARY.encode()
Ledger = dict[tuple[str, str], int]


class Checker(Outside, Looks):
    """Hears everything of one schedule."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.violations: list[str] = []
        self.rows: Counter[str] = Counter()
        self.story: list[str] = []
        self.listening = False
        self.fleet = world.fleet.name
        self.jobs: dict[str, Job] = {}
        self.tombstones: set[str] = set()
        self.runners: dict[str, Runner] = {}
        self.funds: dict[str, FundAccount] = {}
        self.settled: Ledger = defaultdict(int)
        self.launched: set[str] = set()
        self.used: set[str] = set()  # names of runners on which GitHub started a job
        self.configs: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.fence = ""
        self.lost_ms = 0  # when the store last fell back
        self.looks = 0
        self.doubled_s: dict[str, float] = {}  # runner with several machines -> since when they should be fewer
        server, truth = world.server, world.truth
        server.on_commit, server.on_append, server.on_lease = self.commit, self.appended, self.leased
        truth.on_register = self.registered
        truth.on_rerun = self.rerun
        self.rerun_jobs: set[int] = set()

    def fail(self, promise: str, text: str) -> None:
        self.violations.append(f"{promise}: {text} (at {self.world.loop.now:.1f} s)")
        self.tell(f"VIOLATION {promise}: {text}")

    # ---- Redis ---------------------------------------------------------------------------------------------

    def leased(self, n: int) -> None:
        self.fence = f"{self.world.server.run_id}/{n}/"

    def appended(self, events: Sequence[bytes]) -> None:
        for raw in events:
            if SECRET in raw:
                self.fail("I11", f"an event holds a secret: {raw[:100]!r}")
            if self.listening:
                self.tell(f"inbox {raw.decode()}")

    def commit(self, commit: Commit, applied: bool) -> None:
        """One tick at the server, the instant it is applied or refused."""
        if not applied:
            self.tell(f"commit under fence {commit.n} is refused")
            return
        if not commit.lease.startswith(self.fence):
            self.fail("I8", f"a commit under {commit.lease} was applied after {self.fence} was granted")
        planned, settled = self._journal(commit.journal)
        launched_at: set[str] = set()
        touched = False
        for key, name, raw in commit.puts:
            if SECRET in raw:
                self.fail("I11", f"record {key} {name} holds a secret")
            match key.rpartition(":")[2]:
                case "job":
                    self._job(name, raw)
                case "tombstone":
                    (self.tombstones.add if raw else self.tombstones.discard)(name)
                case "runner":
                    launched_at |= self._runner(name, raw)
                case "fund":
                    touched = True
                    self.funds[name] = codec.decode_record("fund", raw)
        for fund, period, amount in settled:
            self.settled[fund, period] += amount
        if touched:
            self._ledger(planned)
        if launched_at:
            self._launches(launched_at)

    def _journal(self, lines: Sequence[bytes]) -> tuple[set[tuple[str, str]], list[tuple[str, str, int]]]:
        """What this tick's launches held of which fund, and what it settled."""
        planned: set[tuple[str, str]] = set()
        settled: list[tuple[str, str, int]] = []
        for raw in lines:
            if SECRET in raw:
                self.fail("I11", f"the journal holds a secret: {raw[:100]!r}")
            if raw.startswith(b'{"event":"RunnerPlanned"'):
                body = codec.decode_json(raw)["body"]
                planned |= {(part["fund"], part["period"]) for part in body["hold"]}
                self.launched.add(body["runner_id"])
            elif raw.startswith(b'{"event":"ReapDecided"'):
                self._reaped(codec.decode_json(raw)["body"])
            elif raw.startswith(b'{"event":"RunnerSettled"'):
                body = codec.decode_json(raw)["body"]
                settled += [(fund, period, amount) for fund, period, amount in body["parts"]]
        return planned, settled

    def _reaped(self, body: dict[str, Any]) -> None:
        """I6: an idle runner goes only when two looks, apart, found it so."""
        runner = self.runners.get(body["runner_id"])
        if body["reason"] == GoneReason.IDLE and (runner is None or not runner.suspect_ms):
            self.fail("I6", f"runner {body['runner_id']} is reaped as idle after a single look")

    def _job(self, name: str, raw: bytes) -> None:
        old = self.jobs.get(name)
        if not raw:
            self.jobs.pop(name, None)
            return
        job: Job = codec.decode_record("job", raw)
        if old is not None and old.state is JobState.COMPLETED and job.state is not JobState.COMPLETED:
            self.fail("I7", f"job {name} came back to life as {job.state}")
        if old is None and name in self.tombstones:
            self.fail("I7", f"job {name} came back from its tombstone")
        if self.listening and (
            old is None or (old.state, old.pool, old.blocked) != (job.state, job.pool, job.blocked)
        ):
            self.tell(f"job {name} is {job.state}, pool {job.pool or '-'} {job.blocked}, runner {job.runner_name}")
        if job.pool and (old is None or old.pool != job.pool):
            self._routed(job)
        self.jobs[name] = job

    def _routed(self, job: Job) -> None:
        """I10, where a job is given a pool."""
        run = self.world.truth.runs[job.run_id]
        rtype = self.world.policy.runner_types.get(job.runner_type)
        if rtype is not None and job.state is JobState.QUEUED and self._refused(rtype, job.repository, run.fork):
            self.fail(
                "I10", f"job {job.key} of {job.repository} was given to {rtype.name}, whose access refuses it"
            )

    @staticmethod
    def _refused(rtype: RunnerType, repository: str, fork: bool) -> bool:
        access = rtype.access
        wrong = (access.forks is Forks.DENY and fork) or (access.forks is Forks.ONLY and not fork)
        return wrong or not matches(access.repositories, repository)

    def _runner(self, name: str, raw: bytes) -> set[str]:
        """The provider of a new launch."""
        old = self.runners.get(name)
        if not raw:
            self.runners.pop(name, None)
            return set()
        runner: Runner = codec.decode_record("runner", raw)
        self.runners[name] = runner
        if old is not None and old.state is RunnerState.GONE and runner.state is not RunnerState.GONE:
            self.fail("I7", f"runner {name} came back to life as {runner.state}")
        if old is None or old.state is not runner.state:
            self._entered(runner)
            if self.listening:
                self.tell(
                    f"runner {name} is {runner.state}, pool {runner.pool or '-'}, ref {runner.ref or '-'}, "
                    f"registration {runner.registration_id or '-'}, job {runner.running or '-'} "
                    f"{runner.reason or ''} {runner.detail}"
                )
        return {runner.offer.provider} if old is None and not runner.adopted else set()

    def _entered(self, runner: Runner) -> None:
        if runner.state is RunnerState.UNKNOWN:
            self.rows["inside create, outcome unknown"] += 1
        if runner.state is RunnerState.GONE:
            self._left(runner)
        if runner.state is RunnerState.LEAVING and runner.reason is GoneReason.REGISTER_TIMEOUT:
            self.rows["JIT given, never registered"] += 1

    def rerun(self, job: records.Job) -> None:
        """I13: only a failed job, once, of a repository that a rule names, whose machine its account took."""
        self.world.weather.hits["rerun"] += 1
        runner_id = job.runner_name.removeprefix(f"{self.fleet}-")
        machines = [cloud.machine_of(runner_id) for cloud in self.world.clouds.values()]
        taken = any(each is not None and each.taken(self.world.clock.now_ms()) for each in machines)
        if not taken or job.conclusion != "failure" or job.id in self.rerun_jobs or job.repository != "acme/app":
            self.fail("I13", f"job {job.id} of {job.repository}, which is {job.conclusion}, is run again")
        self.rerun_jobs.add(job.id)

    def _left(self, runner: Runner) -> None:
        """I3: what is settled is proven absent. A machine that is still to appear counts as there."""
        cloud = self.world.clouds[runner.offer.provider]
        for machine in cloud.machines():
            if machine.spec.runner_id == runner.id:
                self.fail(
                    "I3", f"runner {runner.id} is gone ({runner.reason}) and its machine {machine.ref} is not"
                )

    def _ledger(self, planned: set[tuple[str, str]]) -> None:
        """I5, and that the fund records say what runners and settlements say."""
        held: Ledger = defaultdict(int)
        for runner in self.runners.values():
            if runner.state is not RunnerState.GONE:
                for part in runner.hold:
                    held[part.fund, part.period] += part.amount
        for name, account in self.funds.items():
            stated = {key[1]: amount for key, amount in held.items() if key[0] == name and amount}
            if account.held != stated:
                self.fail("I5", f"fund {name} holds {account.held}, its runners hold {stated}")
            booked = {key[1]: amount for key, amount in self.settled.items() if key[0] == name and amount}
            if {period: amount for period, amount in account.settled.items() if amount} != booked:
                self.fail("I5", f"fund {name} settled {account.settled}, its runners cost {booked}")
        for fund, period in planned:
            account = self.funds[fund]
            used = account.spent_before.get(period, 0) + self.settled[fund, period] + held[fund, period]
            limit = self.world.policy.funds[fund].limit
            if used > limit:
                self.fail("I5", f"a launch took fund {fund} to {used} of {limit}")

    def _launches(self, launched_at: set[str]) -> None:
        """I9: launches for demand D <= D + ready floor + runners that ended without a job.

        GitHub may give a runner another pool's job: what its own pool then has too much will end without one, and
        so will what was launched for a job whose start nobody reported, or while another provider's machines were
        not adopted yet. The provider's own must be: that is its gate. What no inventory could show, because the
        create call of a lost intent was on its way when the store fell back, is the stated residual risk.
        """
        demand = len(self.world.truth.jobs)
        existing = {
            machine.spec.runner_id: name
            for name, cloud in self.world.clouds.items()
            for machine in cloud.machines()
            if machine.from_ms < self.lost_ms
        }
        ended = 0
        for name in self.launched:
            runner = self.runners.get(name)
            if f"{self.fleet}-{name}" in self.used:
                continue
            if runner is None:
                ended += existing.get(name) not in launched_at
            elif runner.state in ENDED or runner.state is RunnerState.BUSY:
                ended += 1
        surplus = Counter(runner.pool for runner in self.runners.values() if runner.state in SUPPLY)
        surplus[""] -= self.world.scenario.floor
        surplus.subtract(Counter(job.pool for job in self.jobs.values() if job.state is JobState.QUEUED))
        ended += sum(count for count in surplus.values() if count > 0)
        truth = self.world.truth.jobs
        ended += sum(j.state is JobState.QUEUED and truth[j.job_id].state != "queued" for j in self.jobs.values())
        if len(self.launched) > demand + self.world.scenario.floor + ended:
            self.fail("I9", f"{len(self.launched)} launches for {demand} jobs, {ended} ended without one")

    def store_lost(self) -> None:
        """The server fell back to older data: the past is what it holds now."""
        self.tell("the store has lost data")
        self.lost_ms = self.world.clock.now_ms()
        data, prefix = self.world.server.data, "{" + self.fleet + "}:"

        def table(kind: str) -> dict[str, Any]:
            return {name: codec.decode_record(kind, raw) for name, raw in data.get(prefix + kind, {}).items()}

        self.jobs, self.runners, self.funds = table("job"), table("runner"), table("fund")
        self.tombstones = set(table("tombstone"))
        self.settled = defaultdict(int)
        for name, account in self.funds.items():
            for period, amount in account.settled.items():
                self.settled[name, period] = amount

    # ---- the end ---------------------------------------------------------------------------------------------

    def finish(self) -> None:
        self.pages()
        hits = self.world.weather.hits
        self.rows["before the webhook is stored"] += hits["webhook_lost"]
        self.rows["stored, before the 202"] += hits["kill_after_append"] + hits["redis_answer_lost"]
        self.rows["machine never boots"] += hits["cloud_boot_hang"]
        self.rows["JIT created, answer lost"] += hits["github_jit_answer_lost"]
        self.rows["terminate unknown"] += hits["cloud_stop_answer_lost"] + hits["kill_after_stop"]
        self.rows["Redis lost its tail or all"] += hits["redis_failover"] + hits["redis_wipe"]
        self.rows["replica paused past its lease"] += hits["pause"]

    # ---- the story -----------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        if self.listening:
            self.story.append(f"{self.world.loop.now:9.3f} {text}")

    def listen(self, everything: bool) -> logging.Handler:
        """Hear the replicas' warnings: an error is one of ours. `everything`: what they do, too, for the story."""
        self.listening = everything
        logging.disable(logging.NOTSET if everything else logging.INFO)
        handler = _Ear(self)
        handler.setLevel(logging.INFO if everything else logging.WARNING)
        logging.getLogger().addHandler(handler)
        return handler


class _Ear(logging.Handler):
    def __init__(self, checker: Checker) -> None:
        super().__init__()
        self._checker = checker

    def emit(self, record: logging.LogRecord) -> None:
        from tests.simulation.loop import PROCESS

        process = PROCESS.get()
        text = self.format(record)
        if "coroutine ignored GeneratorExit" in text:
            return  # the last words of a killed process, said only because Python frees its coroutines
        if CANARY in text:
            self._checker.fail("I11", f"a log line holds a secret: {text[:200]}")
        self._checker.tell(f"[{process.name if process else '-'}] {record.levelname} {text}")
        if record.levelno >= logging.ERROR:
            self._checker.fail("I12", f"an error was logged: {text[-600:]}")
