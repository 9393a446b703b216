"""Fair share counts ready machines like any other."""

from __future__ import annotations

from collections import Counter

from scheduling.lifecycle import RunnerState
from scheduling.plan import plan
from scheduling.policy import FairShare, ReadyFloor
from tests.core.fleet import Fleet, policy, runner_type


def with_ready(count: int, **changes: object) -> Fleet:
    fleet = Fleet(policy(runner_type(ready=(ReadyFloor(count),)), **changes))
    fleet.step()
    fleet.boot()
    fleet.step()
    return fleet


def test_a_repositorys_max_runners_holds_for_ready_machines_too() -> None:
    fleet = with_ready(10, fair_share=FairShare(max_runners={"acme/*": 2}))
    for number in range(1, 11):
        fleet.job(number)
    for _ in range(3):
        fleet.step()
    assert fleet.world.live_count("repository:acme/app") == 2
    (verdict,) = fleet.plan.refusals["linux@repo:acme/app"]
    assert verdict.refusal == "acme/app runs its fair_share max_runners 2"


def test_two_repositories_share_the_ready_machines() -> None:
    fleet = with_ready(10)
    for number in range(1, 11):
        fleet.job(number, repository="acme/a")
        fleet.job(100 + number, repository="acme/b")
    plan(fleet.world, fleet.policy, fleet.now)
    given = Counter(r.repository for r in fleet.runners(RunnerState.READY, RunnerState.REGISTERING))
    assert given == {"acme/a": 5, "acme/b": 5}
