"""What GitHub has queued and running against what we know: for webhooks that were lost, and for `--poll`.

Three looks: failed deliveries are asked for again each minute; a sweep lists every repository as often as the API
budget allows; a job that nothing picks up, or whose runner is gone, is asked for by its id. They only emit facts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autoscaler.github.budget import Budget
from autoscaler.github.client import GitHubError
from scheduling import messages as m
from scheduling.lifecycle import JOB_RANK, JobState, RunnerState
from scheduling.matching import matcher
from scheduling.model import DurationMs, Job, UnixMs
from scheduling.policy import matches
from scheduling.world import job_key

if TYPE_CHECKING:
    from autoscaler.daemon import Daemon, Leader

log = logging.getLogger(__name__)

REDELIVERY_MS: DurationMs = 60_000
REDELIVERY_BACK_MS: DurationMs = 3_600_000
"""How far back a new leader looks for failed deliveries; what is older and still matters, the sweep finds."""
SWEEP_MS: DurationMs = 120_000
POLL_MS: DurationMs = 30_000
LONGEST_SWEEP_MS: DurationMs = 1_800_000
BUDGET_SHARE = 0.2
"""Part of GitHub's hourly requests that sweeps may use."""
STUCK_MS: DurationMs = 60_000
STUCK_AFTER_MS: DurationMs = 120_000
CHECK_AGAIN_MS: DurationMs = 300_000
CHECKS_A_ROUND = 20


class Sweep:
    """The looks of one leader."""

    def __init__(self, daemon: Daemon, leader: Leader) -> None:
        self.daemon, self.world = daemon, leader.world
        self.clock, self.github = daemon.clock, daemon.github
        self._ours = re.compile(rf"{re.escape(daemon.fleet.name)}-r[a-z0-9]{{20}}")
        self._redelivered_ms: UnixMs = 0
        self._swept_ms: UnixMs = 0
        self._gap_ms: DurationMs = 0

    async def emit(self, events: Sequence[m.Event]) -> None:
        if events:
            await self.daemon.store.append(events)

    # ---- failed deliveries ---------------------------------------------------------------------------------

    async def redeliver(self) -> None:
        """Ask GitHub to send again what failed since the last look."""
        if self.daemon.observe:
            return
        now_ms = self.clock.now_ms()
        since_ms = self._redelivered_ms or now_ms - REDELIVERY_BACK_MS
        count = await self.github.redeliver_failed(since_ms)
        self._redelivered_ms = now_ms - 10 * REDELIVERY_MS
        if count:
            log.info("asked GitHub to send %d failed deliveries again", count)

    # ---- whole repositories --------------------------------------------------------------------------------

    def gap_ms(self) -> DurationMs:
        """Between two sweeps: as often as useful, as rarely as the budget demands."""
        usual = POLL_MS if self.daemon.poll else SWEEP_MS
        return min(max(usual, self._gap_ms), LONGEST_SWEEP_MS)

    def age(self) -> None:
        """Tell the metric how old the last complete sweep is."""
        if self._swept_ms:
            self.daemon.metrics.sweep_age((self.clock.now_ms() - self._swept_ms) / 1000)

    async def sweep(self) -> None:
        """List every repository that the policy lets in (or that is polled)."""
        began_ms, before = self.clock.now_ms(), self._left()
        failed: GitHubError | None = None
        for repository in await self._repositories():
            try:
                await self._sweep(repository, began_ms)
            except GitHubError as error:  # one that cannot be listed must not hide the others
                log.warning("cannot sweep %s: %s", repository, error)
                failed = error
        if failed is not None:
            raise failed
        cost, hourly = max(0, before - self._left()), sum(budget.limit for budget in self._core())
        self._gap_ms = int(3_600_000 * cost / (BUDGET_SHARE * hourly)) if hourly else 0
        self._swept_ms = began_ms
        self.age()

    async def _sweep(self, repository: str, began_ms: UnixMs) -> None:
        listed = await self.github.queued_jobs(repository)
        await self.emit([job for job in listed if self._wanted(job)])
        await self._ask_missing(repository, {job_key(job.job_id, job.run_attempt) for job in listed}, began_ms)

    async def _repositories(self) -> Iterable[str]:
        if self.daemon.poll:
            return self.daemon.poll
        patterns = tuple(
            p for rtype in self.daemon.policy.runner_types.values() for p in rtype.access.repositories
        )
        return [name for name in await self.github.repositories() if matches(patterns, name)]

    def _core(self) -> list[Budget]:
        return [budget for budget in self.github.budgets() if budget.resource == "core"]

    def _left(self) -> int:
        return sum(budget.remaining for budget in self._core())

    def _wanted(self, job: m.JobReported) -> bool:
        """Whether a swept job is news. Running ones that we do not know matter where they are on our machines."""
        known = self.world.jobs.get(job_key(job.job_id, job.run_attempt))
        if known is not None:
            return JOB_RANK[job.state] > JOB_RANK[known.state]
        if job.state is JobState.IN_PROGRESS:
            return self._ours.fullmatch(job.runner_name) is not None
        return matcher(self.daemon.policy).is_ours(job.labels)

    async def _ask_missing(self, repository: str, listed: set[str], began_ms: UnixMs) -> None:
        """Jobs that we hold for unfinished and a list lacks are asked for by id: none is taken for ended."""
        open_jobs = (
            self.world.jobs[key]
            for (name, _), keys in list(self.world.runs.items())
            if name == repository
            for key in sorted(keys.keys() - listed)
        )
        missing = [job for job in open_jobs if job.seen_ms < began_ms - STUCK_MS and job.state in _OPEN]
        for job in sorted(missing, key=lambda job: job.checked_ms)[:CHECKS_A_ROUND]:
            await self._ask(job)

    async def _ask(self, job: Job) -> None:
        """Ask for one job. Still queued though its run is completed: GitHub will never give it to anybody."""
        now_ms = self.clock.now_ms()
        found = await self.github.job(job.repository, job.job_id)
        never = False
        if found is not None and found.state is JobState.QUEUED:
            never = await self.github.run_ended(job.repository, job.run_id)
        if found is None or never:
            attempt = int(job.key.rpartition(".")[2])
            found = m.JobReported(
                now_ms, JobState.COMPLETED, job.job_id, job.run_id, attempt, job.repository, job.labels,
                conclusion="stale" if never else "cancelled",
            )  # fmt: skip
        known = self.world.jobs.get(job.key)
        news = known is not None and found.state is not known.state
        await self.emit([found if news else m.JobChecked(now_ms, job.key)])

    # ---- single jobs ---------------------------------------------------------------------------------------

    async def stuck(self) -> None:
        """Ask about jobs that nothing picks up although a runner is idle, and runs whose runner is gone."""
        self.age()
        for key in self._stuck(self.clock.now_ms())[:CHECKS_A_ROUND]:
            if key in self.world.jobs:
                await self._ask(self.world.jobs[key])

    def _stuck(self, now_ms: UnixMs) -> list[str]:
        jobs, runners = self.world.jobs, self.world.runners
        old_ms, asked_ms = now_ms - STUCK_AFTER_MS, now_ms - CHECK_AGAIN_MS
        idle = (runners[key] for key in self.world.by_state[RunnerState.IDLE])
        pools = {runner.pool for runner in idle if runner.registered_ms < old_ms}
        waiting = (jobs[key] for pool in pools for key in self.world.queued.get(pool, ()))
        found = [job.key for job in waiting if job.queued_ms < old_ms and job.checked_ms < asked_ms]
        for state in (RunnerState.GONE, RunnerState.STOPPING, RunnerState.LEAVING):
            for key in self.world.by_state[state]:
                job = jobs.get(runners[key].running)
                if job is None or job.state is not JobState.IN_PROGRESS or runners[key].started_ms > old_ms:
                    continue
                if job.checked_ms < asked_ms:
                    found.append(job.key)
        return found


_OPEN = (JobState.WAITING, JobState.QUEUED, JobState.IN_PROGRESS)
