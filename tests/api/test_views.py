"""The order of jobs is kept between looks, whatever comes and goes."""

from __future__ import annotations

import random
from pathlib import Path

from autoscaler.views import jobs_and_runners as views
from autoscaler.views.newest import mark_of, newest_first
from scheduling.messages import RecordsForgotten
from scheduling.world import World
from tests.api.worlds import Fleet


def test_newest_first_whatever_comes_and_goes(tmp_path: Path) -> None:
    fleet, rng = Fleet(tmp_path), random.Random(7)
    for _ in range(60):
        for _ in range(rng.randrange(12)):
            fleet.now_ms += rng.randrange(3) * 10
            fleet.job(rng.randrange(1_000_000))
        for key in rng.sample(sorted(fleet.world.jobs), min(len(fleet.world.jobs), rng.randrange(8))):
            fleet.tell(RecordsForgotten(fleet.now_ms, (key,)))
        expected = sorted(fleet.world.jobs.values(), key=mark_of, reverse=True)
        assert list(newest_first(fleet.world)) == expected
        if expected:
            mark = mark_of(rng.choice(expected))
            assert list(newest_first(fleet.world, mark)) == [job for job in expected if mark_of(job) < mark]


def test_a_restored_world_has_the_same_order(tmp_path: Path) -> None:
    fleet, rng = Fleet(tmp_path), random.Random(7)
    for _ in range(200):
        fleet.now_ms += rng.randrange(5) * 1000
        fleet.job(rng.randrange(1_000_000))
    restored = World("ci")
    restored.restore([("job", key, job) for key, job in fleet.world.jobs.items()])
    assert [job.key for job in newest_first(restored)] == [job.key for job in newest_first(fleet.world)]


def test_the_latest_attempt_is_found_by_id(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.job(7)
    first = fleet.world.jobs["7.1"]
    assert views.find_job(fleet.view(), "7") is first
    fleet.job(7, attempt=3)
    assert views.find_job(fleet.view(), "7").key == "7.3"
    assert views.find_job(fleet.view(), "7.1") is first
