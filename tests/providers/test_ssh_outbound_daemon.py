"""A whole replica and a host that opens no port: it joins with one command, and runs jobs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from providers.ssh.hardware import command_lines
from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import Place, live, until
from tests.providers.ssh_runner import RUNNER, pack, tarball_server

pytestmark = pytest.mark.needs("bwrap")
POLICY = {
    "version": 1,
    "defaults": {"access": {"repositories": ["octo/*"], "forks": "allow"}},
    "runner_types": {"linux": {"labels": ["self-hosted", "linux"], "hardware": {"os": "linux", "cpus": 1}}},
}
TOKEN = "alice-may-join"
SPONSORS = {"alice": hashlib.sha256(TOKEN.encode()).hexdigest(), "bob": hashlib.sha256(b"bob").hexdigest()}


def policy(settings: dict[str, Any]) -> str:
    provider = {"kind": "ssh", "price": "0 USD/h", "settings": settings}
    return json.dumps({**POLICY, "providers": {"lab": provider}})


class OutboundPlace(Place):
    """`folder` is the host's; `program` its process."""

    folder: Path
    programs: list[subprocess.Popen[str]]

    def join(self, token: str = TOKEN, name: str = "attic") -> subprocess.Popen[str]:
        """As a host does that has nothing of ours: curl URL/host/v1/program | python3 - join URL TOKEN."""
        command = [
            sys.executable,
            "-I",
            "-",
            "join",
            self.url,
            token,
            "--name",
            name,
            "--folder",
            str(self.folder),
        ]
        with urlopen(f"{self.url}/host/v1/program", timeout=10) as program:
            return self.run(command, program.read().decode())

    def restart(self) -> None:
        """What systemd does when the program ended."""
        self.run([sys.executable, "-I", str(self.folder / "host.py"), "run", "--folder", str(self.folder)], "")

    def run(self, command: list[str], text: str) -> subprocess.Popen[str]:
        pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        program = subprocess.Popen(command, text=True, cwd="/", **pipe)
        self.programs.append(program)
        program.stdin.write(text)
        program.stdin.close()
        return program

    async def stop_programs(self) -> None:
        for program in self.programs:
            program.kill()
            program.wait()
            program.stdout.close()

    def machines(self) -> list[list[str]]:
        """Sandboxes that run."""
        return [
            line for line in command_lines().values() if line[0] == "timeout" and str(self.folder) in str(line)
        ]

    async def cli(self, *command: str, token: str = TOKEN) -> tuple[int, str]:
        file = self.directory / "token"
        file.write_text(token)
        env = {"AUTOSCALER_API_URL": self.url, "AUTOSCALER_API_TOKEN_FILE": str(file)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "autoscaler", *command),
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()


@pytest.fixture
async def place():
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        server, url, tarball = await tarball_server()
        place = OutboundPlace(Path(name), speed=10.0)
        place.folder, place.programs = Path(name) / "host", []
        place._policy = lambda _: policy({})  # type: ignore[method-assign] - GitHub's address comes first
        await place.open()
        tarball["content"] = pack(RUNNER.format(github=place.around.machines.github_url, speed=10))
        digest = hashlib.sha256(tarball["content"]).hexdigest()
        settings = {
            "reach": "outbound",
            "sponsors": SPONSORS,
            "hosts": [{"name": "attic", "slots": 2, "cpus": 1, "memory_gib": 1}],
            "launcher": "bubblewrap",
            "runner": {"url": url, "sha256": {"x64": digest, "arm64": digest}},
        }
        place.around.policy_path.write_text(policy(settings))
        yield place
        await place.stop_programs()
        await place.close()
        for pid, line in command_lines().items():
            if line[0] == "timeout" and name in str(line):
                os.kill(pid, signal.SIGKILL)
        await server.cleanup()


async def test_a_host_joins_with_one_command_and_runs_its_first_job(place):
    replica = await place.replica()
    await until(lambda: replica.daemon.world is not None)
    place.push(3, seconds=2)  # they wait for a host; two slots: the third waits for one
    began = time.monotonic()
    await asyncio.to_thread(place.join)
    await until(lambda: any(job.state == "in_progress" for job in place.around.github.jobs()))
    print(f"\nfirst job began {time.monotonic() - began:.1f} s after the command to join")
    await until(lambda: place.done() and not place.around.github.registrations())
    await until(lambda: not live(replica.daemon.world))
    world = replica.daemon.world
    assert [runner.reason for runner in world.runners.values()].count(GoneReason.DONE) == 3
    assert list(place.folder.glob("slots/*/lease.json")) == []
    assert place.machines() == []


async def test_the_hosts_program_is_killed_in_the_middle_of_a_job(place):
    replica = await place.replica()
    program = await asyncio.to_thread(place.join)
    place.push(1, seconds=100)  # ten seconds of ours
    await until(lambda: any(job.state == "in_progress" for job in place.around.github.jobs()))
    program.kill()
    program.wait()
    assert len(place.machines()) == 1  # the job goes on
    place.restart()
    await until(place.done)
    await until(lambda: not live(replica.daemon.world))
    (runner,) = replica.daemon.world.runners.values()
    assert runner.reason is GoneReason.DONE
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]
    assert place.machines() == []


async def test_a_restarted_daemon_finds_its_host_and_machines(place):
    replica = await place.replica()
    await asyncio.to_thread(place.join)
    place.push(1, seconds=100)
    await until(lambda: any(job.state == "in_progress" for job in place.around.github.jobs()))
    await replica.stop()
    place.replicas.clear()
    replica = await place.replica()
    await until(lambda: place.done() and not live(replica.daemon.world))
    assert {runner.reason for runner in replica.daemon.world.runners.values()} == {GoneReason.DONE}


@pytest.mark.parametrize(
    ("token", "name", "said"),
    [
        ("stolen", "attic", "this join token is not known: have the operator put its SHA-256"),
        (TOKEN, "barn", "the policy lists no host 'barn' for provider lab (it lists: attic)"),
    ],
)
async def test_who_may_not_join_is_told_why_and_what_to_do(place, token, name, said):
    await place.replica()
    program = await asyncio.to_thread(place.join, token, name)
    text = await asyncio.to_thread(program.stdout.read)
    program.wait()
    assert program.returncode == 1
    assert f"autoscaler host: {place.url} refuses: {said}" in text
    assert "Traceback" not in text


async def test_a_sponsor_pauses_its_own_hosts_and_nothing_else(place):
    replica = await place.replica()
    await asyncio.to_thread(place.join)
    await until(lambda: replica.daemon.world and replica.daemon.world.offers.get("lab"))
    assert await place.cli("host", "pause", "lab/attic") == (
        0,
        "lab/attic is paused; running jobs finish (by alice)\n",
    )
    await until(lambda: not replica.daemon.world.offers["lab"])
    place.push(1, seconds=1)
    code, text = await place.cli("host", "resume", "lab/attic", token="bob")
    assert (code, "bob has not joined lab/attic" in text) == (1, True)
    code, text = await place.cli("pause")
    assert (code, "switches need a token" in text) == (1, True)
    assert not [r for r in replica.daemon.world.runners.values() if r.state is not RunnerState.GONE]
    assert (await place.cli("host", "resume", "lab/attic"))[0] == 0
    await until(place.done)
