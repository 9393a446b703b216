"""The REST endpoints of the GitHub stand-in, each citing the page of GitHub's documentation that it follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.sandbox import github_payloads as payloads
from autoscaler.sandbox.github_access import Access, Caller, Denied, SandboxApp, Window
from autoscaler.sandbox.github_faults import Faults
from autoscaler.sandbox.github_owners import repository
from autoscaler.sandbox.github_records import (
    DEFAULT_GROUP,
    Group,
    Job,
    NameExists,
    Registration,
    Run,
    StillRunning,
    scope,
)
from autoscaler.sandbox.github_state import GitHubState

SPENT: web.RequestKey[Window] = web.RequestKey("spent", Window)
DEFAULT_PAGE = 30
REGISTRATION = "actions_runner_registration"
Item = TypeVar("Item")


class Rest:
    """Handlers over the state. Every installation sees its owner's repositories and nothing else (404)."""

    def __init__(
        self,
        state: GitHubState,
        access: Access,
        faults: Faults,
        clock: Clock,
        kind_of: Callable[[str], str],
    ) -> None:
        self.state, self.access, self.faults, self.clock = state, access, faults, clock
        self.kind_of = kind_of

    def routes(self) -> list[web.RouteDef]:
        made: list[web.RouteDef] = [
            web.get("/app/installations", self.installations),
            web.post("/app/installations/{id:\\d+}/access_tokens", self.access_token),
            web.get("/orgs/{owner}/installation", self.organization_installation),
            web.get("/users/{owner}/installation", self.user_installation),
            web.get("/installation/repositories", self.repositories),
            web.get("/orgs/{owner}/actions/runner-groups", self.runner_groups),
            web.get("/repos/{owner}/{repo}/actions/runs", self.runs),
            web.get("/repos/{owner}/{repo}/actions/runs/{id:\\d+}", self.run),
            web.get("/repos/{owner}/{repo}/actions/runs/{id:\\d+}/jobs", self.run_jobs),
            web.get("/repos/{owner}/{repo}/actions/jobs/{id:\\d+}", self.job),
            web.post("/repos/{owner}/{repo}/actions/jobs/{id:\\d+}/rerun", self.rerun_job),
        ]
        for place in ("/orgs/{owner}", "/repos/{owner}/{repo}"):
            runners = f"{place}/actions/runners"
            made += [
                web.post(f"{runners}/generate-jitconfig", self.generate_jitconfig),
                web.get(runners, self.runners),
                web.get(f"{runners}/{{id:\\d+}}", self.runner),
                web.delete(f"{runners}/{{id:\\d+}}", self.delete_runner),
            ]
        return made

    # ---- Apps ----------------------------------------------------------------------------------------------

    async def installations(self, request: web.Request) -> web.Response:
        """/rest/apps/apps "List installations for the authenticated app"."""
        app = self.access.app(request)
        found = [self._installation(app, owner) for owner in app.installations]
        return web.json_response(paged(request, found))

    async def access_token(self, request: web.Request) -> web.Response:
        """/rest/apps/apps "Create an installation access token for an app": one hour."""
        token, expires = self.access.mint(self.access.app(request), _id(request))
        body = {"token": token, "expires_at": payloads.instant(expires), "permissions": {"actions": "read"}}
        return web.json_response(body, status=201)

    async def organization_installation(self, request: web.Request) -> web.Response:
        """/rest/apps/apps "Get an organization installation for the authenticated app"."""
        return self._installation_of(request, "Organization")

    async def user_installation(self, request: web.Request) -> web.Response:
        """/rest/apps/apps "Get a user installation for the authenticated app"."""
        return self._installation_of(request, "User")

    async def repositories(self, request: web.Request) -> web.Response:
        """/rest/apps/installations "List repositories accessible to the app installation"."""
        caller = self._enter(request, None)
        seen = {run.repository.casefold(): run.repository for run in self.state.runs.values()}
        mine = [
            name for key, name in sorted(seen.items()) if _owner_of(key) == caller.owner and caller.app.sees(key)
        ]
        shown = [repository(name, self.kind_of(caller.owner)) for name in paged(request, mine)]
        return web.json_response({"total_count": len(mine), "repositories": shown})

    # ---- runners -------------------------------------------------------------------------------------------

    async def generate_jitconfig(self, request: web.Request) -> web.Response:
        """/rest/actions/self-hosted-runners "Create configuration for a just-in-time runner" (both places)."""
        target = self._target(request)
        caller = self._enter(request, request.match_info["owner"], REGISTRATION)
        self.access.create(caller)
        body = await request.json()
        name, labels, group = str(body.get("name", "")), body.get("labels") or [], body.get("runner_group_id")
        if not name or len(name) > 64 or not 1 <= len(labels) <= 100 or not isinstance(group, int):
            raise Denied(422, "Validation Failed: name, runner_group_id and 1 to 100 labels are required")
        if group != DEFAULT_GROUP and self._group(caller.owner, group) is None:
            raise Denied(404, "Not Found")
        try:
            made = self.state.register(target, name, labels, self.clock.now_ms(), group)
        except NameExists:
            raise Denied(409, f"Already exists - A runner with the name {name} already exists.") from None
        answer = {"runner": payloads.runner(made, False), "encoded_jit_config": made.config}
        return web.json_response(answer, status=201)

    async def runners(self, request: web.Request) -> web.Response:
        """/rest/actions/self-hosted-runners "List self-hosted runners": pages, filter by exact name."""
        self._enter(request, request.match_info["owner"])
        name = request.query.get("name")
        found = [
            each
            for each in self.state.at(self._target(request))
            if name in (None, each.name) and self.faults.lists(each.name)
        ]
        shown = [payloads.runner(each, self._busy(each)) for each in paged(request, found)]
        return web.json_response({"total_count": len(found), "runners": shown})

    async def runner(self, request: web.Request) -> web.Response:
        """/rest/actions/self-hosted-runners "Get a self-hosted runner"."""
        self._enter(request, request.match_info["owner"])
        found = self._registration(request)
        return web.json_response(payloads.runner(found, self._busy(found)))

    async def delete_runner(self, request: web.Request) -> web.Response:
        """/rest/actions/self-hosted-runners "Delete a self-hosted runner": 204, 422 while it runs a job."""
        self._enter(request, request.match_info["owner"])
        found = self._registration(request)
        try:
            self.state.unregister(found, self.clock.now_ms())
        except StillRunning:
            text = f'Bad request - Runner "{found.name}" is still running a job"'
            raise Denied(422, text) from None
        return web.Response(status=204)

    async def runner_groups(self, request: web.Request) -> web.Response:
        """/rest/actions/self-hosted-runner-groups "List self-hosted runner groups for an organization"."""
        owner = request.match_info["owner"]
        self._enter(request, owner)
        default = Group(DEFAULT_GROUP, owner, "Default")
        found = [default] + [g for g in self.state.groups.values() if g.owner.casefold() == owner.casefold()]
        shown = [payloads.runner_group(each) for each in paged(request, found)]
        return web.json_response({"total_count": len(found), "runner_groups": shown})

    # ---- runs and jobs -------------------------------------------------------------------------------------

    async def runs(self, request: web.Request) -> web.Response:
        """/rest/actions/workflow-runs "List workflow runs for a repository", filter by status; newest first."""
        self._enter(request, request.match_info["owner"])
        name, wanted = _repository(request).casefold(), request.query.get("status")
        if wanted in ("queued", "in_progress"):
            candidates = list(self.state.open_runs.get(name, {}).values())
        else:
            candidates = [run for run in self.state.runs.values() if run.repository.casefold() == name]
        found = [run for run in reversed(candidates) if wanted in (None, self.state.run_status(run))]
        shown = [self._run(each) for each in paged(request, found)]
        return web.json_response({"total_count": len(found), "workflow_runs": shown})

    async def run(self, request: web.Request) -> web.Response:
        """/rest/actions/workflow-runs "Get a workflow run"."""
        self._enter(request, request.match_info["owner"])
        return web.json_response(self._run(self._run_of(request)))

    async def run_jobs(self, request: web.Request) -> web.Response:
        """/rest/actions/workflow-jobs "List jobs for a workflow run"; `filter=latest` (the default) or `all`."""
        self._enter(request, request.match_info["owner"])
        run = self._run_of(request)
        jobs = [self.state.jobs[job_id] for job_id in run.jobs]
        if request.query.get("filter", "latest") == "latest":
            last = {job.name: job.attempt for job in jobs}
            jobs = [job for job in jobs if job.attempt == last[job.name]]
        shown = [payloads.job(each, run) for each in paged(request, jobs)]
        return web.json_response({"total_count": len(jobs), "jobs": shown})

    async def job(self, request: web.Request) -> web.Response:
        """/rest/actions/workflow-jobs "Get a job for a workflow run"."""
        self._enter(request, request.match_info["owner"])
        job = self._job(request)
        return web.json_response(payloads.job(job, self.state.runs[job.run_id]))

    async def rerun_job(self, request: web.Request) -> web.Response:
        """/rest/actions/workflow-runs "Re-run a job from a workflow run": 201; 403 while its run still runs."""
        caller = self._enter(request, request.match_info["owner"])
        self.access.create(caller)
        job = self._job(request)
        run = self.state.runs[job.run_id]
        if self.state.run_status(run) != "completed":
            raise Denied(403, "The workflow run containing this job is already running")
        latest = {self.state.jobs[job_id].name: job_id for job_id in run.jobs}
        if latest[job.name] != job.id:
            raise Denied(403, "Unable to retry this job because it is not of the latest attempt")
        self.state.rerun(job.id, self.clock.now_ms())
        return web.json_response({}, status=201)

    # ---- helpers -------------------------------------------------------------------------------------------

    def _enter(self, request: web.Request, owner: str | None, resource: str = "core") -> Caller:
        caller = self.access.caller(request)
        request[SPENT] = self.access.spend(caller, resource)
        if owner is not None and owner.casefold() != caller.owner:
            raise Denied(404, "Not Found")
        if "repo" in request.match_info and not caller.app.sees(_repository(request)):
            raise Denied(404, "Not Found")
        return caller

    def _installation_of(self, request: web.Request, kind: str) -> web.Response:
        owner = request.match_info["owner"].casefold()
        app = self.access.app(request)
        if owner not in app.installations or self.kind_of(owner) != kind:
            raise Denied(404, "Not Found")
        return web.json_response(self._installation(app, owner))

    def _installation(self, app: SandboxApp, owner: str) -> dict[str, Any]:
        return payloads.installation(app.installations[owner], app.id, owner, self.kind_of(owner))

    def _target(self, request: web.Request) -> str:
        return f"repo:{_repository(request)}" if "repo" in request.match_info else f"org:{_owner(request)}"

    def _registration(self, request: web.Request) -> Registration:
        found = self.state.registrations.get(_id(request))
        if found is None or scope(found.target) != scope(self._target(request)):
            raise Denied(404, "Not Found")
        return found

    def _busy(self, found: Registration) -> bool:
        """GitHub's `busy`, which may lag behind the job."""
        if not found.job:
            return False
        began = self.state.jobs[found.job].started_ms
        return self.clock.now_ms() - began >= self.faults.stale_busy_ms

    def _group(self, owner: str, number: int) -> Group | None:
        found = self.state.groups.get(number)
        return found if found and found.owner.casefold() == owner else None

    def _job(self, request: web.Request) -> Job:
        job = self.state.jobs.get(_id(request))
        if job is None or job.repository.casefold() != _repository(request).casefold():
            raise Denied(404, "Not Found")
        return job

    def _run_of(self, request: web.Request) -> Run:
        run = self.state.runs.get(_id(request))
        if run is None or run.repository.casefold() != _repository(request).casefold():
            raise Denied(404, "Not Found")
        return run

    def _run(self, run: Run) -> dict[str, Any]:
        return payloads.run(run, self.state.run_status(run), self.kind_of(_owner_of(run.repository)))


def paged(request: web.Request, items: Sequence[Item]) -> list[Item]:
    """One page: /rest/using-the-rest-api/using-pagination-in-the-rest-api (30 by default, 100 at most)."""
    size = min(100, int(request.query.get("per_page", str(DEFAULT_PAGE))))
    start = (int(request.query.get("page", "1")) - 1) * size
    return list(items[start : start + size])


def _id(request: web.Request) -> int:
    return int(request.match_info["id"])


def _owner(request: web.Request) -> str:
    return request.match_info["owner"]


def _owner_of(repository: str) -> str:
    return repository.partition("/")[0]


def _repository(request: web.Request) -> str:
    return f"{request.match_info['owner']}/{request.match_info['repo']}"
