"""`backtest --from-github` as somebody calls it who has nothing but a repository: GitHub's stand-in over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.recording.test_record_from_github import Github, serving

HOUR_MS = 3_600_000
RUNS = 12
ROOT = Path(__file__).parents[2]

Call = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def github() -> AsyncIterator[Github]:
    """Twelve runs of the last two days; a third of the jobs is on Windows."""
    found = Github()
    now_ms = int(time.time() * 1000)
    for number in range(RUNS):
        labels = (["ubuntu-latest"], ["self-hosted", "linux", "gpu: A100"], ["windows-2025"])[number % 3]
        found.add(number + 1, now_ms - (number + 2) * 4 * HOUR_MS, labels=labels)
    async with serving(found):
        yield found


@pytest.fixture
def call(github: Github, tmp_path: Path) -> Call:
    async def call(*arguments: str, token: str = "") -> asyncio.subprocess.Process:
        env = os.environ | {"PYTHONPATH": str(ROOT), "AUTOSCALER_GITHUB_URL": github.url}
        if token:
            (tmp_path / "token").write_text(f"{token}\n")
            env["AUTOSCALER_GITHUB_TOKEN_FILE"] = "token"
        command = [sys.executable, "-m", "autoscaler", "backtest", "--from-github", *arguments]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe)

    return call


async def said(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_without_a_token_two_examples_say_what_it_would_have_cost(
    github: Github, call: Call, tmp_path: Path
) -> None:
    code, out, err = await said(await call("octo/app", "--since", "7d"))
    assert code == 0, err
    assert github.tokens == {""}
    for words in ("A on-demand.yaml", "B spot.yaml", "half started within", "cash", "Where the dollars come from"):
        assert words in out
    assert "jobs completed" in out
    assert "jobs that are not ours (ignore_labels)" in out
    assert "A label ubuntu-* is taken as" in err
    directory = tmp_path / "backtest-octo-app"
    assert sorted(path.name for path in directory.iterdir()) == ["events.jsonl.gz", "on-demand.yaml", "spot.yaml"]
    last = err.strip().splitlines()[-1].split()
    assert last[:2] == ["autoscaler", "backtest"]
    policy = directory / "spot.yaml"
    policy.write_text(policy.read_text().replace("boot_seconds: 45", "boot_seconds: 300"))
    again = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *last, "--json", cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    code, out, err = await said(again)
    assert code == 0, err
    found = json.loads(out)
    assert found["a"]["jobs"]["completed"] == RUNS * 2 // 3
    assert found["a"]["not_ours"] == RUNS // 3
    assert found["difference"]["queue_seconds"]["p50"] > 100


async def test_a_token_is_used_and_told_to_nobody(github: Github, call: Call, tmp_path: Path) -> None:
    code, out, err = await said(await call("octo/app", "--json", token="ghp_secret"))
    assert code == 0, err
    assert github.tokens == {"Bearer ghp_secret"}
    assert json.loads(out)["b"]["jobs"]["completed"] == RUNS * 2 // 3
    assert "ghp_secret" not in out + err
    assert not any(b"ghp_secret" in path.read_bytes() for path in (tmp_path / "backtest-octo-app").iterdir())


async def test_the_budget_ends_half_way_and_the_same_command_goes_on(
    github: Github, call: Call, tmp_path: Path
) -> None:
    github.limit, github.left, github.reset_s = 60, 6, int(time.time()) + 1800
    process = await call("octo/app")
    assert process.stderr
    line = (await process.stderr.readline()).decode()
    assert "used up (60 an hour; with a token GitHub allows 5,000 an hour): going on in " in line
    process.send_signal(signal.SIGINT)
    code, out, err = await said(process)
    assert (code, out) == (130, "")
    assert err == "stopped; the same command goes on from here\n"
    asked = len(github.asked)
    github.left = 60
    code, out, err = await said(await call("octo/app", "--json"))
    assert code == 0, err
    assert json.loads(out)["a"]["jobs"]["completed"] == RUNS * 2 // 3
    assert len(github.asked) - asked == 1 + RUNS - 5  # the list, and the runs that were not fetched before


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "a private one needs a token that may read its Actions, in a file that AUTOSCALER_GITHUB_TOKEN_FILE"),
        ("ghp_secret", "the token must be allowed to read its Actions"),
    ],
)
async def test_a_repository_that_github_does_not_show(token: str, says: str, call: Call) -> None:
    code, out, err = await said(await call("octo/private", token=token))
    assert (code, out) == (1, "")
    assert "autoscaler: GitHub shows no runs of octo/private (404). Is that its name? If so, " in err
    assert says in err


async def test_nothing_ran_in_that_time(call: Call) -> None:
    code, _, err = await said(await call("octo/app", "--since", "1h"))
    assert code == 1
    assert "octo/app had no jobs in that time; --since names a longer one" in err
