"""From 200 queued jobs to 200 machines with a registration, where every API call takes 200 ms.

    python -m benchmarks.launch [--machines N] [--latency MS] [--json]

`autoscaler serve` is a process of its own with boto3 and its defaults; EC2, GitHub and the machines, which boot at
once, are here. Both APIs answer each call after the latency. The floor is what N calls take at the least:
N / concurrency x latency, for the narrower of the two APIs, with the concurrency that the daemon allows itself.
GitHub's own limit of registrations a minute is held off by several Apps, as a fleet of that size needs them.
`loop_starved_s` is how long the daemon's loop waited for a processor: where it is not near 0, other programs were
measured, too.
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
from types import SimpleNamespace

import aiohttp

from autoscaler.clock import Clock
from autoscaler.effects import CONCURRENCY, GITHUB_CONCURRENCY
from autoscaler.sandbox.github_faults import Fault
from autoscaler.sandbox.github_records import JobRequest
from autoscaler.sandbox.surroundings import Surroundings
from benchmarks.slow_ec2 import IMAGE, SUBNET, TYPE, ZONE, SlowEc2
from providers.aws.client import THREADS

POLICY = """\
version: 1
funds: {{grant: {{credit: 100000 USD, until: 2090-01-01, spent: {{amount: 0 USD, as_of: {today}}}}}}}
providers:
  aws: {{kind: aws, regions: [us-east-1], endpoint: "{url}", settings: {settings}}}
images: {{runner: {{aws: {image}}}}}
defaults: {{image: runner, access: {{repositories: ["bench/*"], forks: allow}}}}
runner_types:
  linux:
    labels: [self-hosted, linux]
    hardware: {{os: linux, cpus: 2}}
    offers: [{{provider: aws, instance_types: [{type}]}}]
"""
APPS = 5  # x 60 registrations a minute, which a fresh App may be asked for
WAIT_S = 120.0
REST_CPU_S = 0.1  # a second
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}


async def measure(machines: int, latency_ms: int) -> dict[str, float | int]:
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="launch-") as name:
        folder = Path(name)
        around = Surroundings(clock, folder, fleet="bench")
        ec2 = SlowEc2(latency_ms / 1000, lambda boot: _run(around, boot))
        await ec2.start()
        today = time.strftime("%Y-%m-%d", time.gmtime())
        settings = json.dumps({"subnets": {"us-east-1": {ZONE: SUBNET}}})
        text = POLICY.format(today=today, url=ec2.url, settings=settings, image=IMAGE, type=TYPE)
        await around.start(lambda _: text, ["bench"])
        _more_apps(around, folder)
        around.github.faults.rules.append(Fault(path="/[!_]*", latency_ms=latency_ms))
        env = {**os.environ, **CREDENTIALS, **around.environment()}
        daemon = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "autoscaler", "serve", env=env, stderr=(folder / "log").open("wb")
        )
        url = f"http://{env['AUTOSCALER_LISTEN']}"
        try:
            await _ready(url)
            await _at_rest(daemon.pid)
            around.announce_to(url)
            ran, starved = scheduled_s(daemon.pid)
            found = await _burst(around, ec2, machines, latency_ms)
            now_ran, now_starved = scheduled_s(daemon.pid)
            return {
                **found,
                "loop_ran_s": round(now_ran - ran, 2),
                "loop_starved_s": round(now_starved - starved, 2),
            }
        except TimeoutError:
            print((folder / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            daemon.kill()
            await daemon.wait()
            await ec2.close()
            await around.close()


async def _run(around: Surroundings, boot: str) -> None:
    spec = SimpleNamespace(boot=boot, offer=SimpleNamespace(provider="aws"))
    await around.machines.run(SimpleNamespace(spec=spec, boot_fails=False))  # type: ignore[arg-type]


def _more_apps(around: Surroundings, folder: Path) -> None:
    listed = (folder / "apps.yaml").read_text()
    for number in range(2, APPS + 1):
        (folder / f"app-{number}.pem").write_text(around.github.new_app(str(number), ["bench"]))
        listed += f"- {{app_id: {number}, private_key_file: app-{number}.pem}}\n"
    (folder / "apps.yaml").write_text(listed)


async def _ready(url: str) -> None:
    """Until the daemon leads and knows what the provider sells."""
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/api/v1/providers") as answer:
                    listed = await answer.json()
                    if answer.status == 200 and _sells(listed):
                        return
            except (aiohttp.ClientError, ValueError):
                pass
            await asyncio.sleep(0.1)


async def _at_rest(pid: int) -> None:
    """Until what a start brings along (imports, first lists) is over."""
    before = -1.0
    while (now := scheduled_s(pid)[0]) - before > REST_CPU_S:
        before = now
        await asyncio.sleep(1)


def scheduled_s(pid: int) -> tuple[float, float]:
    """How long a process's main thread has run, and how long it was ready and had no processor."""
    ran, starved, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(starved) / 1e9


def _sells(listed: dict[str, list[dict[str, int]]]) -> bool:
    return all(provider["offers"] for provider in listed["providers"])


async def _burst(around: Surroundings, ec2: SlowEc2, machines: int, latency_ms: int) -> dict[str, float | int]:
    began = asyncio.get_running_loop().time()
    jobs = [JobRequest(f"job {n}", ("self-hosted", "linux"), duration_ms=3_600_000) for n in range(machines)]
    around.github.add_run("bench/app", jobs)
    created = registered = 0.0
    async with asyncio.timeout(WAIT_S):
        while not registered:
            await asyncio.sleep(0.005)
            now = asyncio.get_running_loop().time()
            if len(ec2.launches) >= machines:
                created = created or ec2.launches[machines - 1] - began
            if len(around.github.registrations()) >= machines:
                registered = now - began
    narrowest = min(CONCURRENCY, THREADS, GITHUB_CONCURRENCY)
    floor = machines / narrowest * latency_ms / 1000
    return {
        "machines": machines,
        "latency_ms": latency_ms,
        "concurrency": narrowest,
        "first_created_s": round(ec2.launches[0] - began, 3),
        "all_created_s": round(created, 3),
        "all_registered_s": round(registered, 3),
        "floor_s": round(floor, 3),
        "ratio": round(registered / floor, 2),
        "calls_at_once": ec2.busy_most,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=200, help="jobs at once (default %(default)s)")
    parser.add_argument("--latency", type=int, default=200, help="of every API call, in ms (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    found = asyncio.run(measure(args.machines, args.latency))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    print("  ".join(f"{key} {value}" for key, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
