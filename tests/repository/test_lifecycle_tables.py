"""Every (state, fact) pair of a runner and every pair of job states is a move, ignored, or illegal."""

from __future__ import annotations

from itertools import product

import pytest

from scheduling.lifecycle import (
    JOB_MOVES,
    JOB_RANK,
    LIVE,
    RUNNER_IGNORED,
    RUNNER_MOVES,
    SUPPLY,
    JobState,
    RunnerFact,
    RunnerState,
)

S, F = RunnerState, RunnerFact
DECISIONS = {F.ASSIGNED, F.RELEASED, F.SETTLED}

ILLEGAL: dict[RunnerState, set[RunnerFact]] = {
    S.PLANNED: {F.SETTLED},
    S.UNKNOWN: {F.SETTLED},
    S.STARTING: {F.SETTLED},
    S.READY: {F.SETTLED},
    S.REGISTERING: {F.ASSIGNED, F.RELEASED, F.SETTLED},
    S.IDLE: DECISIONS,
    S.BUSY: DECISIONS,
    S.LEAVING: DECISIONS,
    S.STOPPING: {F.ASSIGNED, F.RELEASED},
    S.GONE: DECISIONS,
}
"""Written out a second time on purpose: only our own decisions can be illegal, a fact from outside never is."""


@pytest.mark.parametrize(("state", "fact"), list(product(RunnerState, RunnerFact)))
def test_every_pair_is_exactly_one_of_move_ignored_illegal(state: RunnerState, fact: RunnerFact) -> None:
    kinds = {
        "move": (state, fact) in RUNNER_MOVES,
        "ignored": fact in RUNNER_IGNORED[state],
        "illegal": fact in ILLEGAL[state],
    }
    assert [kind for kind, holds in kinds.items() if holds] in (["move"], ["ignored"], ["illegal"]), kinds


@pytest.mark.parametrize(("old", "new"), list(product(JobState, JobState)))
def test_a_job_only_climbs(old: JobState, new: JobState) -> None:
    assert ((old, new) in JOB_MOVES) == (JOB_RANK[new] > JOB_RANK[old])
    assert JOB_MOVES.get((old, new), new) is new


def test_every_state_is_reached_and_every_state_ends() -> None:
    assert _reached_from(S.PLANNED) == set(RunnerState)
    for state in LIVE:
        assert S.GONE in _reached_from(state), f"a runner can be stuck in {state}"


def test_gone_is_final_and_is_entered_only_on_proof() -> None:
    assert not [fact for (state, fact) in RUNNER_MOVES if state is S.GONE]
    ways = {(state, fact) for (state, fact), new in RUNNER_MOVES.items() if new is S.GONE}
    assert ways == {(S.PLANNED, F.CREATE_REFUSED), (S.STOPPING, F.SETTLED)}


def test_a_machine_is_stopped_only_where_no_registration_can_be_left() -> None:
    """From REGISTERING on a registration may exist, so the way to STOPPING leads through LEAVING."""
    ways = {state for (state, _), new in RUNNER_MOVES.items() if new is S.STOPPING}
    assert ways == {S.PLANNED, S.UNKNOWN, S.STARTING, S.READY, S.LEAVING}


def test_supply_can_still_take_a_job() -> None:
    assert SUPPLY < LIVE
    for state in SUPPLY:
        assert RUNNER_MOVES[state, F.JOB_STARTED] is S.BUSY


def _reached_from(start: RunnerState) -> set[RunnerState]:
    reached, new = {start}, {start}
    while new:
        new = {after for (before, _), after in RUNNER_MOVES.items() if before in new} - reached
        reached |= new
    return reached
