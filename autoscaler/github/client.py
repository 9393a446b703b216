"""GitHub as the daemon needs it: JIT registrations, runners, runs and jobs, through one or several Apps.

Registration targets are `repo:OWNER/REPO`, `org:OWNER` and `group:OWNER/NAME` (a runner group, by name). Every
method raises `GitHubError`, whose `trouble` says what to do next. Source: docs.github.com/en/rest/actions
(self-hosted-runners, self-hosted-runner-groups, workflow-runs, workflow-jobs), /rest/apps (apps, webhooks).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from autoscaler.clock import Clock
from autoscaler.github.apps import PAGE_SIZE, AppCredentials, SingleFlight
from autoscaler.github.budget import Budget, Need
from autoscaler.github.call import Call, Params
from autoscaler.github.connection import Connection
from autoscaler.github.deliveries import Redelivery
from autoscaler.github.errors import (
    BadRequest,
    GitHubError,
    JitUnknown,
    NameTaken,
    NotFound,
    RunnerBusy,
)
from autoscaler.github.router import Router
from autoscaler.github.target import Target, parse_target
from autoscaler.github.wire import (
    GroupsPage,
    Jit,
    JitShape,
    JobShape,
    JobsPage,
    PageShape,
    Registration,
    RepositoriesPage,
    RunnerShape,
    RunnersPage,
    RunShape,
    RunsPage,
    decode,
    unix_ms,
)
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported, Trouble
from scheduling.model import RunFacts, UnixMs

__all__ = [
    "AppCredentials",
    "Budget",
    "GitHub",
    "GitHubError",
    "Jit",
    "JitUnknown",
    "NameTaken",
    "Registration",
    "RunnerBusy",
]

DEFAULT_GROUP = 1  # "Default" of every organisation, and the only one of a repository
REMEMBERED_RUNS = 10_000
SWEEP_CONCURRENCY = 8

Page = TypeVar("Page", bound=PageShape)
Item = TypeVar("Item")


class GitHub:
    """The client. Does no I/O before `open`; one object for the life of the process."""

    def __init__(
        self, apps: Sequence[AppCredentials], *, base_url: str, clock: Clock, token: str | None = None
    ) -> None:
        """`base_url`: REST base, `https://api.github.com` or `https://HOST/api/v3`. `token`: a personal access
        token, used for everything instead of the Apps."""
        self.clock = clock
        self._connection = Connection(base_url, clock)
        self._router = Router(apps, self._connection, token)
        self._runs: OrderedDict[tuple[str, int], RunFacts] = OrderedDict()
        self._run_flight = SingleFlight[RunFacts | None]()
        self._groups: dict[tuple[str, str], int] = {}
        self._group_flight = SingleFlight[int]()
        self._redelivery = Redelivery()

    async def open(self) -> None:
        """Reads the Apps' keys and warms their tokens. GitHub being away is logged, a bad key raises."""
        await self._router.warm()

    async def close(self) -> None:
        await self._connection.close()

    def budgets(self) -> list[Budget]:
        """What GitHub last said is left, by App, owner and resource; `jit` is our own pace of creations."""
        return self._router.budgets()

    # ---- registrations -------------------------------------------------------------------------------------

    async def jit_turn(self, target: str) -> None:
        """Waits while GitHub's limits leave no creation there to any of our Apps."""
        await self._router.turn(parse_target(target).owner, Need.JIT)

    async def create_jit(self, target: str, name: str, labels: Sequence[str]) -> Jit:
        """Registers an offline ephemeral runner and returns its config, which GitHub tells once.

        Paced by owner and App. Raises `NameTaken` (409) and `JitUnknown` (sent, no answer: there may be a
        registration of that name).
        """
        place = parse_target(target)
        body = {
            "name": name,
            "runner_group_id": await self._group(place) if place.group else DEFAULT_GROUP,
            "labels": list(labels),
            "work_folder": "_work",
        }
        path = f"{place.runners}/generate-jitconfig"
        try:
            response = await self._router.call(place.owner, Call(Need.JIT, "POST", path, body=body))
        except (NotFound, BadRequest) as error:
            self._groups.pop((place.owner.casefold(), place.group.casefold()), None)
            raise GitHubError(error.trouble, f"{target}: {error.detail}") from None
        try:
            made = decode(response, JitShape)
        except GitHubError as error:
            raise JitUnknown(Trouble.TRANSIENT, error.detail) from None
        return Jit(made.runner.id, made.encoded_jit_config)

    async def find_runner(self, target: str, name: str) -> Registration | None:
        """The registration of that name. None: a complete list, which may still omit one, does not show it."""
        found = await self._runners(target, {"name": name})
        return next((each for each in found if each.name.casefold() == name.casefold()), None)

    async def get_runner(self, target: str, registration_id: int) -> Registration | None:
        """One registration by id. None is proof: an App that sees the place's runners got a 404."""
        place = parse_target(target)
        path = f"{place.runners}/{registration_id}"
        try:
            call = Call(Need.RUNNER, "GET", path, collection=place.runners)
            response = await self._router.call(place.owner, call)
        except NotFound:
            return None
        return decode(response, RunnerShape).registration()

    async def list_runners(self, target: str, prefix: str) -> list[Registration]:
        """The registrations whose names begin with `prefix`, from all pages; raises if any page fails.

        Pages shift while runners come and go: a name that is missing here is no proof, ask by id. For a group,
        the whole organisation is listed.
        """
        return [each for each in await self._runners(target, {}) if each.name.startswith(prefix)]

    async def delete_runner(self, target: str, registration_id: int) -> None:
        """Removes a registration; absent is success. Raises `RunnerBusy` while a job runs on it."""
        place = parse_target(target)
        path = f"{place.runners}/{registration_id}"
        with suppress(NotFound):
            call = Call(Need.RUNNER, "DELETE", path, collection=place.runners)
            await self._router.call(place.owner, call)

    # ---- runs and jobs -------------------------------------------------------------------------------------

    async def run_facts(self, repository: str, run_id: int) -> RunFacts | None:
        """Event, fork flag and ref of a run, remembered for the last 10,000 runs; None: GitHub has no such run.

        A run whose head repository differs or is gone is a fork's, and a fork's run has no ref.
        """
        key = (repository.casefold(), run_id)
        if known := self._runs.get(key):
            self._runs.move_to_end(key)
            return known
        return await self._run_flight.do(key, lambda: self._fetch_run(repository, run_id))

    async def run_ended(self, repository: str, run_id: int) -> bool:
        """Whether GitHub calls the run completed, or has none of that id. Asked anew each time."""
        run = await self._run(repository, run_id)
        return run is None or run.status == "completed"

    async def job(self, repository: str, job_id: int) -> JobReported | None:
        """What GitHub says of a job now; None: it has no such job."""
        actions = f"{_path(repository)}/actions"
        try:
            call = Call(Need.RUNNER, "GET", f"{actions}/jobs/{job_id}", collection=f"{actions}/runs")
            response = await self._router.call(_owner(repository), call)
        except NotFound:
            return None
        return decode(response, JobShape).reported(repository, self.clock.now_ms())

    async def rerun_job(
        self, repository: str, run_id: int, attempt: int, job_id: int, name: str, ended_ms: UnixMs
    ) -> bool:
        """A new attempt of one failed job, unless there is one. False: not while its run still runs (403).

        `ended_ms`: when the job ended at GitHub. An attempt copies the jobs that it does not run, with new ids and
        old times, so a job of a run that was re-run since is looked up by its name. Raises `GitHubError`.
        """
        actions, owner = f"{_path(repository)}/actions", _owner(repository)
        call = Call(Need.LIST, "GET", f"{actions}/runs/{run_id}")
        run = decode(await self._router.call(owner, call), RunShape)
        if run.run_attempt > attempt:
            call = Call(Need.LIST, "GET", f"{actions}/runs/{run_id}/jobs", {"filter": "latest"})
            jobs = await self._pages(owner, call, JobsPage, lambda page: page.jobs)
            same = [job for job in jobs if job.name == name]
            if any(job.status != "completed" or unix_ms(job.started_at) > ended_ms for job in same):
                return True
            job_id = same[0].id if same else job_id
        if run.status != "completed":
            return False
        try:
            await self._router.call(owner, Call(Need.LIST, "POST", f"{actions}/jobs/{job_id}/rerun"))
        except GitHubError as error:
            if "already running" in error.detail:
                return False
            raise
        return True

    async def queued_jobs(self, repository: str) -> list[JobReported]:
        """The queued and running jobs of a repository's queued and running runs (the first 1,000 of each, which
        is what GitHub lists); raises if any page fails. Costs one request a run and more."""
        base, owner = f"{_path(repository)}/actions/runs", _owner(repository)
        runs: dict[int, RunShape] = {}
        for status in ("queued", "in_progress"):
            call = Call(Need.LIST, "GET", base, {"status": status})
            listed = await self._pages(owner, call, RunsPage, lambda page: page.workflow_runs)
            runs |= {run.id: run for run in listed}
        gate = asyncio.Semaphore(SWEEP_CONCURRENCY)

        async def jobs_of(run: RunShape) -> list[JobShape]:
            self._remember(repository, run)
            async with gate:
                call = Call(Need.LIST, "GET", f"{base}/{run.id}/jobs", {"filter": "latest"})
                return await self._pages(owner, call, JobsPage, lambda page: page.jobs)

        found = await _all([jobs_of(run) for run in runs.values()])
        now_ms = self.clock.now_ms()
        jobs = [job.reported(repository, now_ms) for listed in found for job in listed]
        return [job for job in jobs if job.state in (JobState.QUEUED, JobState.IN_PROGRESS)]

    async def repositories(self) -> list[str]:
        """Full names of the repositories of all installations, archived ones left out; raises if any fails."""
        names: set[str] = set()
        for installation in await self._router.listed():
            page, total = 1, 1
            while (page - 1) * PAGE_SIZE < total:
                params: Params = {"per_page": PAGE_SIZE, "page": page}
                call = Call(Need.LIST, "GET", "/installation/repositories", params)
                answer = decode(await self._router.through(installation, call), RepositoriesPage)
                names |= {each.full_name for each in answer.repositories if not (each.archived or each.disabled)}
                page, total = page + 1, answer.total_count
        return sorted(names)

    async def redeliver_failed(self, since_ms: UnixMs) -> int:
        """Asks GitHub to send failed `workflow_job` webhooks again, each failure since then once; how many."""
        return await self._redelivery.ask(self._router.apps, since_ms)

    # ---- inside --------------------------------------------------------------------------------------------

    async def _runners(self, target: str, params: Params) -> list[Registration]:
        place = parse_target(target)
        need = Need.RUNNER if params else Need.LIST
        shapes = await self._pages(
            place.owner, Call(need, "GET", place.runners, params), RunnersPage, lambda page: page.runners
        )
        return [shape.registration() for shape in shapes]

    async def _pages(
        self, owner: str, call: Call, shape: type[Page], items: Callable[[Page], list[Item]]
    ) -> list[Item]:
        """All items of a paged list; any page that fails fails it all."""
        found: list[Item] = []
        for page in itertools.count(1):
            params = {**(call.params or {}), "per_page": PAGE_SIZE, "page": page}
            answer = decode(await self._router.call(owner, replace(call, params=params)), shape)
            found += items(answer)
            if not items(answer) or len(found) >= answer.total_count:
                break
        return found

    async def _fetch_run(self, repository: str, run_id: int) -> RunFacts | None:
        run = await self._run(repository, run_id)
        return None if run is None else self._remember(repository, run)

    async def _run(self, repository: str, run_id: int) -> RunShape | None:
        """None: GitHub has none of that id."""
        runs = f"{_path(repository)}/actions/runs"
        try:
            call = Call(Need.RUNNER, "GET", f"{runs}/{run_id}", collection=runs)
            return decode(await self._router.call(_owner(repository), call), RunShape)
        except NotFound:
            return None

    def _remember(self, repository: str, run: RunShape) -> RunFacts:
        facts = self._runs[(repository.casefold(), run.id)] = run.facts()
        if len(self._runs) > REMEMBERED_RUNS:
            self._runs.popitem(last=False)
        return facts

    async def _group(self, place: Target) -> int:
        """The id of a runner group, asked once."""
        key = (place.owner.casefold(), place.group.casefold())
        if known := self._groups.get(key):
            return known
        return await self._group_flight.do(key, lambda: self._find_group(place))

    async def _find_group(self, place: Target) -> int:
        call = Call(Need.RUNNER, "GET", f"{place.path}/actions/runner-groups")
        groups = await self._pages(place.owner, call, GroupsPage, lambda page: page.runner_groups)
        for group in groups:
            self._groups[(place.owner.casefold(), group.name.casefold())] = group.id
        found = self._groups.get((place.owner.casefold(), place.group.casefold()))
        if found is None:
            names = ", ".join(group.name for group in groups)
            text = f"organisation {place.owner} has no runner group {place.group} (it has: {names})"
            raise GitHubError(Trouble.REFUSED, f"{text}: create it, or correct the type's `register`")
        return found


async def _all(works: Sequence[Awaitable[Item]]) -> list[Item]:
    """All results, or the first failure once every one has ended."""
    results = await asyncio.gather(*works, return_exceptions=True)
    done: list[Item] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done


def _path(repository: str) -> str:
    return parse_target(f"repo:{repository}").path


def _owner(repository: str) -> str:
    return repository.partition("/")[0]
