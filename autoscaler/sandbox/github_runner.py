"""The runner's side of the GitHub stand-in: what stands for the runner's own, undocumented connection.

`POST /_runner/connect` {"jit"} -> {"session", "runner_id"}; `GET /_runner/{session}/job?wait=SECONDS` -> the job,
or 204; `POST .../finish` {"conclusion"} -> 204; `POST .../disconnect` -> 204. Waits are in the stand-in's clock.
A runner that hangs up while it waits for a job is offline at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.sandbox.github_access import Denied
from autoscaler.sandbox.github_records import Job, Registration
from autoscaler.sandbox.github_state import GitHubState

MAX_WAIT_SECONDS = 3600


class RunnerSide:
    """Handlers; `close` answers every open poll."""

    def __init__(self, state: GitHubState, clock: Clock) -> None:
        self.state = state
        self.clock = clock
        self._given: dict[str, asyncio.Event] = {}
        self._closing = False
        state.on_given = self._notice

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/_runner/connect", self.connect),
            web.get("/_runner/{session}/job", self.job),
            web.post("/_runner/{session}/finish", self.finish),
            web.post("/_runner/{session}/disconnect", self.disconnect),
        ]

    def close(self) -> None:
        self._closing = True
        for event in self._given.values():
            event.set()

    async def connect(self, request: web.Request) -> web.Response:
        config = str((await request.json()).get("jit", ""))
        registration = self.state.connect(config, self.clock.now_ms())
        if registration is None:
            raise Denied(401, "The runner registration has been deleted or was used")
        return web.json_response({"session": registration.session, "runner_id": registration.id})

    async def job(self, request: web.Request) -> web.Response:
        session = request.match_info["session"]
        wait = min(float(request.query.get("wait", "0")), MAX_WAIT_SECONDS)
        registration = self.state.poll(session, self.clock.now_ms())
        if registration is None:
            raise Denied(404, "The session has ended")
        event = self._given.setdefault(session, asyncio.Event())
        hung_up = True
        try:
            if not (registration.assigned or registration.job):
                async with asyncio.timeout(self.clock.real_seconds(int(wait * 1000))):
                    await event.wait()
            hung_up = False
        except TimeoutError:
            hung_up = False
        finally:
            event.clear()
            self.state.pause(session, self.clock.now_ms(), gone=hung_up)
        if registration.id not in self.state.registrations:
            self._given.pop(session, None)
            raise Denied(404, "The registration was deleted")
        job = None if self._closing else self.state.fetch(registration, self.clock.now_ms())
        return web.json_response(self._given_job(job)) if job else web.Response(status=204)

    async def finish(self, request: web.Request) -> web.Response:
        session = request.match_info["session"]
        conclusion = str((await request.json()).get("conclusion", "success"))
        self._given.pop(session, None)
        if not self.state.finish(session, conclusion, self.clock.now_ms()):
            raise Denied(410, "The job was ended by GitHub")
        return web.Response(status=204)

    async def disconnect(self, request: web.Request) -> web.Response:
        self.state.disconnect(request.match_info["session"], self.clock.now_ms())
        return web.Response(status=204)

    def _notice(self, registration: Registration) -> None:
        if event := self._given.get(registration.session):
            event.set()

    def _given_job(self, job: Job) -> dict[str, Any]:
        run = self.state.runs[job.run_id]
        return {
            "job_id": job.id,
            "run_id": run.id,
            "repository": job.repository,
            "name": job.name,
            "event": run.event,
            "fork": run.fork,
            "duration_ms": job.duration_ms,
        }
