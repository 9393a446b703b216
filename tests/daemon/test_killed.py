"""kill -9 of `autoscaler serve` in the middle of a replay: nothing lost, nothing doubled, nothing left (K25)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.daemon.place import Place, until

JOBS = 200
KILLS = 3


@pytest.mark.timeout(420)
async def test_k25_killed_in_a_200_job_replay_and_restarted() -> None:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        place = Place(Path(name), speed=1.0, boot_seconds=0.5)
        await place.open()
        try:
            await _replay(place)
        finally:
            await place.close()


async def _replay(place: Place) -> None:
    serving = await place.process()
    for kill in range(KILLS):
        before = sum(job.state == "completed" for job in place.around.github.jobs())
        for _ in range(JOBS // KILLS + (kill < JOBS % KILLS)):
            place.push(1, seconds=1.0)
            await asyncio.sleep(0.01)
        await until(lambda: sum(j.state == "completed" for j in place.around.github.jobs()) > before, 90)  # noqa: B023
        serving.kill()
        await serving.wait()
        serving = await place.process()
    await until(place.at_rest, 200)
    github = place.around.github
    assert len(github.jobs()) == JOBS
    assert not github.never_ran()
    assert not github.doubled()
    serving.terminate()
    assert await serving.wait() == 0
