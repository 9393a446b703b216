"""A small storm: replicas and their Redis killed while jobs run. `make storm` is the large one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.storm import storm
from benchmarks.storm_report import Storm


async def test_nothing_is_lost_doubled_or_leaked_in_a_small_storm() -> None:
    with tempfile.TemporaryDirectory(prefix="storm-") as name:
        report = await storm(
            Storm(jobs=40, kills=4, speed=10, seed=3, limit_s=100, server_s=5, spot_share=0), Path(name)
        )
    assert not report.broken, report
    assert report.jobs == 40
    assert report.leader_kills >= 4
    assert report.server_kills
    assert report.repairs >= report.leader_kills
