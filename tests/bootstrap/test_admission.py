"""Admission at job start: a refused job runs no step, whatever its runner does with the hook's exit code."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path

from providers.bootstrap import PROGRAMS, program
from tests.bootstrap.admitting import KINDS

ATTEMPTS = 120
"""Each of eleven kinds of refusal ten times, and as often a job that may run."""
AT_ONCE = 5


async def attempts(first: int, count: int) -> list[dict[str, object]]:
    folder = Path(tempfile.mkdtemp(prefix="admit-"))  # short: a Unix socket's path has 107 bytes at most
    try:
        for name, path in PROGRAMS.items():
            copy = folder / Path(path).name
            copy.write_bytes(program(name))
            copy.chmod(0o755)
        script = Path(__file__).with_name("admitting.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", script, folder, str(first), str(count),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout
        async with asyncio.timeout(120):
            said = await process.stdout.read()
            await process.wait()
        return json.loads(said.splitlines()[-1])
    finally:
        shutil.rmtree(folder)


async def test_a_refused_job_runs_no_step_in_a_hundred_attempts():
    each = ATTEMPTS // AT_ONCE
    done = await asyncio.gather(*(attempts(number * each, each) for number in range(AT_ONCE)))
    found = [attempt for part in done for attempt in part]
    refused = [attempt for attempt in found if attempt["kind"] in KINDS]
    allowed = [attempt for attempt in found if attempt["kind"] == "allowed"]
    assert len(refused) == 110
    assert [attempt for attempt in refused if attempt["steps"]] == []
    assert {attempt["steps"] for attempt in allowed} == {"step\nstep\n"}
    assert {"started"} == {stage for attempt in allowed for stage in attempt["stages"]}
    told = [attempt for attempt in refused if "refused" in attempt["stages"]]
    assert len(told) > 0.9 * len(refused)  # it says so if it can: the job's end may come first


async def test_a_notice_runner_says_why_and_runs_no_step(machine, daemon):
    """Names are strangers': what GitHub's runner would take for a command is not one any more."""
    machine.boot["notice"] = True
    daemon.notice = "Waits for a free place: linux runs its limit of 2 runners.\n::set-env name=X::y\n##[error]no"
    machine.job("pytorch/pytorch")  # access lets it in
    assert await machine.run() == ["booted", "registered", "refused", "exited"]
    assert machine.steps == ""
    log = (machine.home / "hook.log").read_text().splitlines()
    assert log[0] == "Waits for a free place: linux runs its limit of 2 runners."
    assert log[-1] == "autoscaler refused this job: it waited longer than the deadline"
    assert not [line for line in log if "::" in line or "##[" in line]


async def test_a_notice_runner_ends_the_job_even_if_the_daemon_says_nothing(machine, daemon):
    machine.boot["notice"] = True
    machine.job("pytorch/pytorch")
    assert "refused" in await machine.run()
    assert machine.steps == ""
    assert "waited longer than the deadline" in daemon.detail("refused")
