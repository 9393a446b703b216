"""`make bench`: what becomes of a run that fails, and how figures become a table. No figure is measured here."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench, bench_table
from benchmarks.bench_figures import BENCHMARKS, TELLING, Benchmark, Figure, Run

ROOT = Path(__file__).parents[2]


def result(*figures: Figure, **more: Any) -> dict[str, Any]:
    known = {
        "benchmark": "plan", "arguments": "--ticks 50", "sizes": "quick", "date": "2026-11-30 12:00 UTC",
        "commit": "abc1234", "machine": "2 cores (Some CPU), Linux, Python 3.11.7", "load": 0.5, "seconds": 61.2,
        "failed": "", "figures": [asdict(figure) for figure in figures], "document": None,
    }  # fmt: skip
    return known | more


def rows(markdown: str) -> list[list[str]]:
    lines = [line.strip("| ") for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split(" | ")] for line in lines]


def test_a_table_shows_growth_aims_floors_and_what_they_were_measured_on() -> None:
    look, memory = "one look: p50", "memory"
    markdown = bench_table.markdown(
        [
            result(
                Figure(look, "1,000 queued", 4.2, "ms", floor=4.2, floor_is="itself"),
                Figure(memory, "1,000 queued", 90, "MB", at_most=100),
            ),
            result(
                Figure(look, "100,000 queued", 7.347, "ms", at_most=5, floor=4.2, floor_is="at 1,000"),
                Figure(memory, "100,000 queued", 1234.5, "MB", at_most=1300),
            ),
            result(Figure("stored", "32 a|time", 10_928, "/s", at_least=6900), benchmark="ingest"),
        ]
    )
    found = rows(markdown)
    assert "| plan | one look: p50 | 1,000 queued | 4.2 ms |  | 4.2 ms (itself) | 1 |" in markdown
    assert (
        "| plan | one look: p50 | 100,000 queued | **7.35 ms** ✗ | ≤ 5 ms | 4.2 ms (at 1,000) | 1.75 |" in markdown
    )
    assert "| plan | memory | 100,000 queued | 1,234 MB | ≤ 1,300 MB |  |  |" in markdown
    assert "| ingest | stored | 32 a/time | 10,928/s | ≥ 6,900/s |  |  |" in markdown
    assert [row[1] for row in found if row[0] == "plan"] == [look, look, memory, memory]
    assert "2026-11-30, commit abc1234, 2 cores (Some CPU), Linux, Python 3.11.7, quick sizes" in markdown
    assert "3 of 4 aims are met" in markdown
    assert "| `python -m benchmarks.plan --ticks 50` | 61 s | 0.5 | 2026-11-30 12:00 UTC | abc1234 |" in markdown


def test_a_run_that_failed_is_a_row_that_says_so() -> None:
    markdown = bench_table.markdown([result(failed="stopped after 300 s")])
    assert "| plan | **failed** | `--ticks 50` | stopped after 300 s |" in markdown


@pytest.mark.parametrize(
    ("program", "document", "failed"),
    [
        ("print('{}')", {}, ""),
        ("print('{}'); raise SystemExit(1)", {}, "exit 1: a promise is broken"),
        ("raise OSError('no room')", None, "exit 1: OSError: no room"),
        ("print('12 jobs')", None, "exit 0: it printed no JSON document"),
    ],
)
def test_how_a_run_ends(program: str, document: object, failed: str) -> None:
    assert bench.outcome([sys.executable, "-c", program], 60) == (document, failed)


def test_a_run_over_its_time_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = "import os, threading\n"
    child += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nthreading.Event().wait()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    document, failed = bench.outcome([sys.executable, "-c", program], 2)
    assert (document, failed) == (None, "stopped after 2 s")
    pid = tmp_path / "pid"
    command = Path(f"/proc/{pid.read_text() if pid.exists() else 0}/cmdline")
    assert not command.exists() or not command.read_bytes()  # an ended one that nobody waited for has none


def test_a_document_of_another_form_is_a_failure() -> None:
    trace = Benchmark("trace", BENCHMARKS[0].figures, (), ())
    found = bench.measure(trace, Run("--help", 60), "quick")
    assert "it printed no JSON document" in found["failed"] or "exit" in found["failed"]
    assert found["figures"] == []


def test_every_benchmark_is_a_module_that_prints_json() -> None:
    for each in BENCHMARKS:
        text = (ROOT / f"benchmarks/{each.name}.py").read_text(encoding="utf-8")
        assert '"--json"' in text, each.name
        assert each.full
    assert {name for name, _, _ in TELLING} <= {each.name for each in BENCHMARKS}


def test_the_readme_shows_the_published_results() -> None:
    readme = bench_table.README.read_text(encoding="utf-8")
    kept = bench_table.KEPT
    results = json.loads(kept.read_text(encoding="utf-8"))["runs"] if kept.exists() else []
    assert bench_table.PART.search(readme)
    if results:
        assert bench_table.with_part(readme, results) == readme
        assert bench_table.markdown(results) == bench_table.RESULTS.read_text(encoding="utf-8")


def test_the_readme_gets_the_figure_that_has_an_aim() -> None:
    stored = TELLING[0][1]
    figures = [
        Figure(stored, "8 at once", 9000, "/s"),
        Figure(stored, "32 at once", 10_928, "/s", at_least=6900, floor=8662, floor_is="nothing stored"),
        Figure(stored, "128 at once", 11_000, "/s"),
    ]
    part = bench_table.with_part(
        "before\n<!-- generated: bench -->\nold\n<!-- end -->\nafter\n", [result(*figures, benchmark="ingest")]
    )
    assert f"| {stored} (32 at once) | 10,928/s | ≥ 6,900/s | 8,662/s (nothing stored) | 318/s |" in part
    assert "old" not in part
    assert part.startswith("before\n<!-- generated: bench -->\n")
    assert part.endswith("<!-- end -->\nafter\n")
    with pytest.raises(ValueError, match="has no"):
        bench_table.with_part("# autoscaler", [])
