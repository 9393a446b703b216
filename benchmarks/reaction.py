"""From a webhook to the cloud: how long until `provider.launch` is entered.

    python -m benchmarks.reaction [--idle N] [--burst N] [--json]

One process runs the whole replica (receiver, embedded Valkey with AOF, daemon) beside the simulated cloud and the
client, so the figures include the client's own work. Idle: one signed delivery at a time. Burst: all at once, with
the launch rate unbounded. The floor, measured in the same run: the same deliveries until their 202.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import uvloop

from autoscaler.clock import Clock
from autoscaler.effects import Parts
from autoscaler.policy.file import load
from autoscaler.sandbox.surroundings import Surroundings
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from providers.base import FundBalance, Instance, LaunchSpec, Provider
from scheduling.model import Offer

POLICY = """
version: 1
providers:
  bench: {{kind: sim, endpoint: "{url}", price: 0 USD/h}}
defaults: {{access: {{repositories: ["bench/*"], forks: allow}}}}
runner_types:
  linux: {{labels: [self-hosted, linux], hardware: {{os: linux, arch: x64, cpus: 2}}}}
"""
WAIT_S = 30.0


class Watched:
    """A provider that notes when a launch is entered, for which runner."""

    def __init__(self, provider: Provider, entered: dict[str, float]) -> None:
        self._provider, self._entered = provider, entered

    async def launch(self, spec: LaunchSpec) -> Instance:
        self._entered.setdefault(spec.runner_id, time.perf_counter())
        return await self._provider.launch(spec)

    async def offers(self) -> Sequence[Offer]:
        return await self._provider.offers()

    async def terminate(self, ref: str) -> None:
        await self._provider.terminate(ref)

    async def instances(self) -> Sequence[Instance]:
        return await self._provider.instances()

    async def balance(self) -> FundBalance | None:
        return await self._provider.balance()

    async def close(self) -> None:
        await self._provider.close()


def delivery(job_id: int, secret: bytes) -> tuple[bytes, dict[str, str]]:
    """A signed `queued` delivery of about 7 KB, as GitHub sends it."""
    body = json.dumps(
        {
            "action": "queued",
            "workflow_job": {
                "id": job_id,
                "run_id": job_id,
                "run_attempt": 1,
                "status": "queued",
                "labels": ["self-hosted", "linux"],
                "name": "build",
                "workflow_name": "ci",
                "head_branch": "main",
            },
            "repository": {"full_name": "bench/app", "description": "x" * 7000},
        }
    ).encode()
    signature = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    return body, {
        "X-GitHub-Event": "workflow_job",
        "X-GitHub-Delivery": str(job_id),
        "X-Hub-Signature-256": signature,
        "Content-Type": "application/json",
    }


class Bench:
    """One replica under test and the times of its launches."""

    def __init__(self, replica: Replica, url: str, secret: bytes) -> None:
        self.replica, self.url, self.secret = replica, url, secret
        self.entered: dict[str, float] = {}
        self.answered: list[float] = []

    async def send(self, session: aiohttp.ClientSession, job_id: int) -> float:
        """When it was sent."""
        body, headers = delivery(job_id, self.secret)
        sent = time.perf_counter()
        async with session.post(f"{self.url}/webhooks/github", data=body, headers=headers) as response:
            assert response.status == 202, await response.text()
        self.answered.append((time.perf_counter() - sent) * 1000)
        return sent

    async def launched(self, job_ids: Sequence[int]) -> dict[int, float]:
        """When the launch of each job was entered."""
        deadline = time.perf_counter() + WAIT_S
        while time.perf_counter() < deadline:
            world = self.replica.daemon.world
            runners = world.runners if world else {}
            found = {
                int(runners[key].launched_for.split(".")[0]): at
                for key, at in self.entered.items()
                if key in runners and runners[key].launched_for
            }
            if found.keys() >= set(job_ids):
                return found
            await asyncio.sleep(0.002)
        raise TimeoutError("not every job was launched for")


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(idle: int, burst: int) -> dict[str, object]:
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="reaction-") as name:
        surroundings = Surroundings(clock, Path(name), fleet="bench")
        await surroundings.start(lambda url: POLICY.format(url=f"{url}/bench"), ["bench"])
        env = surroundings.environment()
        loaded = load(surroundings.policy_path, clock.now_ms())
        replica = Replica(from_env(env), loaded, clock)
        secret = Path(env["AUTOSCALER_WEBHOOK_SECRET_FILE"]).read_bytes()  # noqa: ASYNC240  - before anything is measured
        bench = Bench(replica, f"http://{env['AUTOSCALER_LISTEN']}", secret)
        parts = replica.daemon.parts
        watched = {name: Watched(provider, bench.entered) for name, provider in parts.providers.items()}
        replica.daemon.parts = Parts(parts.policy, watched)
        await replica.start()
        try:
            while not (world := replica.daemon.world) or world.gates or not world.offers:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                return {"idle": await _idle(bench, session, idle), "burst": await _burst(bench, session, burst)}
        finally:
            await replica.stop()
            await surroundings.close()


async def _idle(bench: Bench, session: aiohttp.ClientSession, count: int) -> dict[str, object]:
    latencies = []
    for job_id in range(1, count + 1):
        sent = await bench.send(session, job_id)
        latencies.append(((await bench.launched([job_id]))[job_id] - sent) * 1000)
    floor = bench.answered[-count:]
    return {
        "jobs": count,
        "p50_ms": round(statistics.median(latencies), 2),
        "p99_ms": round(quantile(latencies, 0.99), 2),
        "answer_p50_ms": round(statistics.median(floor), 2),
        "ratio_p50": round(statistics.median(latencies) / statistics.median(floor), 2),
    }


async def _burst(bench: Bench, session: aiohttp.ClientSession, count: int) -> dict[str, object]:
    job_ids = range(1_000_000, 1_000_000 + count)
    bench.answered.clear()
    began = time.perf_counter()
    await asyncio.gather(*(bench.send(session, job_id) for job_id in job_ids))
    answered_s = time.perf_counter() - began
    found = await bench.launched(job_ids)
    all_s = max(found[job_id] for job_id in job_ids) - began
    return {
        "jobs": count,
        "all_answered_s": round(answered_s, 3),
        "all_entered_s": round(all_s, 3),
        "ratio": round(all_s / answered_s, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--idle", type=int, default=300, help="deliveries sent one at a time (default %(default)s)"
    )
    parser.add_argument("--burst", type=int, default=256, help="deliveries sent at once (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    args = parser.parse_args()
    found = uvloop.run(measure(args.idle, args.burst))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, figures in found.items():
        print(name, "  ".join(f"{key} {value}" for key, value in figures.items()))  # type: ignore[attr-defined]
    return 0


if __name__ == "__main__":
    sys.exit(main())
