"""The command line against a real API: documents, exit codes, one readable line for every mistake."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscaler import settings
from autoscaler.cli import help as cli_help
from autoscaler.cli import main as cli
from autoscaler.cli.main import main
from scheduling.world import PAUSED
from tests.api.serving import Served, serving, token
from tests.api.worlds import Fleet

SETTINGS = Path(settings.__file__).read_text(encoding="utf-8")
LISTS = {"status": "summary", "jobs": "jobs", "runners": "runners", "providers": "providers", "funds": "funds"}


class Terminal:
    """Runs commands as a person would; `main` blocks, so the server goes on beside it."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """(stdout, stderr) of one command that ends with `code`."""
        try:
            found = await asyncio.to_thread(main, list(arguments))
        except SystemExit as left:
            found = int(left.code or 0)
        out, err = self._capsys.readouterr()
        assert found == code, (out, err)
        assert "Traceback" not in err
        return out, err

    async def json(self, *arguments: str) -> Any:
        return json.loads((await self.run(*arguments, "--json"))[0])


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


@pytest.fixture
def asked(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setenv("AUTOSCALER_API_URL", served.url)
    return served


# ---- asking a daemon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", LISTS)
async def test_json_of_a_list_equals_its_get(asked: Served, terminal: Terminal, command: str) -> None:
    assert await terminal.json(command) == await asked.get(LISTS[command])


async def test_filters_and_pages_are_passed_on(asked: Served, terminal: Terminal) -> None:
    arguments = ("jobs", "--state", "in_progress", "--repository", "octo/models", "--limit", "3")
    found = await terminal.json(*arguments)
    assert found == await asked.get("jobs?state=in_progress&repository=octo/models&limit=3")
    assert len(found["jobs"]) == 3
    rest = await terminal.json(*arguments, "--after", found["next"])
    assert not {job["id"] for job in rest["jobs"]} & {job["id"] for job in found["jobs"]}
    gone = await terminal.json("runners", "--state", "gone", "--type", "linux.large", "--provider", "aws")
    assert gone == await asked.get("runners?state=gone&runner_type=linux.large&provider=aws")


async def test_people_see_what_matters(asked: Served, terminal: Terminal) -> None:
    out, err = await terminal.run("status")
    for shown in (
        "fleet ci",
        "unroutable",
        "linux.gpu@repo:octo/models",
        "rocm-lab runs its max_runners 2",
        "no capacity for c5.4xlarge",
        "linux.smal",
        "would expire unused",
    ):
        assert shown in out, shown
    assert err == ""
    assert "mi300 (9)" in (await terminal.run("jobs"))[0]
    assert "go on with --after" in (await terminal.run("jobs", "--limit", "2"))[0]
    assert "busy" in (await terminal.run("runners"))[0]
    assert "2 of 2" in (await terminal.run("providers"))[0]
    assert "old-grant" in (await terminal.run("funds"))[0]


async def test_k29_why(asked: Served, terminal: Terminal) -> None:
    out, _ = await terminal.run("why", "2308")
    assert "No offer can serve it now. The best, rocm-lab/sim-1a/mi300-slot/on_demand: rocm-lab runs its" in out
    assert await terminal.json("why", "2308") == await asked.get("jobs/2308")
    assert "Spent by repository" in (await terminal.run("why", "fund:gcp-gift"))[0]
    assert await terminal.json("why", "fund:gcp-gift") == await asked.get("funds/gcp-gift")
    _, err = await terminal.run("why", "4711", code=1)
    assert err.startswith("autoscaler: no job 4711 is known")
    await terminal.run("why", "../../healthz", code=1)


async def test_text_of_strangers_cannot_move_the_cursor_or_style(asked: Served, terminal: Terminal) -> None:
    asked.fleet.job(9000, ("\x1b]0;owned\x07", "[bold red]x"), name="\x1b[2J[link=http://evil]x")
    asked.fleet.plan()
    for arguments in (("why", "9000"), ("jobs",), ("status",)):
        out, _ = await terminal.run(*arguments)
        assert "\x1b" not in out
        assert "\x07" not in out
    assert "[bold red]x" in (await terminal.run("why", "9000"))[0]


async def test_switches(fleet: Fleet, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(fleet, (token("ann", "write"), token("bob", "read"))) as served:
        monkeypatch.setenv("AUTOSCALER_API_URL", served.url)
        _, err = await terminal.run("pause", code=1)
        assert "name the file with your token in AUTOSCALER_API_TOKEN_FILE" in err
        secret = tmp_path / "token"
        monkeypatch.setenv("AUTOSCALER_API_TOKEN_FILE", str(secret))
        secret.write_text("bob-token\n")
        assert "may only read" in (await terminal.run("pause", code=1))[1]
        secret.write_text("ann-token\n")
        assert "the fleet is paused" in (await terminal.run("pause"))[0]
        assert fleet.world.switches == {PAUSED: "ann"}
        assert "the fleet is resumed" in (await terminal.run("resume"))[0]
        assert await terminal.json("drain", "provider:aws") == {"target": "provider:aws", "on": True, "by": "ann"}
        assert fleet.world.switches == {"provider:aws": "ann"}
        assert "provider:aws is open again" in (await terminal.run("undrain", "provider:aws"))[0]
        assert "did you mean provider:aws" in (await terminal.run("drain", "provider:awss", code=1))[1]


async def test_no_daemon_is_one_clear_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCALER_API_URL", "http://127.0.0.1:9")
    for command in ("status", "why 1", "pause"):
        out, err = await terminal.run(*command.split(), code=1)
        assert out == ""
        assert re.fullmatch(r"autoscaler: no daemon answers at http://127.0.0.1:9 \(.*\); start .*\n", err)


async def test_what_is_no_daemon_is_told(
    asked: Served, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCALER_API_URL", f"{asked.url}/nowhere")
    assert "404" in (await terminal.run("status", code=1))[1]
    monkeypatch.setenv("AUTOSCALER_API_URL", "ftp://x")
    assert "AUTOSCALER_API_URL" in (await terminal.run("status", code=1))[1]


# ---- usage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "statuss",
        "why",
        "drain",
        "drain aws",
        "jobs --limit 0",
        "jobs --state nowhere",
        "jobs --js",
        "demo --speed 0",
        "demo --jobs x",
        "serve --role boss",
        "replay x",
        "replay f --to ftp://x --secret-file s",
        "policy",
        "policy explain f --labels a --repository x",
        "policy explain f --labels a --repository o/r --at yesterday",
        "policy explain f --labels a --repository /",
        "record from-github --repository ../..",
        "record from-github --repository o/r --out .",
        "backtest --from-github o/r/s",
        "serve --poll o/..",
    ],
)
async def test_wrong_usage_ends_with_2(terminal: Terminal, arguments: str) -> None:
    out, err = await terminal.run(*arguments.split(), code=2)
    assert out == ""
    assert "autoscaler" in err


@pytest.mark.parametrize("command", [[], *(name.split() for name in cli_help.COMMANDS)], ids=" ".join)
async def test_every_command_has_help(terminal: Terminal, command: list[str]) -> None:
    out, _ = await terminal.run(*command, "--help")
    assert len(out.splitlines()) > 5
    assert max(map(len, out.splitlines())) <= 120
    if command and command not in (["serve"], ["host", "join"], ["host", "run"]):
        assert "--json" in out


async def test_help_names_every_variable_of_the_environment(terminal: Terminal) -> None:
    out, _ = await terminal.run("--help")
    known = set(re.findall(r"\bAUTOSCALER_[A-Z_]+\b", SETTINGS))
    later = {"AUTOSCALER_GITHUB_TOKEN_FILE"}  # of `record`, which is not there yet
    assert set(re.findall(r"\bAUTOSCALER_[A-Z_]+\b", out)) == known - later


def test_errors_that_are_shown_as_they_are_exist() -> None:
    from autoscaler import secrets_file
    from autoscaler.cli import client
    from autoscaler.github import errors as github_errors
    from autoscaler.policy import tree as policy_tree
    from autoscaler.store import embedded
    from autoscaler.store import link as redis_link
    from providers import base

    rooms = (client, embedded, github_errors, policy_tree, redis_link, secrets_file, base)
    assert all(any(hasattr(room, name) for room in rooms) for name in cli.READABLE)


def test_help_and_client_commands_load_no_server() -> None:
    """What makes a start slow stays out: aiohttp, pydantic, prometheus, uvloop, githubkit."""
    program = (
        "import sys; from autoscaler.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "slow = {'aiohttp', 'pydantic', 'prometheus_client', 'uvloop', 'githubkit'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    for arguments in (["--help"], ["status"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True, text=True, check=True, env={"AUTOSCALER_API_URL": "http://127.0.0.1:9"},
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[]"


def test_module_and_pipe() -> None:
    """`python -m autoscaler` works, and a reader that leaves early causes no traceback."""
    done = subprocess.run(
        f"{sys.executable} -m autoscaler policy schema | head -c 10; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == '{\n  "$sche'
    assert "Traceback" not in done.stderr


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("autoscaler 0.")
