"""A machine for tests: the real programs in a temporary folder, a stand-in daemon, and a runner made of shell."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from providers.bootstrap import PROGRAMS, program

TOKEN = "callback-token-of-this-machine"
JIT = "encoded-jit-config"


@dataclass
class Daemon:
    """The daemon's machine API, and the place where the runner tarball is downloaded from."""

    url: str = ""
    stages: list[tuple[str, str]] = field(default_factory=list)
    refuse_once: set[str] = field(default_factory=set)  # stages whose first report is answered with 503
    refused: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)  # every report that was taken
    waited_ms: int = 0
    jit: list[int] = field(default_factory=lambda: [200])  # statuses of the next polls; the last one stays
    fail_stages: int = 0  # answer that many reports with 503 first
    notice: str = ""
    tarball: bytes = b""
    downloads: int = 0
    strangers: int = 0  # requests without the right token
    nonces: list[str] = field(default_factory=list)  # what the polls and the reports that were taken carried

    def doing(self) -> list[str]:
        """What it said that it does while it booted, without repetitions."""
        return list(dict.fromkeys(body["detail"] for body in self.told if body["stage"] == "booting"))

    def names(self) -> list[str]:
        return [name for name, _ in self.stages]

    def detail(self, stage: str) -> str:
        return next(detail for name, detail in self.stages if name == stage)

    async def on_stage(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            self.strangers += 1
            return web.Response(status=401)
        if self.fail_stages:
            self.fail_stages -= 1
            return web.Response(status=503)
        body = await request.json()
        if body["stage"] in self.refuse_once:
            self.refuse_once.discard(body["stage"])
            self.refused.append(body)
            return web.Response(status=503)
        self.nonces.append(request.headers["X-Machine-Nonce"])
        assert body["age_ms"] >= 0
        self.told.append(body)
        if body["stage"] != "booting":
            self.stages.append((body["stage"], body["detail"]))
        return web.Response(status=202)

    async def on_jit(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.query["wait"] == "25"
        self.nonces.append(request.headers["X-Machine-Nonce"])
        status = self.jit.pop(0) if len(self.jit) > 1 else self.jit[0]
        answer = {"jit": JIT, "waited_ms": self.waited_ms}
        return web.json_response(answer) if status == 200 else web.Response(status=status)

    async def on_notice(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        assert request.query["run"] == "77"
        return web.Response(text=self.notice)

    async def on_download(self, request: web.Request) -> web.Response:
        self.downloads += 1
        return web.Response(body=self.tarball)


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    daemon = Daemon()
    app = web.Application()
    app.router.add_post("/runner/v1/r0/stages", daemon.on_stage)
    app.router.add_get("/runner/v1/r0/jit", daemon.on_jit)
    app.router.add_get("/runner/v1/r0/notice", daemon.on_notice)
    app.router.add_get("/runner.tar.gz", daemon.on_download)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    daemon.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield daemon
    await runner.cleanup()


JOB = """#!/bin/bash
{before}
echo "Listening for Jobs"
env > env.txt; tr '\\0' ' ' < /proc/$$/cmdline > argv.txt
export GITHUB_REPOSITORY='{repository}' GITHUB_EVENT_NAME='{event}'
export GITHUB_RUN_ID=77 GITHUB_EVENT_PATH="$PWD/event.json"
bash -e "$ACTIONS_RUNNER_HOOK_JOB_STARTED" > hook.log 2>&1 & hook=$!
{during}
wait $hook || echo "hook failed" >> steps.txt
{steps}
bash -e "$ACTIONS_RUNNER_HOOK_JOB_COMPLETED"
exit {code}
"""


@dataclass
class Machine:
    """`folder` holds programs and JSON; `home` is where the runner is installed and the job writes."""

    folder: Path
    daemon: Daemon
    boot: dict[str, Any]
    plan: dict[str, Any]

    @property
    def home(self) -> Path:
        return Path(self.plan["home"])

    @property
    def stopped(self) -> bool:
        """Whether the machine has shut itself down."""
        return (self.folder / "stopped").exists()

    @property
    def steps(self) -> str:
        """What the job's steps have left behind."""
        file = self.home / "steps.txt"
        return file.read_text() if file.exists() else ""

    def bring(self, tarball: bytes) -> None:
        """The image has a runner tarball in its cache."""
        cache = Path(self.plan["cache"])
        cache.mkdir()
        (cache / "runner.tar.gz").write_bytes(tarball)

    def install_runner(self, script: str, event: object = None) -> None:
        """Make the tarball that the machine will download: one run.sh, and the event payload of its job."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, mode, text in (("run.sh", 0o755, script), ("event.json", 0o644, json.dumps(event or {}))):
                entry = tarfile.TarInfo(f"./{name}")
                entry.mode, entry.size = mode, len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        self.daemon.tarball = packed.getvalue()
        self.plan["runner"]["sha256"] = hashlib.sha256(self.daemon.tarball).hexdigest()

    def job(
        self,
        repository: str = "pytorch/pytorch",
        event: str = "push",
        payload: object = None,
        *,
        steps: str = "echo step >> steps.txt",
        before: str = "",
        during: str = "",
        code: int = 0,
    ) -> None:
        """A runner that connects, is given one job, and behaves like GitHub's around it."""
        script = JOB.format(
            repository=repository, event=event, steps=steps, before=before, during=during, code=code
        )
        self.install_runner(script, payload)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        for name, content in (("boot.json", self.boot), ("machine.json", self.plan)):
            (self.folder / name).write_text(json.dumps(content))
        (self.folder / "boot.json").chmod(0o600)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(self.folder / "machine.py"),
            str(self.folder),
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run(self) -> list[str]:
        """Boot, live, end. The stages that the daemon heard of, in order."""
        async with self.running() as process, asyncio.timeout(20):
            await process.wait()
        return self.daemon.names()


@pytest.fixture
def machine(daemon: Daemon) -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="machine-"))  # short: a Unix socket's path has 107 bytes at most
    folder.chmod(0o755)
    for name, path in PROGRAMS.items():
        copy = folder / Path(path).name
        copy.write_bytes(program(name))
        copy.chmod(0o755)
    boot = {
        "fleet": "fleet",
        "runner_id": "r0",
        "name": "fleet-r0",
        "url": daemon.url,
        "token": TOKEN,
        "ready_seconds": 60,
        "lifetime_seconds": 60,
        "access": {"repositories": ["pytorch/*"], "forks": "deny", "events": []},
    }
    plan = {
        "runner": {"url": f"{daemon.url}/runner.tar.gz", "sha256": "", "version": "2.1.0"},
        "hooks": {"folder": str(folder / "hooks"), "pre_install": "", "post_install": ""},
        "beat_seconds": 10,
        "home": str(folder / "runner"),
        "cache": str(folder / "cache"),
        "user": "",
        "socket": str(folder / "hook.sock"),
        "grace_seconds": 0.3,
        "shutdown": ["touch", str(folder / "stopped")],
        "unreachable": [],
    }
    made = Machine(folder, daemon, boot, plan)
    made.job()
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """Whether a process still runs (a zombie does not)."""

    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    return alive
