"""How soon `autoscaler serve` with one aws provider is ready, and what it takes at rest.

    python -m benchmarks.start [--python PYTHON] [--rest SECONDS] [--json]

Ready: from the start of the process until /readyz answers 200. At rest: resident memory of the daemon after it has
led and listed its provider for a while, and beside it that of its embedded Valkey. EC2 and GitHub are here and
answer at once. The floor, measured in the same run: a Python that imports aiohttp and ends. PYTHON is that of an
installation to measure, for example one with the aws extra alone:

    python -m venv V && V/bin/pip install --no-deps -r requirements-demo.lock . && V/bin/pip install boto3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from autoscaler.clock import Clock
from autoscaler.sandbox.surroundings import Surroundings
from benchmarks.launch import CREDENTIALS, POLICY
from benchmarks.slow_ec2 import IMAGE, SUBNET, TYPE, ZONE, SlowEc2

WAIT_S = 60.0
RUNS = 3


async def measure(python: str, rest_s: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        around, ec2 = Surroundings(Clock(), Path(name), fleet="bench"), SlowEc2(0.0, _nothing)
        await ec2.start()
        settings = json.dumps({"subnets": {"us-east-1": {ZONE: SUBNET}}})
        today = time.strftime("%Y-%m-%d", time.gmtime())
        text = POLICY.format(today=today, url=ec2.url, settings=settings, image=IMAGE, type=TYPE)
        await around.start(lambda _: text, ["bench"])
        env = {**os.environ, **CREDENTIALS, **around.environment()}
        url = f"http://{env['AUTOSCALER_LISTEN']}"
        try:
            floor = min([await _floor(python, env) for _ in range(RUNS)])
            ready = [await _start(python, env, url, None) for _ in range(RUNS - 1)]
            last = await _start(python, env, url, rest_s)
            found = {key: last[key] for key in ("daemon_mb", "valkey_mb")}
            best = min([last, *ready], key=lambda each: each["ready_s"])
            ratio = round(best["ready_s"] / floor, 1)
            return {
                "ready_s": best["ready_s"],
                "cpu_s": best["cpu_s"],
                "floor_s": round(floor, 3),
                "ratio": ratio,
                **found,
            }
        finally:
            await ec2.close()
            await around.close()


async def _nothing(boot: str) -> None:
    pass


async def _floor(python: str, env: dict[str, str]) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(python, "-c", "import aiohttp.web", env=env)
    assert await process.wait() == 0
    return time.perf_counter() - began


async def _start(python: str, env: dict[str, str], url: str, rest_s: float | None) -> dict[str, float]:
    """One start; its memory `rest_s` after it was ready, unless None."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(python, "-m", "autoscaler", "serve", env=env)
    try:
        async with asyncio.timeout(WAIT_S), aiohttp.ClientSession() as session:
            while process.returncode is None and not await _is_ready(session, url):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert process.returncode is None, "serve ended: see what it says above"
        found = {"ready_s": round(time.perf_counter() - began, 3), "cpu_s": cpu_s(process.pid)}
        if rest_s is not None:
            await asyncio.sleep(rest_s)
            found["daemon_mb"] = resident_mb(process.pid)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()  # noqa: ASYNC240
            found["valkey_mb"] = round(sum(resident_mb(int(pid)) for pid in children), 1)
        return found
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def cpu_s(pid: int) -> float:
    """Processor time of a process so far: what a start takes on a machine that has nothing else to do."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB (10^6 bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="whose installation is measured")
    parser.add_argument(
        "--rest", type=float, default=15.0, help="seconds until memory is read (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    found = asyncio.run(measure(args.python, args.rest))
    print(
        json.dumps(found, indent=2) if args.json else "  ".join(f"{key} {value}" for key, value in found.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
