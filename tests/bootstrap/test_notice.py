"""Spot notices: what each cloud's metadata service says, and what the daemon hears of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from aiohttp import web

from providers.bootstrap import program

EC2 = {"action": "terminate", "time": "2026-11-30T12:02:00Z"}
AZURE = {
    "EventType": "Preempt",
    "NotBefore": "Mon, 30 Nov 2026 12:00:30 GMT",
    "Resources": ["fleet-r0"],
    "EventStatus": "Scheduled",
}


class Metadata:
    """One metadata service for all three clouds; `notice` False: nothing is announced yet."""

    def __init__(self) -> None:
        self.notice = False
        self.asked = 0
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_put("/latest/api/token", self.token)
        app.router.add_get("/latest/meta-data/spot/instance-action", self.ec2)
        app.router.add_get("/computeMetadata/v1/instance/preempted", self.preempted)
        app.router.add_get("/computeMetadata/v1/instance/maintenance-event", self.maintenance)
        app.router.add_get("/metadata/scheduledevents", self.azure)
        return app

    async def token(self, request: web.Request) -> web.Response:
        assert int(request.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
        return web.Response(text="IMDSv2")

    async def ec2(self, request: web.Request) -> web.Response:
        self.asked += 1
        if request.headers.get("X-aws-ec2-metadata-token") != "IMDSv2":
            return web.Response(status=401)
        return web.json_response(EC2) if self.notice else web.Response(status=404, text="<html>not found")

    async def preempted(self, request: web.Request) -> web.Response:
        self.asked += 1
        assert request.headers["Metadata-Flavor"] == "Google"
        return web.Response(text="TRUE" if self.notice else "FALSE")

    async def maintenance(self, request: web.Request) -> web.Response:
        return web.Response(text="MIGRATE_ON_HOST_MAINTENANCE")  # the machine moves and goes on: no notice

    async def azure(self, request: web.Request) -> web.Response:
        self.asked += 1
        assert request.headers["Metadata"] == "true"
        neighbour = {**AZURE, "Resources": ["fleet-r1"]}
        reboot = {**AZURE, "EventType": "Reboot"}
        return web.json_response({"Events": [neighbour, reboot, *([AZURE] if self.notice else [])]})


@pytest.fixture
async def metadata():
    service = Metadata()
    runner = web.AppRunner(service.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield service
    await runner.cleanup()


@pytest.mark.parametrize(
    ("cloud", "words"),
    [
        ("ec2", "EC2 will terminate it at 2026-11-30T12:02:00Z"),
        ("gce", "Compute Engine preempts it now"),
        ("azure", "Azure announces Preempt at Mon, 30 Nov 2026 12:00:30 GMT"),
    ],
)
async def test_the_notice_of_each_cloud(metadata, tmp_path, cloud, words):
    (tmp_path / "notice.py").write_bytes(program("linux_notice.py"))
    watcher = await asyncio.create_subprocess_exec(
        sys.executable, "-I", tmp_path / "notice.py", cloud, metadata.url, "fleet-r0", "0.02",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watcher.stdout
    async with asyncio.timeout(20):
        while metadata.asked < 3:  # noqa: ASYNC110  - another process asks
            await asyncio.sleep(0.01)
        metadata.notice = True
        assert (await watcher.stdout.readline()).decode() == words + "\n"
        assert await watcher.wait() == 0


async def test_the_daemon_hears_of_it_while_the_job_goes_on(machine, daemon, metadata):
    metadata.notice = True
    machine.plan["notice"] = ["ec2", metadata.url]
    machine.job(steps=f"while [ ! -e {machine.folder}/heard ]; do sleep 0.05; done; echo step >> steps.txt")
    async with machine.running() as process, asyncio.timeout(20):
        while "interrupted" not in daemon.names():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        (machine.folder / "heard").touch()
        await process.wait()
    assert daemon.detail("interrupted") == "EC2 will terminate it at 2026-11-30T12:02:00Z"
    assert machine.steps == "step\n"
    assert [name for name in daemon.names() if name != "interrupted"] == [
        "booted", "registered", "started", "finished", "exited",
    ]  # fmt: skip


async def test_a_metadata_service_that_is_away_says_nothing(machine, daemon):
    machine.plan["notice"] = ["ec2", "http://127.0.0.1:9"]
    assert await machine.run() == ["booted", "registered", "started", "finished", "exited"]
    assert machine.stopped


@pytest.mark.needs("root", "unshare", "ip")
def test_only_root_hears_the_metadata_service_once_jobs_run(tmp_path):
    """In a network of its own, where 10.9.9.9 stands for the service's address."""
    script = tmp_path / "closed.py"
    script.write_text(
        "import os, socket, subprocess, sys\n"
        f"sys.path.insert(0, {os.getcwd()!r})\n"
        "from providers.bootstrap.linux_install import close\n"
        "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
        "subprocess.run(['ip', 'route', 'add', '10.9.9.9/32', 'dev', 'lo'], check=True)\n"
        "close('10.9.9.9/32', ['ec2', ''])\n"
        "def reach():\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:\n"
        "        try:\n"
        "            line.connect(('10.9.9.9', 80))\n"
        "            return 'reached'\n"
        "        except OSError as error:\n"
        "            return error.strerror\n"
        "print(reach())\n"
        "os.setuid(65534)\n"
        "print(reach())\n"
    )
    done = subprocess.run(
        ["unshare", "-n", sys.executable, script], capture_output=True, text=True, check=False, timeout=30
    )
    if "Operation not permitted" in done.stderr or "not supported" in done.stderr:
        pytest.skip(f"no network of its own here: {done.stderr.strip()[-200:]}")
    assert done.stdout.splitlines() == ["reached", "Permission denied"], done.stderr
