"""A few of the schedules that `make simulate` runs by the thousand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.simulation import faults
from tests.simulation.world import simulate

pytestmark = pytest.mark.filterwarnings("ignore")

BATCH = 15


@pytest.mark.parametrize("first", range(0, 90, BATCH))
def test_every_promise_is_kept_under_faults(first: int) -> None:
    """In a process of its own, as a person runs it: so the lines that it prints replay what happened here."""
    command = (sys.executable, "-m", "tests.simulation", "--processes", "1")
    batch = ("--first", str(first), "--schedules", str(BATCH))
    done = subprocess.run([*command, *batch], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    least = re.search(r"in each at least (\d+) jobs, (\d+) replicas, (\d+) faults", done.stdout)
    assert least, done.stdout
    assert [int(n) >= k for n, k in zip(least.groups(), (20, 2, 3), strict=True)] == [True] * 3


def test_without_faults_all_jobs_run_soon() -> None:
    for seed in range(10):
        outcome = simulate(seed, kinds=())
        assert not outcome.violations
        assert outcome.recovery_s < 600


def test_a_seed_is_one_schedule_with_or_without_its_story() -> None:
    one, other = simulate(7), simulate(7, story=True)
    assert (one.steps, one.simulated_s, one.hits, one.rows) == (
        other.steps,
        other.simulated_s,
        other.hits,
        other.rows,
    )
    assert any("FAULT" in line for line in other.story)


@pytest.mark.parametrize("kind", faults.KINDS)
def test_every_kind_of_fault_can_strike(kind: str) -> None:
    for seed in range(20):
        outcome = simulate(seed, kinds=(kind,))
        assert not outcome.violations, outcome.violations[0]
        if outcome.hits[kind]:
            return
    pytest.fail(f"{kind} never struck")
