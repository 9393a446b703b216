"""The program of a virtual machine: what a real one's bootstrap and GitHub's runner do, over real HTTP.

booted -> ask for the JIT config until it comes -> connect to GitHub -> registered -> a job -> started -> the job's
duration -> finished -> exited. When the program returns, the machine shuts itself down. It outlives the daemon: a
call that finds nobody is tried again, and a report that nobody takes is dropped, as a hook would.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import aiohttp
import msgspec

from autoscaler.clock import Clock
from providers.sim import Machine
from scheduling.messages import Stage

log = logging.getLogger(__name__)

CONNECTIONS = 4000
REPORT_TRIES = 5
NOTICE_MS = 60_000
RETRY_SECONDS = 0.5
POLL_SECONDS = 25  # real: what the daemon's long poll is asked to wait
JOB_POLL_SECONDS = 20  # real: likewise for the stand-in, which counts in its own clock
POLL_TIMEOUT = aiohttp.ClientTimeout(total=40)
REPORT_TIMEOUT = aiohttp.ClientTimeout(total=5)

Result = TypeVar("Result")


class AccessSaid(msgspec.Struct):
    repositories: list[str] = []
    forks: str = "deny"
    events: list[str] = []


class Boot(msgspec.Struct):
    """The boot data that the daemon gave the provider for this machine."""

    runner_id: str
    name: str
    url: str
    token: str
    ready_seconds: float
    lifetime_seconds: float
    access: AccessSaid
    notice: bool = False
    jit: str = ""  # `bootstrap: userdata`: it has its config and need not (or cannot) call the daemon


class GivenJob(msgspec.Struct):
    """A job as the stand-in hands it to a connected runner."""

    job_id: int
    run_id: int
    repository: str
    name: str
    event: str
    fork: bool
    duration_ms: int


class Leave(Exception):
    """The machine has nothing more to do; the text is its last words."""


@dataclass(slots=True)
class Machines:
    """Runs the programs of all machines of a sandbox; `run` is a cloud's `on_boot`."""

    clock: Clock
    github_url: str = ""
    providers: dict[str, str] = field(default_factory=dict)  # of every machine that booted, by its name
    configs: list[str] = field(default_factory=list)  # JIT configs that came in launch data
    _session: aiohttp.ClientSession | None = None

    async def run(self, machine: Machine) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=POLL_TIMEOUT)
        boot = msgspec.json.decode(machine.spec.boot, type=Boot)
        program = Program(boot, machine, self._session, self.github_url.rstrip("/"), self.clock)
        self.providers[boot.name] = machine.spec.offer.provider
        self.configs += [boot.jit] if boot.jit else []
        await program.run()

    async def close(self) -> None:
        if self._session:
            await self._session.close()


@dataclass(slots=True)
class Program:
    """One machine, from its boot to its shutdown."""

    boot: Boot
    machine: Machine
    session: aiohttp.ClientSession
    github_url: str
    clock: Clock
    nonce: str = field(init=False, default_factory=lambda: secrets.token_hex(16))

    async def run(self) -> None:
        notice = asyncio.create_task(self.notice())
        try:
            await self.live()
        finally:
            notice.cancel()

    async def notice(self) -> None:
        """What the account tells a spot machine before it takes it back."""
        if taken_ms := self.machine.preempted_ms:
            await self.clock.sleep(max(0, taken_ms - NOTICE_MS - self.clock.now_ms()))
            await self.report(Stage.INTERRUPTED, "the account will take it back in a minute")

    async def live(self) -> None:
        if self.machine.boot_fails:
            await self.report(Stage.FAILED, "the image has no network")
            return
        try:
            await self.report(Stage.BOOTED)
            jit = await self.within(self.boot.ready_seconds, self.config())
            await self.within(self.boot.lifetime_seconds, self.work(jit))
        except Leave as words:
            log.info("machine %s leaves: %s", self.boot.name, words)

    async def within(self, seconds: float, doing: Awaitable[Result]) -> Result:
        """The dead-man switch: past its time the machine leaves, whatever it does. Seconds of the clock."""
        try:
            return await asyncio.wait_for(doing, self.clock.real_seconds(int(seconds * 1000)))
        except TimeoutError:
            raise Leave("its time is over") from None

    async def config(self) -> str:
        """Its JIT config: it came with the machine, or as soon as the daemon has one for it."""
        if self.boot.jit:
            return self.boot.jit
        while True:
            status, answer = await self.ask_daemon("GET", f"jit?wait={POLL_SECONDS}")
            if status == 200:
                return str(answer["jit"])
            if status == 410:
                raise Leave("it is not needed")
            if status != 204:
                await asyncio.sleep(RETRY_SECONDS)

    async def work(self, jit: str) -> None:
        """What GitHub's runner does with a JIT config: one job, then it exits."""
        status, answer = await self.ask_github("POST", "connect", {"jit": jit})
        if status != 200:
            await self.report(Stage.FAILED, f"GitHub refused the registration: {status}")
            return
        session = answer["session"]
        await self.report(Stage.REGISTERED)
        if job := await self.next_job(session):
            if refusal := await self.explanation(job) or admission(self.boot.access, job):
                await self.report(Stage.REFUSED, refusal)
                await self.ask_github("POST", f"{session}/disconnect", {})
                return
            await self.report(Stage.STARTED)
            await self.clock.sleep(job.duration_ms)
            await self.report(Stage.FINISHED)
            await self.ask_github("POST", f"{session}/finish", {"conclusion": "success"})
        await self.report(Stage.EXITED)

    async def explanation(self, job: GivenJob) -> str:
        """What a notice runner prints into the job's log before it ends it; empty for any other."""
        if not self.boot.notice:
            return ""
        url = f"{self.boot.url.rstrip('/')}/runner/v1/{self.boot.runner_id}/notice?run={job.run_id}"
        async with self.session.get(url, headers={"Authorization": f"Bearer {self.boot.token}"}) as answer:
            return await answer.text() or "it waited longer than the deadline"

    async def next_job(self, session: str) -> GivenJob | None:
        """What GitHub gives this runner; None when its registration was removed."""
        wait = max(1, round(JOB_POLL_SECONDS * self.clock.speed))
        while True:
            status, answer = await self.ask_github("GET", f"{session}/job?wait={wait}")
            if status == 200:
                return msgspec.convert(answer, GivenJob)
            if status != 204:
                return None

    async def report(self, stage: Stage, detail: str = "") -> None:
        """Tells the daemon, a few times; the machine's work never depends on it."""
        if self.boot.jit:
            return  # it may be that no way leads there
        for _ in range(REPORT_TRIES):
            body = {"stage": stage.value, "detail": detail}
            status, _ = await self.ask_daemon("POST", "stages", body, REPORT_TIMEOUT)
            if status and status < 500:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def ask_daemon(
        self, method: str, path: str, body: object = None, timeout: aiohttp.ClientTimeout = POLL_TIMEOUT
    ) -> tuple[int, Any]:
        url = f"{self.boot.url.rstrip('/')}/runner/v1/{self.boot.runner_id}/{path}"
        headers = {"Authorization": f"Bearer {self.boot.token}", "X-Machine-Nonce": self.nonce}
        return await self.ask(method, url, json=body, headers=headers, timeout=timeout)

    async def ask_github(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """GitHub is asked until it answers: its runner does not give up either."""
        while True:
            status, answer = await self.ask(method, f"{self.github_url}/_runner/{path}", json=body)
            if status and status < 500:
                return status, answer
            await asyncio.sleep(RETRY_SECONDS)

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        """Status and decoded JSON; (0, None) when nobody answered."""
        try:
            async with self.session.request(method, url, **options) as response:
                content = await response.read()
                return response.status, msgspec.json.decode(content) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return 0, None


def admission(access: AccessSaid, job: GivenJob) -> str:
    """Why the type's access refuses the job that GitHub gave us; empty when it does not."""
    repository = job.repository.casefold()
    if not any(fnmatchcase(repository, pattern.casefold()) for pattern in access.repositories):
        return f"{job.repository} may not use this runner"
    if (access.forks == "deny" and job.fork) or (access.forks == "only" and not job.fork):
        return "jobs of forks may not use this runner" if job.fork else "this runner is for forks only"
    if access.events and job.event not in access.events:
        return f"event {job.event} may not use this runner"
    return ""
