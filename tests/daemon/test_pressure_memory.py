"""Back-pressure in a daemon of its own: deliveries that cannot be stored cost no memory that stays."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest_asyncio

from tests.daemon.place import Place, in_real_time, until

BODY_BYTES = 40_000
WAVE = 400
GROWTH_MB = 12.0
"""Of four waves after the first one; kept, their bodies alone would be 64 MB."""


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    async with in_real_time() as found:
        yield found


def resident_mb(pid: int) -> float:
    [kib] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


async def wave(place: Place, number: int) -> set[int]:
    """So many large signed deliveries at once; the statuses of their answers."""
    secret = (place.directory / "webhook.secret").read_bytes().strip()

    async def deliver(session: aiohttp.ClientSession, job_id: int) -> int:
        job = {"id": job_id, "run_id": 1, "labels": ["self-hosted", "linux"], "status": "queued"}
        document = {"action": "queued", "workflow_job": job, "repository": {"full_name": "octo/app"}}
        body = json.dumps({**document, "x": "x" * BODY_BYTES}).encode()
        headers = {
            "X-GitHub-Event": "workflow_job",
            "X-GitHub-Delivery": f"wave-{job_id}",
            "X-Hub-Signature-256": "sha256=" + hmac.digest(secret, body, "sha256").hex(),
        }
        async with session.post(f"{place.url}/webhooks/github", data=body, headers=headers) as answer:
            return answer.status

    connector = aiohttp.TCPConnector(limit=WAVE)
    async with aiohttp.ClientSession(connector=connector) as session:
        jobs = range(number * WAVE, (number + 1) * WAVE)
        return set(await asyncio.gather(*(deliver(session, job_id) for job_id in jobs)))


async def listening(place: Place) -> None:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{place.url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def test_deliveries_while_redis_hangs_leave_no_memory_behind(place: Place) -> None:
    serving = await place.process()
    async with asyncio.timeout(30):
        await listening(place)
    redis = int(Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()[0])  # noqa: ASYNC240
    os.kill(redis, signal.SIGSTOP)
    try:
        assert await wave(place, 0) == {503}
        before = resident_mb(serving.pid)
        for number in range(1, 5):
            assert await wave(place, number) == {503}
        assert resident_mb(serving.pid) - before < GROWTH_MB
    finally:
        os.kill(redis, signal.SIGCONT)
    place.push(3, seconds=1)
    await until(place.done)
    serving.terminate()
    assert await serving.wait() == 0
