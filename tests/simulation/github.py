"""GitHub: the stand-in's pure state, behind the methods of `autoscaler.github.client.GitHub`, with its faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from autoscaler.clock import Clock
from autoscaler.github.client import GitHubError, Jit, JitUnknown, NameTaken, Registration, RunnerBusy
from autoscaler.github.errors import RateLimited, transient
from autoscaler.sandbox import github_records as records
from autoscaler.sandbox.github_state import GitHubState, NameExists, StillRunning
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported, Trouble
from scheduling.model import RunFacts
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire

CANARY = "CANARY"
"""Marks every secret of the simulation, so that one look finds it where it must not be."""

STALE_MS = 60_000


class Truth(GitHubState):
    """GitHub's own records. `on_register` is told of each registration made, `on_rerun` of each re-run of ours."""

    def __init__(self, seed: int) -> None:
        patience = records.Patience(lost_ms=120_000, unused_ms=300_000)
        super().__init__(seed, patience)
        self.on_register: Callable[[records.Registration], None] = lambda registration: None
        self.on_rerun: Callable[[records.Job], None] = lambda job: None
        self._dice = random.Random(seed)

    def register(self, *args: Any, **named: Any) -> records.Registration:
        made = super().register(*args, **named)
        del self._configs[made.config]
        made.config = f"{CANARY}-{made.id}-{made.name}"
        self._configs[made.config] = made.id
        self.on_register(made)
        return made

    def named(self, prefix: str) -> list[records.Registration]:
        return [each for each in self.registrations.values() if each.name.startswith(prefix)]

    def vanish(self) -> bool:
        """GitHub forgets a registration on which no job runs."""
        idle = [each for each in self.registrations.values() if not each.job]
        if idle:
            self.remove(self._dice.choice(idle), idle[0].heard_ms)
        return bool(idle)


class GitHubClient:
    """One replica's client; `clock` is the replica's own, `true` is GitHub's."""

    def __init__(
        self, truth: Truth, true: Clock, clock: Clock, wire: Wire, weather: Weather, redeliver: Callable[[], int]
    ) -> None:
        self.truth, self.true, self.clock = truth, true, clock
        self.wire, self.weather, self._redeliver = wire, weather, redeliver
        self._runs: dict[int, RunFacts] = {}

    # ---- registrations -------------------------------------------------------------------------------------

    async def jit_turn(self, target: str) -> None:
        """There is always room."""

    async def create_jit(self, target: str, name: str, labels: Sequence[str]) -> Jit:
        strikes = self.weather.strikes

        def act() -> Jit:
            if strikes("github_409"):
                raise NameTaken(Trouble.TRANSIENT, "409: the name exists")
            try:
                made = self.truth.register(target, name, labels, self.true.now_ms())
            except NameExists:
                raise NameTaken(Trouble.TRANSIENT, "409: the name exists") from None
            if strikes("github_jit_answer_lost"):
                raise JitUnknown(Trouble.TRANSIENT, "no answer to the POST")
            if strikes("github_success_then_error"):
                raise transient("500 after the work was done")
            return Jit(made.id, made.config)

        return await self._ask(act, "jit")

    async def find_runner(self, target: str, name: str) -> Registration | None:
        found = [each for each in await self._listed(target) if each.name == name]
        return found[0] if found else None

    async def list_runners(self, target: str, prefix: str) -> list[Registration]:
        return [each for each in await self._listed(target) if each.name.startswith(prefix)]

    async def get_runner(self, target: str, registration_id: int) -> Registration | None:
        def act() -> Registration | None:
            found = self.truth.registrations.get(registration_id)
            return self._shown(found) if found else None

        return await self._ask(act)

    async def delete_runner(self, target: str, registration_id: int) -> None:
        strikes = self.weather.strikes

        def act() -> None:
            if strikes("github_422"):  # for a moment also of one that has just gone with its job
                raise RunnerBusy(Trouble.TRANSIENT, "422: a job runs on it")
            found = self.truth.registrations.get(registration_id)
            if found is None:
                return
            try:
                self.truth.unregister(found, self.true.now_ms())
            except StillRunning:
                raise RunnerBusy(Trouble.TRANSIENT, "422: a job runs on it") from None
            if strikes("github_success_then_error"):
                raise transient("500 after the work was done")

        await self._ask(act, "delete")

    async def _listed(self, target: str) -> list[Registration]:
        def act() -> list[Registration]:
            listed = self.truth.at(target)
            return [self._shown(each) for each in listed if not self.weather.strikes("github_omits")]

        return await self._ask(act)

    def _shown(self, found: records.Registration) -> Registration:
        busy = bool(found.job)
        if busy and self.true.now_ms() - self.truth.jobs[found.job].started_ms < STALE_MS:
            busy = not self.weather.strikes("github_stale_busy")
        elif not busy and self.weather.strikes("github_false_busy"):
            busy = True
        return Registration(found.id, found.name, found.online, busy, found.labels)

    # ---- runs and jobs -------------------------------------------------------------------------------------

    async def run_facts(self, repository: str, run_id: int) -> RunFacts | None:
        if run_id not in self._runs:
            run = await self._ask(lambda: self.truth.runs.get(run_id))
            if run is None:
                return None
            self._runs[run_id] = RunFacts(run.event, run.fork, "" if run.fork else run.ref)
        return self._runs[run_id]

    async def run_ended(self, repository: str, run_id: int) -> bool:
        def act() -> bool:
            run = self.truth.runs.get(run_id)
            return run is None or self.truth.run_status(run) == "completed"

        return await self._ask(act)

    async def job(self, repository: str, job_id: int) -> JobReported | None:
        def act() -> JobReported | None:
            found = self.truth.jobs.get(job_id)
            return self._reported(found) if found else None

        return await self._ask(act)

    async def rerun_job(
        self, repository: str, run_id: int, attempt: int, job_id: int, name: str, ended_ms: int
    ) -> bool:
        def act() -> bool:
            run = self.truth.runs[run_id]
            later = [self.truth.jobs[each] for each in run.jobs if each > job_id]
            if any(job.name == name and job.queued_ms > ended_ms for job in later):
                return True
            if self.truth.run_status(run) != "completed":
                return False
            self.truth.on_rerun(self.truth.jobs[job_id])
            self.truth.rerun(job_id, self.true.now_ms())
            if strikes("github_success_then_error"):
                raise transient("500 after the work was done")
            return True

        strikes = self.weather.strikes
        return await self._ask(act)

    async def queued_jobs(self, repository: str) -> list[JobReported]:
        def act() -> list[JobReported]:
            runs = self.truth.open_runs.get(repository.casefold(), {}).values()
            jobs = [self.truth.jobs[job_id] for run in runs for job_id in run.jobs]
            return [self._reported(job) for job in jobs if job.state in ("queued", "in_progress")]

        return await self._ask(act)

    async def repositories(self) -> list[str]:
        return await self._ask(lambda: sorted({run.repository for run in self.truth.runs.values()}))

    async def redeliver_failed(self, since_ms: int) -> int:
        return await self._ask(self._redeliver)

    def budgets(self) -> list[Any]:
        return []

    def _reported(self, job: records.Job) -> JobReported:
        begun = job.state in ("in_progress", "completed")
        return JobReported(
            at_ms=self.clock.now_ms(),
            state=JobState(job.state),
            job_id=job.id,
            run_id=job.run_id,
            run_attempt=job.attempt,
            repository=job.repository,
            labels=job.labels,
            name=job.name,
            conclusion=job.conclusion,
            runner_name=job.runner_name,
            created_ms=job.queued_ms,
            started_ms=job.started_ms if begun else 0,
            completed_ms=job.completed_ms,
        )

    # ---- the wire ------------------------------------------------------------------------------------------

    async def _ask(self, act: Callable[[], Any], effect: str = "") -> Any:
        dice, strikes = self.wire.dice, self.weather.strikes
        out_s, back_s = 0.02 + 0.2 * dice.random(), 0.02 + 0.2 * dice.random()

        def served() -> Any:
            if strikes("github_5xx"):
                raise transient("502 Bad Gateway")
            if strikes("github_limit"):
                raise RateLimited("403 secondary rate limit", 60_000, secondary=True)
            if strikes("github_retry_after"):
                raise RateLimited("429 retry later", 15_000, secondary=True)
            if strikes("github_token"):
                raise GitHubError(Trouble.UNAUTHORIZED, "401 bad credentials", 60_000)
            return act()

        if effect:
            return await self.wire.effect(effect, served, out_s, back_s)
        return await self.wire.call(served, out_s, back_s)
