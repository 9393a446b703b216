"""What only donated hosts have: slots and leases, a job in the sandbox, hosts that are away, keys, leftovers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from aiohttp import web
from pydantic import ValidationError

from providers.base import MissingSdk, NoCapacity, OutcomeUnknown
from providers.conformance import TOKEN
from providers.registry import kind
from providers.ssh import KIND, SshSettings
from providers.ssh.client import COMMAND, Client
from providers.ssh.hardware import command_lines
from providers.ssh.launchers import Bubblewrap, Systemd, write
from providers.ssh.packed import slots_program
from tests.bootstrap import conftest as bootstrap
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

pytest.importorskip("asyncssh", reason="asyncssh is not installed")
pytestmark = pytest.mark.needs("sshd", "bwrap")
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBT3lDJB4gWbQkAkBIAUUI5XDqKOYJhnSp7lI5bMzJUi"
HOST = {"name": "attic", "host_key": HOST_KEY, "cpus": 4, "memory_gib": 8}


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


@pytest.fixture
def bench(sshd, clock, tmp_path):
    bench = SshBench(sshd, clock, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
async def provider(bench):
    provider = KIND.build(bench.config, bench.clock)
    yield provider
    await provider.close()


def changed(bench: SshBench, **changes: object) -> SshSettings:
    return SshSettings.model_validate({**bench.config.settings.model_dump(), **changes})


# ---- settings ----------------------------------------------------------------------------------------------


def test_the_registry_finds_it():
    assert kind("ssh").settings is SshSettings


def test_a_missing_sdk_names_what_to_install(monkeypatch):
    monkeypatch.setattr("providers.ssh.provider.find_spec", lambda name: None)
    with pytest.raises(MissingSdk, match=r'pip install "\.\[ssh\]" in a checkout'):
        KIND.build(type("Config", (), {"name": "lab", "settings": SshSettings()})(), None)


def test_finding_the_kind_does_not_import_its_sdk():
    code = "import sys, providers.ssh; sys.exit('asyncssh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({}, "host_key"),
        ({"host_key": "AAAA"}, "host_key"),
        ({"user": "root; reboot"}, "user"),
        ({"name": "Attic 1"}, "name"),
        (
            {"slots": 2, "gpu": {"vendor": "amd", "model": "gfx942", "devices": [["/dev/kfd"]]}},
            "1 lists for 2 slots",
        ),
        ({"gpu": {"vendor": "amd", "model": "gfx942", "devices": [["/etc/shadow"]]}}, "devices"),
    ],
)
def test_what_a_host_may_not_be(host, words):
    whole = {**HOST, **host} if host else {key: value for key, value in HOST.items() if key != "host_key"}
    with pytest.raises(ValidationError, match=words):
        SshSettings.model_validate({"hosts": [whole]})


def test_two_hosts_of_one_name_are_refused():
    with pytest.raises(ValidationError, match="two are called 'attic'"):
        SshSettings.model_validate({"hosts": [HOST, HOST]})


def test_a_host_sells_its_slots(bench):
    gpu = {"vendor": "amd", "model": "gfx942", "count": 2, "devices": [["/dev/dri/renderD128"]] * 3}
    host = {**HOST, "slots": 3, "gpu": gpu, "disk_gib": 100, "arch": "arm64"}
    config = replace(bench.config, settings=changed(bench, hosts=[host]))
    (offer,) = KIND.catalogue(config)
    assert (offer.region, offer.zone, offer.instance_type) == ("attic", "attic", "slot-4c-8g-2xgfx942-arm64")
    assert (offer.count, offer.list_price, offer.elastic_disk) == (3, None, False)
    assert (offer.hardware.memory_mib, offer.hardware.disk_gib) == (8192, 100)


# ---- one job, really ---------------------------------------------------------------------------------------


@pytest.fixture
async def daemon():
    daemon = bootstrap.Daemon()
    app = web.Application()
    app.router.add_post("/runner/v1/r0/stages", daemon.on_stage)
    app.router.add_get("/runner/v1/r0/jit", daemon.on_jit)
    app.router.add_get("/runner.tar.gz", daemon.on_download)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    daemon.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield daemon
    await runner.cleanup()


async def launch_job(bench: SshBench, daemon: bootstrap.Daemon, steps: str, **changes: object):
    """A machine whose GitHub runner is a shell script with these steps."""
    machine = bootstrap.Machine(bench.folder, daemon, {}, {"runner": {}})
    machine.job(repository="octo/app", steps=steps)
    package = {"url": f"{daemon.url}/runner.tar.gz", "sha256": {"x64": machine.plan["runner"]["sha256"]}}
    config = replace(bench.config, settings=changed(bench, runner=package))
    provider = KIND.build(config, bench.clock)
    boot = {**bench.boot, "url": daemon.url, "token": bootstrap.TOKEN}
    made = await provider.launch(bench.spec(1, boot=json.dumps(boot), **changes))
    return provider, made


async def ended(provider) -> None:
    async with asyncio.timeout(30):
        while not (await provider.instances())[0].orphans:  # noqa: ASYNC110 - the host tells only when asked
            await asyncio.sleep(0.1)


async def test_a_job_runs_in_a_slot_and_leaves_nothing(bench, daemon):
    steps = f"""
    echo "uid $(id -u)" > {bench.folder}/seen 2>/dev/null || echo "nothing outside can be written"
    ls /home /root; ps -e 2>/dev/null | wc -l; sleep 600 & disown
    """
    provider, made = await launch_job(bench, daemon, steps)
    await ended(provider)
    assert daemon.names() == ["booted", "registered", "started", "finished", "exited"]
    assert daemon.detail("exited") == "run.sh ended with 0"
    assert not (bench.folder / "seen").exists()
    assert bench.running() == set()  # not even what the job left behind
    await provider.terminate(made.ref)
    assert await provider.instances() == []
    assert [path.name for path in bench.folder.glob("slots/*/*")] == []
    await provider.close()


async def test_the_timer_of_the_host_ends_a_job_that_never_ends(bench, daemon):
    provider, _ = await launch_job(bench, daemon, "sleep 600", lifetime_ms=3_000)
    await ended(provider)
    assert "finished" not in daemon.names()
    assert bench.running() == set()
    await provider.close()


# ---- slots and leases --------------------------------------------------------------------------------------


async def test_each_machine_has_its_own_slot_and_a_full_host_has_no_capacity(bench, provider):
    await asyncio.gather(provider.launch(bench.spec(1)), provider.launch(bench.spec(2)))
    assert len(bench.leases()) == 2
    with pytest.raises(NoCapacity, match=r"lab: host attic: all 2 slots are in use"):
        await provider.launch(bench.spec(3))
    await provider.terminate(f"attic/{bench.spec(1).runner_id}")
    await provider.launch(bench.spec(3))


async def test_a_launch_that_comes_after_its_end_begins_nothing(bench, provider):
    """Sent, no answer, given up and terminated; then it arrives after all."""
    bench.sshd.fault = "late"
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1))
    bench.sshd.fault = ""
    await provider.terminate(f"attic/{bench.spec(1).runner_id}")
    bench.sshd.arrive()
    assert await bench.machines() == []


async def test_a_lease_without_its_machine_is_begun_again(bench, provider):
    """The host stopped between the lease and the start."""
    await provider.launch(bench.spec(1))
    (file,) = bench.folder.glob("slots/*/lease.json")
    lease = json.loads(file.read_text())
    Bubblewrap().stop(str(file.parent / lease["name"]), lease["name"])
    file.write_text(json.dumps({**lease, "started": False}))
    assert [one.orphans for one in await provider.instances()] == [()]
    await provider.launch(bench.spec(1))
    assert await bench.machines() == [bench.spec(1).runner_id]
    assert len(bench.leases()) == 1


async def test_a_slot_that_is_not_clean_is_out_of_use(bench, provider, tmp_path):
    """A process that outlives the job keeps the GPU: the slot cools, its host sells one slot less."""
    devices = [tmp_path / "gpu0", tmp_path / "gpu1"]
    for device in devices:
        device.touch()
    made = await provider.launch(bench.spec(1))
    request = {
        "call": "terminate",
        "fleet": "fleet",
        "runner_id": bench.spec(1).runner_id,
        "folder": str(bench.folder),
        "launcher": "bubblewrap",
        "slots": [{"devices": [str(device)]} for device in devices],
    }
    with devices[0].open():  # this very process holds it
        assert f"processes [{os.getpid()}] still hold its devices" in call(request)["cooled"]
        probed = call({**request, "call": "probe"})
        assert list(probed["cooled"]) == ["0"]
    assert list(call({**request, "call": "probe"})["cooled"]) == ["0"]  # half an hour at least
    assert [offer.count for offer in await provider.offers()] == [1]
    await provider.terminate(made.ref)


def call(request: dict) -> dict:
    """The program on the host, run as the constant command runs it."""
    program = slots_program()
    data = b"%d\n" % len(program) + program + json.dumps(request).encode()
    done = subprocess.run(["/bin/sh", "-c", COMMAND], input=data, capture_output=True, check=True)
    return json.loads(done.stdout)


async def test_nothing_from_a_policy_or_a_job_reaches_a_shell(bench, provider):
    evil = "$(touch pwned); `touch pwned` ' \" \n | touch pwned"
    made = await provider.launch(bench.spec(1, runner_type=evil, fund=evil))
    assert (made.tags["autoscaler-type"], made.tags["autoscaler-fund"]) == (evil, evil)
    (seen,) = await provider.instances()
    assert seen.tags == made.tags
    assert list(bench.folder.parent.rglob("pwned")) == []
    assert not any(TOKEN in word for line in command_lines().values() for word in line)


def test_i11_the_launch_data_is_readable_by_its_owner_alone(bench, tmp_path):
    request = {"call": "probe", "folder": str(tmp_path), "launcher": "bubblewrap", "slots": [], "fleet": "f"}
    assert call(request)["cpus"] == os.cpu_count()
    write(str(tmp_path / "boot.json"), "secret", 0o600)
    assert (tmp_path / "boot.json").stat().st_mode & 0o777 == 0o600


def test_a_transient_unit_is_closed_on_every_side():
    """systemd.exec(5), systemd.resource-control(5); `systemd-analyze verify` knows every one of them."""
    request = {"lifetime_s": 600, "cpus": 4, "memory_mib": 8192, "devices": ["/dev/nvidia0"]}
    command = Systemd().command("/var/lib/autoscaler/slots/0/fleet-r0", "fleet-r0", request)
    properties = [word.removeprefix("--property=") for word in command if word.startswith("--property=")]
    assert "--unit=autoscaler-fleet-r0" in command
    for wanted in (
        "DynamicUser=yes",
        "StateDirectory=autoscaler-fleet-r0",
        "RuntimeMaxSec=600",
        "KillMode=control-group",
        "CPUQuota=400%",
        "MemoryMax=8192M",
        "DevicePolicy=closed",
        "DeviceAllow=/dev/nvidia0 rw",
        "ProtectHome=yes",
    ):
        assert wanted in properties
    assert command[-3:] == [
        "-I",
        "/var/lib/autoscaler/slots/0/fleet-r0/machine.py",
        "/run/credentials/autoscaler-fleet-r0.service",
    ]


@pytest.mark.parametrize(("user", "launcher", "sudo"), [("ci", "systemd", True), ("root", "systemd", False)])
def test_units_are_started_by_root(bench, user, launcher, sudo):
    settings = changed(bench, launcher=launcher, hosts=[{**bench.host, "user": user}])
    assert Client("lab", settings.hosts[0], settings)._command == ("sudo -n " if sudo else "") + COMMAND


def test_calls_at_the_same_time_are_ordered_by_one_lock(bench):
    """Two daemons, or a replay beside its original: one slot, one winner."""
    from providers.ssh.request import launch_request

    settings = bench.config.settings
    answers: list[dict] = []

    def launch(number: int) -> None:
        answers.append(call(launch_request(bench.spec(number % 3), settings, settings.hosts[0])))

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.leases()) == 2
    assert sum(answer.get("error") == "no_capacity" for answer in answers) == 2
