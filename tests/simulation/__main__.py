"""`python -m tests.simulation`: run many schedules, or replay one and tell its story. Exit 1 on a violation."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation import faults
from tests.simulation.mutants import MUTANTS, caught
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


ENOUGH = 100
"""Hits of each kind of fault that a run of 10,000 schedules must have."""
PROGRESS_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=300, help="how many (default 300)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first one (default 0)")
    parser.add_argument("--processes", type=int, default=2, help="side by side (default 2)")
    parser.add_argument("--seed", type=int, help="replay this one and tell its story")
    parser.add_argument(
        "--only", action="append", help="with --seed: draw faults of this kind alone; may be repeated"
    )
    parser.add_argument("--about", help="only lines of the story that match this pattern")
    parser.add_argument("--mutants", action="store_true", help="take each safeguard away, name what notices")
    options = parser.parse_args()
    prepare()
    if options.seed is not None:
        return replay(options.seed, options.only, options.about)
    if options.mutants:
        return hunt()
    return run(range(options.first, options.first + options.schedules), options.processes)


def prepare() -> None:
    """Log lines are for replays, and a collected task of a killed replica has nothing to say."""
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda unraisable: None
    gc.freeze()


def run(seeds: range, processes: int) -> int:
    """Run them all, say on stderr how far it is, and report."""
    report = Report(len(seeds), processes)
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=20) as pool:
        for outcome, took_s in pool.imap_unordered(_timed, seeds, chunksize=5):
            report.add(outcome, took_s)
    return report.finish()


def _timed(seed: int) -> tuple[Outcome, float]:
    began = time.monotonic()
    outcome = simulate(seed)
    return outcome, time.monotonic() - began


@dataclass
class Report:
    """What many schedules came to."""

    wanted: int
    processes: int
    hits: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    done: int = 0
    steps: int = 0
    failed: int = 0
    jobs: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    simulated_s: float = 0.0
    recovery_s: float = 0.0
    slowest_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    _told_s: float = field(default_factory=time.monotonic)

    def add(self, outcome: Outcome, took_s: float) -> None:
        self.hits.update(outcome.hits)
        self.rows.update(outcome.rows)
        self.done += 1
        self.steps += outcome.steps
        self.jobs.append(outcome.jobs)
        self.replicas.append(outcome.replicas)
        self.faults.append(outcome.faults)
        self.simulated_s += outcome.simulated_s
        self.recovery_s = max(self.recovery_s, outcome.recovery_s)
        self.slowest_s = max(self.slowest_s, took_s)
        if outcome.violations:
            self.failed += 1
            print(f"seed {outcome.seed}: {outcome.violations[0]}", flush=True)
            print(f"  replay: {command(outcome.seed)}", flush=True)
        if time.monotonic() > self._told_s + PROGRESS_S:
            self._tell()

    def _tell(self) -> None:
        self._told_s = time.monotonic()
        rate = self.done / (self._told_s - self.began_s)
        left_s = (self.wanted - self.done) / rate
        print(
            f"{self.done} of {self.wanted} schedules, {rate:.1f} a second, {left_s / 60:.1f} minutes left, "
            f"{self.failed} broke a promise",
            file=sys.stderr,
            flush=True,
        )

    def finish(self) -> int:
        """Print it; the exit code."""
        took_s = time.monotonic() - self.began_s
        _table("faults by kind", self.hits, faults.MEASURED)
        _table("rows of the crash matrix", self.rows, ROWS)
        print(f"{self.done} schedules, {sum(self.jobs)} jobs, {self.steps} steps")
        print(
            f"in each at least {min(self.jobs)} jobs, {min(self.replicas)} replicas, {min(self.faults)} faults; "
            f"{self.simulated_s / 3600:.0f} simulated hours"
        )
        print(
            f"{took_s:.0f} s on {self.processes} processes, {self.slowest_s:.1f} s the longest schedule; at rest "
            f"{self.recovery_s / 60:.1f} simulated minutes after the last fault, or sooner"
        )
        rare = [f"{kind} {self.hits[kind]}" for kind in faults.MEASURED if self.hits[kind] < ENOUGH]
        missed = [row for row in ROWS if not self.rows[row]]
        print(f"kinds of faults hit fewer than {ENOUGH} times: {', '.join(rare) or 'none'}")
        print(f"rows of the crash matrix not reached: {', '.join(missed) or 'none'}")
        print(f"{self.failed} schedules broke a promise")
        return 1 if self.failed else 0


def _table(title: str, found: Counter[str], names: Iterable[str]) -> None:
    print(f"{title}:")
    for name in sorted(set(names) | set(found)):
        print(f"  {found[name]:8d}  {name}")


def hunt() -> int:
    """Which promise notices that a safeguard is gone, and with which seed."""
    missed = 0
    for mutant in MUTANTS:
        found = caught(mutant)
        missed += found is None
        told = f"seed {found[0]}: {found[1]}" if found else f"NOT NOTICED as a breach of {mutant.oracle}"
        print(f"{mutant.name}\n    {told}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} noticed")
    return 1 if missed else 0


def command(seed: int, only: Sequence[str] = ()) -> str:
    """What replays a schedule."""
    return " ".join([f"python -m tests.simulation --seed {seed}", *(f"--only {kind}" for kind in only)])


def replay(seed: int, only: Sequence[str] | None, about: str | None) -> int:
    """The story of one schedule: its faults, and every line about what the violation names."""
    outcome = simulate(seed, tuple(only) if only else None, story=True)
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
    sys.exit(main())
