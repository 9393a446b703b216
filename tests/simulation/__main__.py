"""`python -m tests.simulation`: run many schedules, or replay one and tell its story. Exit 1 on a violation."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable

from tests.simulation import faults
from tests.simulation.world import Outcome, simulate

ROWS = (
    "before the webhook is stored",
    "stored, before the 202",
    "after commit, before create",
    "inside create, outcome unknown",
    "created, not recorded",
    "machine never boots",
    "JIT created, answer lost",
    "JIT stored, poll answer lost",
    "JIT given, never registered",
    "DELETE done, not terminated",
    "job done, not terminated",
    "terminate unknown",
    "half-way through settlement",
    "Redis lost its tail or all",
    "replica paused past its lease",
    "policy reload during a launch",
)
"""Points at which a replica can die, and what each leaves behind."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default 2)")
    parser.add_argument("--seed", type=int, help="replay this one and tell its story")
    parser.add_argument("--about", help="only lines of the story that match this pattern")
    options = parser.parse_args()
    prepare()
    if options.seed is not None:
        return replay(options.seed, options.about)
    return run(range(options.first, options.first + options.schedules), options.processes)


def prepare() -> None:
    """Log lines are for replays, and a collected task of a killed replica has nothing to say."""
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None
    gc.freeze()


def run(seeds: range, processes: int) -> int:
    began = time.monotonic()
    hits: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    steps = jobs = 0
    slowest, simulated_s, recovery_s = 0.0, 0.0, 0.0
    failed: list[Outcome] = []
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=20) as pool:
        for outcome, took in pool.imap_unordered(_timed, seeds, chunksize=10):
            hits.update(outcome.hits)
            rows.update(outcome.rows)
            steps, jobs = steps + outcome.steps, jobs + outcome.jobs
            simulated_s += outcome.simulated_s
            recovery_s = max(recovery_s, outcome.recovery_s)
            slowest = max(slowest, took)
            if outcome.violations:
                failed.append(outcome)
                print(f"seed {outcome.seed}: {outcome.violations[0]}", flush=True)
                print(f"  replay: {command(outcome.seed)}", flush=True)
    took = time.monotonic() - began
    print(f"{len(seeds)} schedules, {jobs} jobs, {steps} steps, {simulated_s / 3600:.0f} simulated hours")
    print(
        f"{took:.0f} s on {processes} processes, {took * processes / len(seeds):.3f} s a schedule, "
        f"{slowest:.1f} s at most"
    )
    print(f"longest way to rest after the last fault: {recovery_s / 60:.1f} simulated minutes")
    _table("faults", hits, faults.KINDS)
    _table("rows of the crash matrix", rows, ROWS)
    print(f"{len(failed)} schedules broke a promise")
    return 1 if failed else 0


def _timed(seed: int) -> tuple[Outcome, float]:
    began = time.monotonic()
    outcome = simulate(seed)
    return outcome, time.monotonic() - began


def _table(title: str, found: Counter[str], names: Iterable[str]) -> None:
    print(f"{title}:")
    for name in sorted(set(names) | set(found)):
        print(f"  {found[name]:8d}  {name}")


def command(seed: int) -> str:
    return f"python -m tests.simulation --seed {seed}"


def replay(seed: int, about: str | None) -> int:
    """The story of one schedule: its faults, and every line about what the violation names."""
    outcome = simulate(seed, story=True)
    pattern = about or "|".join(_names(outcome)) or "."
    print("\n".join(line for line in outcome.story if re.search(pattern, line)))
    for violation in outcome.violations:
        print(violation)
    print(f"{outcome.steps} steps, {outcome.simulated_s:.0f} simulated seconds, faults: {dict(outcome.hits)}")
    return 1 if outcome.violations else 0


def _names(outcome: Outcome) -> list[str]:
    """What the story of a violation is about, and what always belongs to it."""
    found = {name for text in outcome.violations for name in re.findall(r"r[a-z0-9]{20}|\d{11}", text)}
    return [*found, "VIOLATION", "FAULT", "replica", "leading", "store"] if found else []


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
