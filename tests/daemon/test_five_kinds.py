"""One fleet over all five kinds: real SDKs against moto, the stand-ins, a cluster for tests and a real sshd."""

from __future__ import annotations

import collections
import tempfile
import time
from pathlib import Path

import pytest

from autoscaler.verify import verify
from scheduling.lifecycle import JobState
from tests.daemon.accounts import KINDS, accounts
from tests.daemon.place import until

pytestmark = pytest.mark.needs("sshd", "bwrap")

JOBS = 300
PATIENCE_S = 240.0
CAPS = {"ssh": 2, "kubernetes": 20, "gcp": 20, "aws": 20, "azure": 60}


@pytest.mark.timeout(400)
async def test_300_jobs_run_on_five_kinds_and_nothing_disagrees() -> None:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        async with accounts(Path(name), 10.0, CAPS) as found:
            place = found.place
            replica = await place.leading()
            began = time.monotonic()
            for _ in range(10):
                place.push(JOBS // 10, seconds=20)
                await place.clock.sleep(2_500)
            await until(place.done, PATIENCE_S)
            print(f"{JOBS} jobs in {time.monotonic() - began:.1f} s")
            world = replica.daemon.world
            assert world
            await until(lambda: all(job.state is JobState.COMPLETED for job in world.jobs.values()))
            ran = collections.Counter(runner.offer.provider for runner in world.runners.values() if runner.running)
            print(dict(ran))
            assert sum(ran.values()) == JOBS
            assert set(ran) == set(KINDS)
            providers = replica.daemon.parts.providers
            assert await verify(replica.store, "test", providers, replica.github, second_look_s=2.0) == []
