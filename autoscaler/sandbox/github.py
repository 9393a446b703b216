"""A stateful stand-in for GitHub over HTTP: REST, webhooks and the runner's side on one port of this machine.

standin = GitHubStandIn(clock, seed=1)
key = standin.new_app("1", ["octo-org"])          # PEM, for the daemon
url = await standin.start()                       # AUTOSCALER_GITHUB_URL; also under /api/v3, like GHES
standin.webhook("http://127.0.0.1:8080/webhooks/github", b"secret")
standin.add_run("octo-org/repo", [JobRequest("build", ("self-hosted", "linux"))])
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from email.utils import formatdate

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.clock import Clock
from autoscaler.sandbox import github_payloads as payloads
from autoscaler.sandbox.github_access import Access, Denied, Limits
from autoscaler.sandbox.github_faults import Fault, Faults
from autoscaler.sandbox.github_hook_rest import HookRest
from autoscaler.sandbox.github_hooks import Hook, HookSender
from autoscaler.sandbox.github_records import Group, Job, JobRequest, Patience, Registration, Run
from autoscaler.sandbox.github_rest import SPENT, Rest
from autoscaler.sandbox.github_runner import RunnerSide
from autoscaler.sandbox.github_state import GitHubState
from scheduling.model import DurationMs

__all__ = ["Fault", "GitHubStandIn", "JobRequest", "Limits", "Patience"]

GHES_PREFIX = "/api/v3"
SWEEP_MS: DurationMs = 5_000
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class GitHubStandIn:
    """One GitHub. All its time is `clock`'s; all its chances come from `seed`.

    `users`: owners that are persons, every other owner is an organisation. `faults` may be changed at any time.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        users: Iterable[str] = (),
        limits: Limits | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.clock = clock
        self.url = ""
        self.faults = Faults(seed)
        self.state = GitHubState(seed, patience)
        self.access = Access(clock, limits or Limits())
        self.hooks = HookSender(clock, self.faults)
        self._users = frozenset(user.casefold() for user in users)
        self._targets: list[Hook] = []
        self.runners = RunnerSide(self.state, clock)
        self._rest = Rest(self.state, self.access, self.faults, clock, self._kind_of)
        self._hook_rest = HookRest(self.hooks, self.access)
        self._server: web.AppRunner | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.state.on_job = self._announce

    # ---- running it ----------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listens; returns the REST base URL."""
        app = web.Application(middlewares=[self._faulty, self._answering])
        app.on_response_prepare.append(self._stamp)
        app.add_routes(self.runners.routes())
        for prefix in ("", GHES_PREFIX):
            app.add_routes([web.route(each.method, prefix + each.path, each.handler) for each in self.routes()])
        self._server = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._server.setup()
        site = web.TCPSite(self._server, host, port)
        await site.start()
        self.url = f"http://{host}:{self._server.addresses[0][1]}"
        self.hooks.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        return self.url

    async def close(self) -> None:
        self.runners.close()
        if self._sweeper:
            self._sweeper.cancel()
        await self.hooks.close()
        if self._server:
            await self._server.cleanup()

    async def settled(self) -> None:
        """Returns when no webhook is under way."""
        await self.hooks.settled()

    def routes(self) -> list[web.RouteDef]:
        """The REST API, for a server of its own or for one that is called in process."""
        return self._rest.routes() + self._hook_rest.routes()

    # ---- what people do at GitHub --------------------------------------------------------------------------

    def new_app(self, app_id: str, owners: Sequence[str], key: rsa.RSAPrivateKey | None = None) -> str:
        """Registers an App and installs it at `owners`; returns its private key as PEM (made unless given)."""
        key = key or rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.access.add_app(app_id, public, list(owners))
        pem = serialization.PrivateFormat.TraditionalOpenSSL
        return key.private_bytes(serialization.Encoding.PEM, pem, serialization.NoEncryption()).decode()

    def webhook(self, url: str, secret: bytes, app_id: str = "") -> None:
        """Where an App (the first unless named) sends `workflow_job` from now on; two Apps send it twice."""
        app_id = app_id or next(iter(self.access.apps), "")
        self._targets = [hook for hook in self._targets if hook.app_id != app_id] + [Hook(app_id, url, secret)]

    def add_group(self, owner: str, name: str, repositories: Iterable[str] | None = None) -> Group:
        return self.state.add_group(owner, name, repositories)

    def add_run(
        self,
        repository: str,
        jobs: Iterable[JobRequest],
        *,
        event: str = "push",
        fork: bool = False,
        ref: str = "refs/heads/main",
        workflow: str = "CI",
    ) -> Run:
        """Somebody pushes: the jobs are queued and announced."""
        now = self.clock.now_ms()
        return self.state.add_run(repository, jobs, now_ms=now, event=event, fork=fork, ref=ref, workflow=workflow)

    def cancel(self, job_id: int) -> None:
        self.state.cancel(job_id, self.clock.now_ms())

    def rerun(self, job_id: int) -> Job:
        return self.state.rerun(job_id, self.clock.now_ms())

    def vanish(self, name: str) -> None:
        """GitHub loses a registration, whatever it does."""
        for found in [each for each in self.state.registrations.values() if each.name == name]:
            self.state.remove(found, self.clock.now_ms())

    # ---- the truth -----------------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """Every job as it really went (copies)."""
        return [replace(job) for job in self.state.jobs.values()]

    def registrations(self) -> list[Registration]:
        return list(self.state.registrations.values())

    def never_ran(self) -> list[Job]:
        """Jobs that no runner ever began and nobody cancelled."""
        return [job for job in self.jobs() if job.starts == 0 and job.conclusion != "cancelled"]

    def doubled(self) -> list[Job]:
        """Jobs that began more than once."""
        return [job for job in self.jobs() if job.starts > 1]

    def leaked_registrations(self, prefix: str) -> list[str]:
        """Names of the registrations that are left and begin with `prefix`."""
        return sorted(each.name for each in self.registrations() if each.name.startswith(prefix))

    # ---- inside --------------------------------------------------------------------------------------------

    def _kind_of(self, owner: str) -> str:
        return "User" if owner.casefold() in self._users else "Organization"

    def _announce(self, action: str, job: Job) -> None:
        run = self.state.runs[job.run_id]
        owner = job.repository.partition("/")[0]
        for hook in self._targets:
            if installation := self.access.apps[hook.app_id].installations.get(owner.casefold()):
                body = payloads.delivery(action, job, run, self._kind_of(owner), installation)
                self.hooks.send(hook, body)

    async def _sweep(self) -> None:
        while True:
            await self.clock.sleep(SWEEP_MS)
            self.state.sweep(self.clock.now_ms())

    async def _stamp(self, request: web.Request, response: web.StreamResponse) -> None:
        """GitHub's own time and the caller's rate limits are on every answer."""
        response.headers["Date"] = formatdate(self.clock.now_ms() / 1000, usegmt=True)
        if spent := request.get(SPENT):
            for name, value in spent.headers().items():
                response.headers.setdefault(name, value)

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self.faults.pick(request.method, request.path_qs.removeprefix(GHES_PREFIX))
        if fault is None:
            return await handler(request)
        if fault.latency_ms:
            await self.clock.sleep(fault.latency_ms)
        if fault.applied or not (fault.status or fault.drop):
            answer = await handler(request)
            if not (fault.status or fault.drop):
                return answer
        if fault.drop and request.transport:
            request.transport.close()
        return refusal(fault.status or 500, fault.message, dict(fault.headers))

    @web.middleware
    async def _answering(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Errors in GitHub's form."""
        try:
            return unchanged(request, await handler(request))
        except Denied as denied:
            return refusal(denied.status, denied.message, denied.headers)
        except web.HTTPException as error:
            return refusal(error.status, error.reason, {})


def unchanged(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """A GET whose body the caller has already: 304, which does not count. Source: docs.github.com/en/rest/
    using-the-rest-api/best-practices-for-using-the-rest-api, "Use conditional requests if appropriate"."""
    spent = request.get(SPENT)
    if request.method != "GET" or spent is None or answer.status != 200 or not isinstance(answer, web.Response):
        return answer
    body = answer.body if isinstance(answer.body, bytes) else b""
    etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
    if request.headers.get("If-None-Match") != etag:
        answer.headers["ETag"] = etag
        return answer
    spent.used -= 1
    return web.Response(status=304, headers={"ETag": etag})


def refusal(status: int, message: str, headers: dict[str, str]) -> web.Response:
    body = {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}
    return web.json_response(body, status=status, headers=headers)
