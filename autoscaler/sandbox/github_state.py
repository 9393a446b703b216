"""What the GitHub stand-in knows, and GitHub's rule of which runner gets which job. Pure: `now_ms` is an argument.

The rule: a queued job goes to an idle online runner that is registered for its repository, organisation or
group and has all of its labels, in any case; the oldest job first. Which runner was launched for which job does
not matter. See "Using self-hosted runners in a workflow", section "Routing precedence for self-hosted runners".
"""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterable, Sequence

from autoscaler.sandbox.github_records import (
    DEFAULT_GROUP,
    Group,
    Job,
    JobRequest,
    NameExists,
    Patience,
    Registration,
    Run,
    StillRunning,
    scope,
)
from scheduling.model import UnixMs


class GitHubState:
    """Runs, jobs, registrations and groups.

    `on_job(action, job)` is called for every event that GitHub sends a webhook for; `on_given(registration)` when
    a registration got a job to fetch or was removed.
    """

    def __init__(self, seed: int = 0, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self.runs: dict[int, Run] = {}
        self.jobs: dict[int, Job] = {}
        self.registrations: dict[int, Registration] = {}
        self.groups: dict[int, Group] = {}
        self.on_job: Callable[[str, Job], None] = lambda action, job: None
        self.on_given: Callable[[Registration], None] = lambda registration: None
        self.open_runs: dict[str, dict[int, Run]] = {}
        self._queue: dict[int, Job] = {}
        self._running: dict[int, Job] = {}
        self._random = random.Random(seed)
        self._configs: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._finished: dict[str, str] = {}  # session -> conclusion
        self._run_ids = itertools.count(9_000_000_001)
        self._job_ids = itertools.count(25_000_000_001)
        self._ids = itertools.count(2)

    # ---- runs and jobs -------------------------------------------------------------------------------------

    def add_run(
        self,
        repository: str,
        jobs: Iterable[JobRequest],
        *,
        now_ms: UnixMs,
        event: str = "push",
        fork: bool = False,
        ref: str = "refs/heads/main",
        workflow: str = "CI",
    ) -> Run:
        run = Run(next(self._run_ids), repository, event, fork, ref, workflow, now_ms)
        self.runs[run.id] = run
        for request in jobs:
            self._add_job(run, request, now_ms)
        return run

    def rerun(self, job_id: int, now_ms: UnixMs) -> Job:
        """A new attempt: the run's attempt counts up and the job gets a new id."""
        old = self.jobs[job_id]
        run = self.runs[old.run_id]
        run.attempt, run.closed = run.attempt + 1, False
        return self._add_job(run, JobRequest(old.name, old.labels, old.duration_ms), now_ms)

    def cancel(self, job_id: int, now_ms: UnixMs) -> None:
        """Cancelled by a person: a queued job has no runner then, a running one loses its registration."""
        job = self.jobs[job_id]
        if job.state != "completed":
            self._complete(job, "cancelled", now_ms)

    def run_status(self, run: Run) -> str:
        states = {self.jobs[job_id].state for job_id in run.jobs}
        if run.closed or states <= {"completed"}:
            return "completed"
        return "queued" if states == {"queued"} else "in_progress"

    def _add_job(self, run: Run, request: JobRequest, now_ms: UnixMs) -> Job:
        job = Job(
            id=next(self._job_ids),
            run_id=run.id,
            attempt=run.attempt,
            repository=run.repository,
            name=request.name,
            labels=request.labels,
            duration_ms=request.duration_ms,
            queued_ms=now_ms,
        )
        self.jobs[job.id] = job
        run.jobs.append(job.id)
        self.open_runs.setdefault(run.repository.casefold(), {})[run.id] = run
        self._queue[job.id] = job
        self.on_job("queued", job)
        self._place(job, now_ms)
        return job

    def _complete(self, job: Job, conclusion: str, now_ms: UnixMs) -> None:
        job.state, job.conclusion, job.completed_ms = "completed", conclusion, now_ms
        self._queue.pop(job.id, None)
        self._running.pop(job.id, None)
        if registration := self.registrations.get(job.given_to):
            if registration.job:
                self._finished[registration.session] = conclusion
                self.remove(registration, now_ms)
            else:
                registration.assigned = 0
                self._feed(registration, now_ms)
        run = self.runs[job.run_id]
        if self.run_status(run) == "completed":
            self.open_runs[run.repository.casefold()].pop(run.id, None)
        self.on_job("completed", job)

    # ---- registrations -------------------------------------------------------------------------------------

    def register(
        self, target: str, name: str, labels: Sequence[str], now_ms: UnixMs, group_id: int = DEFAULT_GROUP
    ) -> Registration:
        """A JIT registration, offline until a runner connects with its `config`. Raises `NameExists`."""
        key = (scope(target), name.casefold())
        if key in self._names:
            raise NameExists(name)
        number = next(self._ids)
        content = {"runner": number, "secret": self._random.randbytes(48).hex()}
        config = base64.b64encode(json.dumps(content).encode()).decode()
        made = Registration(number, name, target, tuple(labels), config, now_ms, group_id)
        self.registrations[number] = made
        self._configs[config] = number
        self._names[key] = number
        return made

    def unregister(self, registration: Registration, now_ms: UnixMs) -> None:
        """`DELETE` by an administrator. Raises `StillRunning`."""
        if registration.job:
            raise StillRunning(registration.name)
        self.remove(registration, now_ms)

    def remove(self, registration: Registration, now_ms: UnixMs) -> None:
        """It is gone, whatever it did; a job that waited for it goes back to the queue."""
        del self.registrations[registration.id]
        del self._names[(scope(registration.target), registration.name.casefold())]
        self._configs.pop(registration.config, None)
        self._sessions.pop(registration.session, None)
        self._requeue(registration, now_ms)
        self.on_given(registration)

    def at(self, target: str) -> list[Registration]:
        """The registrations of a repository (`repo:O/R`) or of an organisation with its groups (`org:O`)."""
        wanted = scope(target)
        return [found for found in self.registrations.values() if scope(found.target) == wanted]

    def add_group(self, owner: str, name: str, repositories: Iterable[str] | None = None) -> Group:
        allowed = None if repositories is None else frozenset(each.casefold() for each in repositories)
        group = Group(next(self._ids), owner, name, allowed)
        self.groups[group.id] = group
        return group

    # ---- the runner's side ---------------------------------------------------------------------------------

    def connect(self, config: str, now_ms: UnixMs) -> Registration | None:
        """The runner uses its config, once; None when it is unknown or was used."""
        number = self._configs.pop(config, None)
        if number is None:
            return None
        registration = self.registrations[number]
        registration.session = self._random.randbytes(16).hex()
        self._sessions[registration.session] = number
        self._arrive(registration, now_ms)
        return registration

    def poll(self, session: str, now_ms: UnixMs) -> Registration | None:
        """The runner is there and asks; None when GitHub has no such session (any more)."""
        registration = self.registrations.get(self._sessions.get(session, 0))
        if registration:
            registration.polling = True
            self._arrive(registration, now_ms)
        return registration

    def pause(self, session: str, now_ms: UnixMs, gone: bool = False) -> None:
        """Its poll ended; `gone`: because the runner hung up."""
        if registration := self.registrations.get(self._sessions.get(session, 0)):
            registration.polling, registration.heard_ms = False, now_ms
            registration.online = registration.online and not (gone and not registration.job)

    def fetch(self, registration: Registration, now_ms: UnixMs) -> Job | None:
        """The job that the runner got: it starts now. The same again for one that asks again."""
        if registration.assigned:
            job = self.jobs[registration.assigned]
            registration.assigned, registration.job = 0, job.id
            job.state, job.started_ms, job.starts = "in_progress", now_ms, job.starts + 1
            job.runner_id, job.runner_name = registration.id, registration.name
            self._running[job.id] = job
            self.on_job("in_progress", job)
        return self.jobs[registration.job] if registration.job else None

    def finish(self, session: str, conclusion: str, now_ms: UnixMs) -> bool:
        """The job ended and with it the ephemeral registration. False when GitHub had ended it otherwise."""
        registration = self.registrations.get(self._sessions.get(session, 0))
        if registration is None or not registration.job:
            return self._finished.get(session) == conclusion
        self._complete(self.jobs[registration.job], conclusion, now_ms)
        return True

    def disconnect(self, session: str, now_ms: UnixMs) -> None:
        if registration := self.registrations.get(self._sessions.get(session, 0)):
            registration.online, registration.polling, registration.heard_ms = False, False, now_ms
            self._requeue(registration, now_ms)

    # ---- GitHub's own clockwork ----------------------------------------------------------------------------

    def sweep(self, now_ms: UnixMs) -> None:
        """What GitHub does by itself as time passes; see `Patience`."""
        waits = self.patience
        for each in [each for each in self.registrations.values() if not each.job]:
            quiet = now_ms - each.heard_ms
            spent = quiet > waits.offline_ms if each.session else now_ms - each.created_ms > waits.unused_ms
            if each.assigned and now_ms - each.assigned_ms > waits.fetch_ms:
                each.online = False
                self._requeue(each, now_ms)
            elif each.online and not each.polling and quiet > waits.silence_ms:
                each.online = False
            elif spent and not each.online:
                self.remove(each, now_ms)
        stuck = [job for job in self._queue.values() if now_ms - job.queued_ms > waits.queued_ms]
        for job in stuck + [job for job in self._running.values() if self._lost(job, now_ms)]:
            self._complete(job, "failure", now_ms)

    def _lost(self, job: Job, now_ms: UnixMs) -> bool:
        """GitHub lost communication with the job's runner."""
        runner = self.registrations.get(job.given_to)
        left = runner is not None and not runner.online and now_ms - runner.heard_ms > self.patience.lost_ms
        return left or now_ms - job.started_ms > job.duration_ms + self.patience.lost_ms

    def _arrive(self, registration: Registration, now_ms: UnixMs) -> None:
        registration.online, registration.heard_ms = True, now_ms
        self._feed(registration, now_ms)

    def _feed(self, registration: Registration, now_ms: UnixMs) -> None:
        """The oldest queued job that this runner may take."""
        if registration.idle:
            offered = registration.offered
            for job in self._queue.values():
                if job.wanted <= offered and self._may(registration, job):
                    self._give(job, registration, now_ms)
                    return

    def _place(self, job: Job, now_ms: UnixMs) -> None:
        """The runner that has been registered longest of those that may take this job."""
        wanted = job.wanted
        for registration in self.registrations.values():
            if registration.idle and wanted <= registration.offered and self._may(registration, job):
                self._give(job, registration, now_ms)
                return

    def _give(self, job: Job, registration: Registration, now_ms: UnixMs) -> None:
        del self._queue[job.id]
        job.given_to = registration.id
        registration.assigned, registration.assigned_ms = job.id, now_ms
        self.on_given(registration)

    def _requeue(self, registration: Registration, now_ms: UnixMs) -> None:
        if registration.assigned:
            job = self.jobs[registration.assigned]
            registration.assigned = job.given_to = 0
            self._queue = dict(sorted({**self._queue, job.id: job}.items()))
            self._place(job, now_ms)

    def _may(self, registration: Registration, job: Job) -> bool:
        if self.runs[job.run_id].closed:
            return False
        kind, _, place = registration.target.casefold().partition(":")
        repository = job.repository.casefold()
        if kind == "repo":
            return place == repository
        if place.partition("/")[0] != repository.partition("/")[0]:
            return False
        group = self.groups.get(registration.group_id)
        return group is None or group.repositories is None or repository in group.repositories
