"""All benchmarks, one after the other, each run a process of its own with a limit of time; then one table.

    python -m benchmarks.bench [--quick] [--only NAME,NAME] [--out build/bench.json]

Writes what they found after every run, so that nothing is lost when it is stopped, and prints the table as
Markdown. `--quick`: small sizes, a quarter of an hour in all; without it hours. `--only` leaves the other runs in
the file as they are. A run that fails, or takes too long, is a row that says so, and the exit code is 1.
`python -m benchmarks.bench_table build/bench.json` puts the table where readers find it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bench_figures import BENCHMARKS, Benchmark, Run
from benchmarks.bench_table import Result, markdown

ROOT = Path(__file__).parents[1]
GRACE_S = 15.0


def measure(benchmark: Benchmark, run: Run, sizes: str) -> Result:
    """One run, with when and where it was."""
    result: Result = {
        "benchmark": benchmark.name,
        "arguments": run.arguments,
        "sizes": sizes,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": commit(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
    }
    began = time.monotonic()
    document, failed = outcome(
        [sys.executable, "-m", f"benchmarks.{benchmark.name}", *run.arguments.split(), "--json"], run.limit_s
    )
    found = []
    if document is not None:
        try:
            found = [asdict(figure) for figure in benchmark.figures(document)]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            failed = failed or f"its document is not as expected: {type(error).__name__} {error}"
    took = {"seconds": round(time.monotonic() - began, 1), "failed": failed}
    return result | took | {"figures": found, "document": document}


def outcome(command: list[str], limit_s: float) -> tuple[Any, str]:
    """The JSON document that a command prints, or None, and what went wrong, or ""."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return None, f"stopped after {limit_s:,.0f} s"
    except BaseException:
        _end(process)
        raise
    try:
        document = json.loads(out)
    except ValueError:
        last = (err.strip().splitlines() or ["it printed no JSON document"])[-1]
        return None, f"exit {process.returncode}: {last[:160]}"
    return document, f"exit {process.returncode}: a promise is broken" if process.returncode else ""


def _end(process: subprocess.Popen[str]) -> None:
    """The process and what it started, first asked, then told."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=GRACE_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue


def commit() -> str:
    """Short, with + where files differ from it."""
    try:
        short, changed = (
            subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return short + ("+" if changed else "")


def machine() -> str:
    return f"{os.cpu_count()} cores ({_model()}), {platform.system()}, Python {platform.python_version()}"


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in BENCHMARKS]
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", metavar="NAMES", help=f"of {','.join(names)}")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench.json", help="default build/bench.json")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else names
    if unknown := set(wanted) - set(names):
        parser.error(f"--only: no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results = []
    if args.only and args.out.exists():
        kept = json.loads(args.out.read_text(encoding="utf-8"))["runs"]
        results = [result for result in kept if result["benchmark"] not in wanted]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for benchmark in (each for each in BENCHMARKS if each.name in wanted):
        for run in benchmark.quick if args.quick else benchmark.full:
            print(f"{benchmark.name} {run.arguments}: ", end="", file=sys.stderr, flush=True)
            results.append(measure(benchmark, run, "quick" if args.quick else "full"))
            print(
                f"{results[-1]['failed'] or 'done'}, {results[-1]['seconds']:.0f} s", file=sys.stderr, flush=True
            )
            results.sort(key=lambda result: names.index(result["benchmark"]))
            args.out.write_text(json.dumps({"runs": results}, indent=1) + "\n", encoding="utf-8")
    print(markdown(results), end="")
    return 1 if any(result["failed"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
