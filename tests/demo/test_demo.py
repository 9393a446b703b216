"""The demo end to end: daemon, Valkey, GitHub stand-in, accounts and machines over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from sys import executable
from typing import Any

import aiohttp

from autoscaler.sandbox.demo import Demo, DemoOptions
from autoscaler.sandbox.summary import document, healthy
from providers.sim.cloud import Fate

SMALL = DemoOptions(jobs=20, seed=1, speed=150, exit=True)


async def run(options: DemoOptions, directory: Path) -> tuple[Mapping[str, Any], dict[str, list[Fate]]]:
    """The document of one demo, and the first fates of every account."""
    demo = Demo(options, directory)
    try:
        await demo.start()
        async with asyncio.timeout(60):
            await demo.until_done(asyncio.Event())
        fates = {name: [cloud.fate(n) for n in range(50)] for name, cloud in demo.surroundings.clouds.items()}
        return document(demo.outcome()), fates
    finally:
        await demo.close()


async def test_every_job_runs_and_two_runs_of_one_seed_show_the_same(tmp_path: Path) -> None:
    (one, fates), (two, same_fates) = await asyncio.gather(run(SMALL, tmp_path / "a"), run(SMALL, tmp_path / "b"))
    for found in (one, two):
        assert healthy(found), found
        assert found["jobs"]["completed"] == found["jobs"]["total"] == 20
        assert found["cost_usd"]["overrun"] == "0.000000"
    assert fates == same_fates
    assert one["jobs"]["by_provider"] == two["jobs"]["by_provider"]
    # ten small jobs may run at aws and at gcp: the gift that ends in a week pays for them all
    assert one["jobs"]["by_provider"] == {"arm-cloud": 3, "aws": 5, "gcp": 10, "rocm-lab": 2}
    assert set(one["cost_usd"]["by_fund"]) == {"aws-grant", "cash", "gcp-gift"}


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`autoscaler demo` as a person runs it."""
    pipe = asyncio.subprocess.PIPE
    made = await asyncio.create_subprocess_exec(
        executable, "-m", "autoscaler", "demo", *arguments, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        if made.returncode is None:
            made.kill()
            await made.wait()


async def test_json_is_the_only_thing_on_stdout() -> None:
    async with command("--jobs", "3", "--speed", "150", "--exit", "--json") as demo:
        out, err = await demo.communicate()
    assert demo.returncode == 0, err
    assert json.loads(out)["jobs"]["completed"] == 3
    assert b"Dashboard  http://127.0.0.1:" in err


async def test_it_goes_on_until_somebody_stops_it() -> None:
    async with command("--speed", "150") as demo:
        assert demo.stderr
        assert demo.stdout
        line = (await demo.stderr.readline()).decode()
        url = line.split()[1]
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            assert "<title>" in await (await session.get(url)).text()
            stream = await session.get(f"{url}api/v1/stream")
            async for line in stream.content:
                if line.startswith(b"data: {") and json.loads(line[6:])["jobs"]["completed"]:
                    break
        demo.send_signal(signal.SIGINT)
        out, _ = await demo.communicate()
    assert demo.returncode == 0
    text = out.decode()
    assert "Stopped: " in text
    assert "$ autoscaler why 25" in text


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with command("--port", str(port), "--exit") as demo:
            out, err = await demo.communicate()
    assert demo.returncode == 1
    assert out == b""
    assert f"http://127.0.0.1:{port}".encode() in err
    assert b"name another with --port" in err
    assert b"Traceback" not in err
