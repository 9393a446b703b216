"""What failed at the same moment is not tried again at the same moment."""

from __future__ import annotations

from collections import Counter

from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.pending import pending
from scheduling.plan import plan
from tests.core.fleet import SECOND, Fleet, policy


def test_five_hundred_runners_that_fail_at_once_are_tried_again_spread_out() -> None:
    fleet = Fleet(policy())
    for number in range(1, 501):
        fleet.job(number)
    fleet.step()
    fleet.boot()
    plan(fleet.world, fleet.policy, fleet.now)
    waiting = fleet.runners(RunnerState.REGISTERING)
    assert len(waiting) == 500
    for runner in waiting:
        fleet.tell(m.EffectFailed(fleet.now, runner.id, m.Trouble.TRANSIENT, "503", 60 * SECOND))
    again = Counter((runner.retry_ms - fleet.now) // SECOND for runner in waiting)
    assert min(again) == 60  # never sooner than GitHub asked for
    assert max(again) < 90
    assert max(again.values()) < 40  # 17 a second on average
    assert not pending(fleet.world, fleet.now + 59 * SECOND).due
    due = len(pending(fleet.world, fleet.now + 75 * SECOND).due)
    assert 200 < due < 300
