"""A few of the schedules that `make simulate` runs by the thousand."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulation import faults
from tests.simulation.__main__ import command
from tests.simulation.world import simulate

pytestmark = pytest.mark.filterwarnings("ignore")

BATCH = 15


@pytest.mark.parametrize("first", range(0, 90, BATCH))
def test_every_promise_is_kept_under_faults(first: int) -> None:
    for seed in range(first, first + BATCH):
        outcome = simulate(seed)
        assert not outcome.violations, f"{outcome.violations[0]}; replay it: {command(seed)}"
        assert outcome.jobs >= 20
        assert outcome.replicas >= 2
        assert outcome.faults >= 3


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


def test_a_seed_is_one_schedule_in_every_process() -> None:
    """Whatever the order of its sets of text: so a line that says how to replay it can be believed."""
    replay = [sys.executable, *command(14).split()[1:]]
    stories = [
        subprocess.run(
            replay, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        ).stdout
        for hash_seed in ("0", "77")
    ]
    one, other = (re.sub('"sealed":"[^"]*"', "", story) for story in stories)  # encryption draws its own nonces
    assert one == other


@pytest.mark.parametrize("kind", faults.KINDS)
def test_every_kind_of_fault_can_strike(kind: str) -> None:
    for seed in range(20):
        outcome = simulate(seed, kinds=(kind,))
        assert not outcome.violations, f"{outcome.violations[0]}; replay it: {command(seed, (kind,))}"
        if outcome.hits[kind]:
            return
    pytest.fail(f"{kind} never struck")
