"""The ingest benchmark runs, and finds every 202 in the stream. Its figures are judged by people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ingest.py"


def test_the_benchmark_runs() -> None:
    command = [sys.executable, str(BENCHMARK), "--rounds", "1", "--requests", "200", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["stored"] == {"everysec": 400, "always": 400}  # the warm-up included
    assert document["wrong"] == []
    assert 7_000 <= document["body_bytes"] <= 8_200
    for kinds in document["results"].values():
        assert set(kinds) == {"matched", "unmatched", "forged"}
        for figures in kinds.values():
            assert set(figures) == {"requests_per_s", "p50_ms", "p99_ms", "cpu_ms"}
