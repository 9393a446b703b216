"""What only hosts that call us have: silence, pauses, kept work, and the way in."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from autoscaler.clock import Clock
from autoscaler.store.keys import Keys
from autoscaler.store.store import Store
from providers.base import NoCapacity, Transient
from providers.ssh import KIND, SshSettings, caller
from providers.ssh.outbound import UNHEARD_MS
from providers.ssh.packed import caller_program
from providers.ssh.provider import LAG_MS, _instance
from tests.providers.outbound_bench import joined
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

HOST = {"name": "attic", "cpus": 1, "memory_gib": 1}
SHA256 = "0" * 64
needs_bwrap = pytest.mark.needs("bwrap")


@pytest.fixture
async def bench(clock, tmp_path):
    async with joined(clock, tmp_path) as bench:
        yield bench


async def go_silent(bench: Any) -> None:
    """As when a minute has passed."""
    bench.stop()
    await bench.store._link.call("DEL", Keys("fleet").heard("lab/attic"))


# ---- settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"hosts": [{**HOST, "host_key": "ssh-ed25519 AAAA"}]},
            "hosts.0.host_key: hosts of `reach: outbound` call us",
        ),
        ({"hosts": [{**HOST, "address": "10.0.0.1"}]}, "hosts.0.address: hosts of `reach: outbound` call us"),
        ({"key_file": "/etc/key"}, "key_file: hosts of `reach: outbound` call us; remove it"),
        ({"sponsors": {"alice": "secret"}}, "sponsors.alice"),
        ({"sponsors": {"alice": SHA256, "bob": SHA256}}, "two have the same token"),
        ({"reach": "ssh", "sponsors": {"alice": SHA256}}, "join tokens are for `reach: outbound`"),
        ({"reach": "ssh", "hosts": [HOST]}, "hosts.0.host_key: expected the public host key of attic"),
    ],
)
def test_each_way_in_has_its_settings(settings, words):
    with pytest.raises(ValidationError) as refused:
        SshSettings.model_validate({"reach": "outbound", **settings})
    assert words in str(refused.value)


def test_hosts_that_call_us_need_no_sdk(monkeypatch):
    monkeypatch.setattr("providers.ssh.provider.find_spec", lambda name: None)
    settings = SshSettings.model_validate({"reach": "outbound", "hosts": [HOST]})
    KIND.build(type("Config", (), {"name": "lab", "settings": settings, "board": None})(), Clock())


# ---- silence -----------------------------------------------------------------------------------------------


@needs_bwrap
async def test_a_silent_host_has_no_capacity_and_keeps_its_machines(bench):
    provider = KIND.build(bench.config, bench.clock)
    made = await provider.launch(bench.spec(1))
    await go_silent(bench)
    assert [one.ref for one in await provider.instances()] == [made.ref]
    other = KIND.build(bench.config, bench.clock)  # another replica, which never heard of it
    assert [one.ref for one in await other.instances()] == [made.ref]
    with pytest.raises(NoCapacity, match="host attic is away: it has not called for"):
        await provider.launch(bench.spec(2))
    assert await provider.offers() == []
    bench.clock.skipped_ms = 600_000 + 120_000 + 1_000  # its own timer has ended it by now
    assert await other.instances() == []


@needs_bwrap
async def test_what_ends_while_its_host_is_silent_ends_when_it_is_back(bench):
    provider = KIND.build(bench.config, bench.clock)
    made = await provider.launch(bench.spec(1))
    await go_silent(bench)
    with pytest.raises(Transient, match=r"host attic is away; .* ends when it is back"):
        await provider.terminate(made.ref)
    assert len(await bench.machines()) == 1
    bench.start("run")
    await bench.heard()
    await provider.terminate(made.ref)
    assert await bench.machines() == []


async def test_a_host_that_never_joined_holds_up_the_list_for_two_minutes(clock, tmp_path):
    store = Store(f"embedded:{tmp_path}", "fleet", b"a fleet key of at least 32 bytes")
    await store.open()
    settings = SshSettings.model_validate({"reach": "outbound", "hosts": [HOST]})
    with_board: dict[str, Any] = {
        "settings": settings,
        "board": store.hosts(clock),
        "name": "lab",
        "fleet": "fleet",
    }
    provider = KIND.build(type("Config", (), with_board)(), clock)
    with pytest.raises(Transient, match="host attic is away: it has not joined; `autoscaler host join` on it"):
        await provider.instances()
    clock.skipped_ms = UNHEARD_MS + 1
    assert await provider.instances() == []
    await provider.terminate("attic/r" + "0" * 20)
    await store.close()


# ---- switches ----------------------------------------------------------------------------------------------


@needs_bwrap
async def test_a_paused_host_takes_nothing_and_ends_nothing(bench):
    provider = KIND.build(bench.config, bench.clock)
    made = await provider.launch(bench.spec(1))
    await bench.board.switch("lab/attic", "paused", "alice")
    with pytest.raises(NoCapacity, match="host attic is paused by alice"):
        await provider.launch(bench.spec(2))
    assert await provider.offers() == []
    assert [one.ref for one in await provider.instances()] == [made.ref]
    assert (await provider.launch(bench.spec(1))).ref == made.ref  # a replay
    await bench.board.switch("lab/attic", "paused", "")
    assert [offer.count for offer in await provider.offers()] == [2]


async def keeps(bench: SshBench, provider: Any, board: Any) -> None:
    """Its runner cannot be downloaded: the machine never comes up."""
    made = await provider.launch(bench.spec(1))
    await board.switch("lab/attic", "keep_minutes", 30)
    await provider.terminate(made.ref)
    assert await bench.machines() == []
    assert await provider.instances() == []
    (work,) = bench.folder.glob("slots/0/*/work")
    assert not (work.parent / "boot.json").exists()
    assert [offer.count for offer in await provider.offers()] == [1]


@needs_bwrap
async def test_what_a_failed_machine_leaves_is_kept_on_a_host_that_calls_us(bench):
    await keeps(bench, KIND.build(bench.config, bench.clock), bench.board)


@pytest.mark.needs("sshd", "bwrap")
async def test_what_a_failed_machine_leaves_is_kept_on_a_host_that_we_call(clock, tmp_path):
    pytest.importorskip("asyncssh", reason="asyncssh is not installed")
    store = Store(f"embedded:{tmp_path / 'redis'}", "fleet", b"a fleet key of at least 32 bytes")
    await store.open()
    with Sshd(tmp_path) as sshd:
        bench = SshBench(sshd, clock, tmp_path)
        provider = KIND.build(replace(bench.config, board=store.hosts(clock)), clock)
        await keeps(bench, provider, store.hosts(clock))
        await provider.close()
        bench.close()
    await store.close()


# ---- the program -------------------------------------------------------------------------------------------


def test_the_program_needs_nothing_but_python_and_can_be_read():
    text = caller_program()
    assert b"\n    def terminate(self)" in text
    done = subprocess.run(["/usr/bin/python3", "-I", "-", "--help"], input=text, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"join" in done.stdout


def test_joining_installs_a_unit_that_ends_no_job_when_it_stops(tmp_path, monkeypatch, capsys):
    unit, calls = tmp_path / "autoscaler-host.service", tmp_path / "calls"
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(caller, "UNIT", str(unit))
    assert caller.install("https://ci.example.org", "/var/lib/autoscaler") == 0
    assert (
        "ExecStart=/usr/bin/python3 -I /var/lib/autoscaler/host.py run --folder /var/lib/autoscaler"
        in unit.read_text()
    )
    assert "KillMode=process" in unit.read_text()
    assert calls.read_text().split("\n")[:3] == [
        "daemon-reload",
        "enable --quiet autoscaler-host",
        "restart autoscaler-host",
    ]
    assert "journalctl -u autoscaler-host" in capsys.readouterr().out


def test_a_host_that_has_not_joined_says_what_to_do(tmp_path: Path, capsys):
    assert caller.run(str(tmp_path)) == 1
    assert "`autoscaler host join URL TOKEN` makes it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "said"), [("http://127.0.0.1:1", "does not answer"), ("nonsense", "does not answer: unknown url type")]
)
def test_a_daemon_that_is_not_there_is_named(tmp_path, capsys, url, said):
    assert caller.join(url, "token", "attic", str(tmp_path)) == 1
    err = capsys.readouterr().err
    assert f"{url} {said}" in err
    assert "is this the daemon's address?" in err


@pytest.mark.parametrize(
    ("told_ms", "taken_ms"), [(10**16, 10**12), (0, 10**12 - 3_600_000 - LAG_MS), (10**12, 10**12)]
)
def test_a_host_cannot_make_a_machine_older_or_younger_than_it_can_be(told_ms: int, taken_ms: int) -> None:
    host = SshSettings(reach="outbound", hosts=[HOST], sponsors={"alice": SHA256}).hosts[0]
    lease = {"runner_id": "r1", "instance_type": "host", "launched_ms": told_ms, "lifetime_s": 3600, "tags": {}}
    assert _instance(host, lease, 10**12).launched_ms == taken_ms
