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
    assert [attempt for attempt in refused if "refused" not in attempt["stages"]] == []
