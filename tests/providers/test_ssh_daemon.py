"""A whole replica over a real OpenSSH server: the real machine program, and a runner for GitHub's stand-in."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from aiohttp import web

from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import Place, until
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

pytest.importorskip("asyncssh", reason="asyncssh is not installed")
pytestmark = pytest.mark.needs("sshd", "bwrap")

POLICY = {
    "version": 1,
    "providers": {"attic": {"kind": "ssh", "price": "0 USD/h"}},
    "defaults": {"access": {"repositories": ["octo/*"], "forks": "allow"}},
    "runner_types": {"linux": {"labels": ["self-hosted", "linux"], "hardware": {"os": "linux", "cpus": 1}}},
}

RUNNER = """#!/usr/bin/python3 -I
import json, os, subprocess, time, urllib.request

def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request("{github}/_runner/" + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, answer.read()

session = json.loads(ask("POST", "connect", {{"jit": os.environ["ACTIONS_RUNNER_INPUT_JITCONFIG"]}})[1])["session"]
print("Listening for Jobs", flush=True)
status = 204
while status == 204:
    status, body = ask("GET", session + "/job?wait=20")
job = json.loads(body)
with open("event.json", "w") as file:
    json.dump({{}}, file)
env = {{**os.environ, "GITHUB_REPOSITORY": job["repository"], "GITHUB_EVENT_NAME": job["event"],
       "GITHUB_RUN_ID": str(job["run_id"]), "GITHUB_EVENT_PATH": os.path.abspath("event.json")}}
subprocess.run(["bash", "-e", os.environ["ACTIONS_RUNNER_HOOK_JOB_STARTED"]], env=env, check=True)
time.sleep(job["duration_ms"] / 10_000)
subprocess.run(["bash", "-e", os.environ["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"]], env=env, check=True)
ask("POST", session + "/finish", {{"conclusion": "success"}})
"""


@pytest.fixture
async def place(clock, tmp_path):
    with Sshd(tmp_path) as sshd, tempfile.TemporaryDirectory(prefix="place-") as name:
        bench = SshBench(sshd, clock, Path(name))
        server, url, tarball = await tarball_server()
        settings = bench.config.settings.model_dump(mode="json")
        place = Place(Path(name), speed=10.0)
        place.policy = ""
        place._policy = lambda _: json.dumps(POLICY)  # type: ignore[method-assign] - GitHub's address comes first
        await place.open()
        tarball["content"] = pack(RUNNER.format(github=place.around.machines.github_url))
        digest = hashlib.sha256(tarball["content"]).hexdigest()
        settings["runner"] = {"url": url, "sha256": {"x64": digest, "arm64": digest}}
        policy = {**POLICY, "providers": {"attic": {**POLICY["providers"]["attic"], "settings": settings}}}
        place.around.policy_path.write_text(json.dumps(policy))
        yield place, bench
        await place.close()
        bench.close()
        await server.cleanup()


async def tarball_server():
    tarball: dict[str, bytes] = {}

    async def download(_: web.Request) -> web.Response:
        return web.Response(body=tarball["content"])

    app = web.Application()
    app.router.add_get("/runner.tar.gz", download)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/runner.tar.gz", tarball


def pack(script: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("./run.sh")
        entry.mode, entry.size = 0o755, len(script)
        tar.addfile(entry, io.BytesIO(script.encode()))
    return packed.getvalue()


async def test_jobs_run_on_a_donated_host_and_nothing_is_left(place):
    place, bench = place
    replica = await place.leading()
    pushed = time.monotonic()
    place.push(3, seconds=2)  # two slots: the third waits for one
    await until(lambda: any(job.state == "completed" for job in place.around.github.jobs()))
    print(f"first job completed after {time.monotonic() - pushed:.1f} s")
    await until(lambda: place.done() and not place.around.github.registrations())
    await until(lambda: not bench.leases() and not bench.running())
    world = replica.daemon.world
    await until(lambda: len(world.by_state[RunnerState.GONE]) == len(world.runners))
    assert [runner.reason for runner in world.runners.values()].count(GoneReason.DONE) == 3
