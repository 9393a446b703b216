"""A whole replica over a real OpenSSH server: the real machine program, and a runner for GitHub's stand-in."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from pathlib import Path

import pytest

from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import Place, until
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_runner import RUNNER, pack, tarball_server
from tests.providers.ssh_server import Sshd

pytest.importorskip("asyncssh", reason="asyncssh is not installed")
pytestmark = pytest.mark.needs("sshd", "bwrap")

POLICY = {
    "version": 1,
    "providers": {"attic": {"kind": "ssh", "price": "0 USD/h"}},
    "defaults": {"access": {"repositories": ["octo/*"], "forks": "allow"}},
    "runner_types": {"linux": {"labels": ["self-hosted", "linux"], "hardware": {"os": "linux", "cpus": 1}}},
}


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
        tarball["content"] = pack(RUNNER.format(github=place.around.machines.github_url, speed=10))
        digest = hashlib.sha256(tarball["content"]).hexdigest()
        settings["runner"] = {"url": url, "sha256": {"x64": digest, "arm64": digest}}
        policy = {**POLICY, "providers": {"attic": {**POLICY["providers"]["attic"], "settings": settings}}}
        place.around.policy_path.write_text(json.dumps(policy))
        yield place, bench
        await place.close()
        bench.close()
        await server.cleanup()


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
