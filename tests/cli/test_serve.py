"""`serve` and `verify` from the command line: what cannot start says why in one line; the rest agrees."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.cli.main import main
from autoscaler.clock import Clock
from autoscaler.policy.file import load
from autoscaler.sandbox.demo_world import OWNERS, policy_text
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env


@pytest.fixture
async def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Surroundings]:
    """Everything that `serve` needs, and its environment set."""
    clock = Clock(speed=30)
    found = Surroundings(clock, tmp_path, seed=1)
    await found.start(lambda url: policy_text(seed=1, clouds_url=url, now_ms=clock.now_ms()), OWNERS)
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    yield found
    await found.close()


async def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> tuple[str, str]:
    found = await asyncio.to_thread(main, list(arguments))
    out, err = capsys.readouterr()
    assert found == code, (out, err)
    assert "Traceback" not in err
    return out, err


async def test_what_is_missing_is_named(
    around: Surroundings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    around.policy_path.write_text("version: 1\nprovidrs: {}\n")
    assert f"{around.policy_path}:2" in (await run(capsys, "serve", code=1))[1]
    assert "nope.yaml" in (await run(capsys, "serve", "--policy", "nope.yaml", code=1))[1]
    for name in ("AUTOSCALER_FLEET_KEY_FILE", "AUTOSCALER_WEBHOOK_SECRET_FILE", "AUTOSCALER_GITHUB_APPS_FILE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/nowhere/file")
            _, err = await run(capsys, "serve", code=1)
            assert err.startswith(f"autoscaler: {name}: /nowhere/file cannot be read")
    monkeypatch.delenv("AUTOSCALER_POLICY")
    assert "AUTOSCALER_POLICY is not set" in (await run(capsys, "serve", code=1))[1]


async def test_a_port_in_use_is_named(
    around: Surroundings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("AUTOSCALER_LISTEN", address)
        _, err = await run(capsys, "serve", code=1)
    assert f"cannot listen on {address}" in err
    assert "AUTOSCALER_LISTEN" in err


async def test_verify_beside_a_running_daemon(around: Surroundings, capsys: pytest.CaptureFixture[str]) -> None:
    """It shares the embedded server with the daemon that owns it."""
    loaded = load(around.policy_path, around.clock.now_ms())
    replica = Replica(from_env(around.environment()), loaded, around.clock)
    await replica.start()
    try:
        out, _ = await run(capsys, "verify", code=0)
        assert out == "store, clouds and GitHub agree\n"
        assert (await run(capsys, "verify", "--json", code=0))[0] == '{\n  "disagreements": []\n}\n'
    finally:
        await replica.stop()
    out, _ = await run(capsys, "verify", code=0)
    assert out == "store, clouds and GitHub agree\n"
