"""The machine's program against the two services that it calls, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.clock import Clock
from autoscaler.sandbox.github import GitHubStandIn, JobRequest
from autoscaler.sandbox.machines import AccessSaid, GivenJob, Machines, admission
from providers.base import LaunchSpec
from providers.sim import Settings, SimCloud
from scheduling.model import Offer

TOKEN = "f00d"
JOB = {
    "job_id": 7,
    "run_id": 70,
    "repository": "octo/engine",
    "name": "test",
    "event": "push",
    "fork": False,
    "duration_ms": 60_000,
}


@dataclass
class World:
    """Answers as the daemon's runner API and GitHub's stand-in do; `said` is what the machine told them."""

    said: list[str] = field(default_factory=list)
    jits: list[int] = field(default_factory=lambda: [204, 200])
    connect: int = 200
    jobs: list[int] = field(default_factory=lambda: [204, 200])
    job: dict[str, object] = field(default_factory=lambda: dict(JOB))
    config: str = "config"
    daemon_away: int = 0  # calls that find a broken daemon

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/runner/v1/{id}/stages", self._stage)
        app.router.add_get("/runner/v1/{id}/jit", self._jit)
        app.router.add_post("/_runner/connect", self._connect)
        app.router.add_get("/_runner/s1/job", self._job)
        app.router.add_post("/_runner/s1/finish", self._finish)
        app.router.add_post("/_runner/s1/disconnect", self._disconnect)
        return app

    def _daemon(self, request: web.Request) -> None:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        if self.daemon_away:
            self.daemon_away -= 1
            raise web.HTTPServiceUnavailable

    async def _stage(self, request: web.Request) -> web.Response:
        self._daemon(request)
        body = await request.json()
        self.said.append(body["stage"] + (f": {body['detail']}" if body["detail"] else ""))
        return web.Response(status=202)

    async def _jit(self, request: web.Request) -> web.Response:
        self._daemon(request)
        assert request.query["wait"] == "25"
        status = self.jits.pop(0) if self.jits else 204
        await asyncio.sleep(0.01)
        return (
            web.json_response({"jit": self.config}, status=status)
            if status == 200
            else web.Response(status=status)
        )

    async def _connect(self, request: web.Request) -> web.Response:
        assert await request.json() == {"jit": self.config}
        return web.json_response({"session": "s1", "runner_id": 3}, status=self.connect)

    async def _job(self, request: web.Request) -> web.Response:
        status = self.jobs.pop(0) if self.jobs else 204
        await asyncio.sleep(0.01)
        return web.json_response(self.job, status=status) if status == 200 else web.Response(status=status)

    async def _finish(self, request: web.Request) -> web.Response:
        self.said.append(f"github: {(await request.json())['conclusion']}")
        return web.Response(status=204)

    async def _disconnect(self, request: web.Request) -> web.Response:
        self.said.append("github: gone")
        return web.Response(status=204)


Life = Callable[..., Awaitable[Machines]]


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def live(world: World, launch_of: Callable[..., LaunchSpec], offer: Offer) -> AsyncIterator[Life]:
    """Boots one machine in the world and waits until it is gone."""
    async with TestServer(world.application()) as server:
        url = str(server.make_url("/"))
        clock = Clock(speed=3000)
        machines = Machines(clock)

        async def run(faults: dict[str, float] | None = None, github: str = url, **said: object) -> Machines:
            machines.github_url = github
            boot = {
                "fleet": "test",
                "runner_id": "r" + "0" * 19 + "1",
                "name": "test-r1",
                "url": url,
                "token": TOKEN,
                "ready_seconds": 100_000,
                "lifetime_seconds": 100_000,
                "access": {"repositories": ["octo/*"], "forks": "deny", "events": []},
            } | said
            settings = Settings.model_validate({"faults": faults or {}})
            cloud = SimCloud("lab", settings, clock, on_boot=machines.run)
            await cloud.create(launch_of(1, offer, lifetime_ms=10**9, boot=json.dumps(boot)))
            [machine] = cloud.machines()
            assert machine.task
            await asyncio.wait_for(machine.task, 10)
            assert cloud.machines() == []
            return machines

        yield run
        await machines.close()


async def test_a_machine_s_life(world: World, live: Life) -> None:
    machines = await live()
    assert world.said == ["booted", "registered", "started", "finished", "github: success", "exited"]
    assert machines.providers == {"test-r1": "lab"}


async def test_it_runs_a_job_of_the_github_stand_in(world: World, live: Life) -> None:
    github = GitHubStandIn(Clock(speed=1000))
    url = await github.start()
    github.add_run("octo/engine", [JobRequest("test", ("self-hosted", "Linux"))])
    now_ms = github.clock.now_ms()
    registration = github.state.register("repo:octo/engine", "test-r1", ["self-hosted", "linux", "x64"], now_ms)
    world.config = registration.config
    await live(github=url)
    [job] = github.jobs()
    assert (job.conclusion, job.runner_name) == ("success", "test-r1")
    assert job.completed_ms > job.started_ms
    assert world.said == ["booted", "registered", "started", "finished", "exited"]
    assert github.registrations() == []
    await github.close()


async def test_it_keeps_asking_while_the_daemon_is_away(world: World, live: Life, quick: None) -> None:
    world.daemon_away = 9
    await live()
    assert world.said[-2:] == ["github: success", "exited"]


async def test_a_machine_that_is_not_needed_shuts_down(world: World, live: Life) -> None:
    world.jits = [204, 410]
    await live()
    assert world.said == ["booted"]


async def test_a_refused_registration_is_reported(world: World, live: Life) -> None:
    world.connect = 401
    await live()
    assert world.said == ["booted", "failed: GitHub refused the registration: 401"]


async def test_a_runner_whose_registration_was_removed_leaves(world: World, live: Life) -> None:
    world.jobs = [204, 404]
    await live()
    assert world.said == ["booted", "registered", "exited"]


async def test_the_dead_man_switch_while_nobody_wants_it(world: World, live: Life) -> None:
    world.jits = []
    await live(ready_seconds=300)
    assert world.said == ["booted"]


async def test_the_dead_man_switch_under_a_job(world: World, live: Life) -> None:
    world.job["duration_ms"] = 10**9
    await live(lifetime_seconds=600)
    assert world.said == ["booted", "registered", "started"]


async def test_a_failed_boot_is_reported(world: World, live: Life) -> None:
    await live(faults={"boot_failure": 1})
    assert world.said == ["failed: the image has no network"]


async def test_a_job_that_access_refuses_never_starts(world: World, live: Life) -> None:
    world.job["repository"] = "evil/fork"
    await live()
    assert world.said[2:] == ["refused: evil/fork may not use this runner", "github: gone"]


@pytest.mark.parametrize(
    ("access", "refused"),
    [
        (AccessSaid(["octo/*"]), ""),
        (AccessSaid(["OCTO/Eng*"]), ""),
        (AccessSaid(), "octo/engine may not use this runner"),
        (AccessSaid(["octo/*"], "only"), "this runner is for forks only"),
        (AccessSaid(["octo/*"], events=["pull_request"]), "event push may not use this runner"),
    ],
)
def test_admission(access: AccessSaid, refused: str) -> None:
    assert admission(access, GivenJob(1, 2, "octo/engine", "test", "push", False, 1)) == refused


def test_admission_of_forks() -> None:
    job = GivenJob(1, 2, "octo/engine", "test", "push", True, 1)
    assert admission(AccessSaid(["*"], "deny"), job)
    assert not admission(AccessSaid(["*"], "only"), job)
    assert not admission(AccessSaid(["*"], "allow"), job)
