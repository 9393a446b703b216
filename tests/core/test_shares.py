"""Fair share counts ready machines like any other."""

from __future__ import annotations

from collections import Counter

from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.model import Purchase
from scheduling.plan import plan
from scheduling.policy import FairShare, ReadyFloor, Selector
from tests.core.fleet import HOUR, Fleet, credit, offer, policy, runner_type


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


def flooded(**changes: object) -> Fleet:
    """A fleet at its cap whose ten machines all boot for one repository."""
    fleet = Fleet(policy(max_runners=10, **changes))
    for number in range(1, 21):
        fleet.job(number, repository="acme/flood")
    fleet.step()
    assert booting_for(fleet) == {"acme/flood": 10}
    return fleet


def booting_for(fleet: Fleet) -> Counter[str]:
    return Counter(runner.repository for runner in fleet.runners(RunnerState.STARTING))


def test_machines_that_boot_for_a_flood_are_shared_out_again() -> None:
    fleet = flooded()
    for number in range(101, 121):
        fleet.job(number, repository="acme/late")
    refusals = fleet.step().refusals
    assert booting_for(fleet) == {"acme/flood": 5, "acme/late": 5}
    (verdict,) = refusals["linux@repo:acme/flood"]
    assert verdict.refusal == "its machine went to acme/late, which has fewer: fair share"
    for _ in range(3):
        fleet.step(1_000)
        assert not fleet.plan.decisions  # and they stay there
    assert len(fleet.cloud.machines) == 10
    assert {verdict.refusal for verdict in fleet.plan.refusals["linux@repo:acme/late"]} == {
        "the fleet runs its limit of 10 runners"
    }


def test_a_weight_counts_when_machines_are_taken_over() -> None:
    fleet = flooded(fair_share=FairShare(weights={"acme/flood": 4}))
    for number in range(101, 121):
        fleet.job(number, repository="acme/late")
    fleet.step()
    assert booting_for(fleet) == {"acme/flood": 8, "acme/late": 2}


def test_a_machine_is_not_taken_over_on_money_of_others() -> None:
    gift = credit("gift", 10_000, repositories=("acme/flood",))
    fleet = flooded(funds=(gift,))
    fleet.job(101, repository="acme/late")
    fleet.step()
    assert booting_for(fleet) == {"acme/flood": 10}


def test_long_waiting_does_not_let_a_flood_pass_who_has_less() -> None:
    fleet = flooded()
    fleet.boot()
    fleet.step()
    fleet.register()
    fleet.step()
    for number, runner in enumerate(fleet.runners(RunnerState.IDLE), 1):
        fleet.start(number, runner, repository="acme/flood")
    fleet.step(2 * HOUR)
    fleet.job(101, repository="acme/late")
    fleet.finish(1, fleet.runners(RunnerState.BUSY)[0], repository="acme/flood")
    for _ in range(20):
        fleet.inventory()
        fleet.step(30_000)
        if booting_for(fleet):
            break
    assert booting_for(fleet) == {"acme/late": 1}


def test_a_machine_that_is_registered_before_it_boots_is_not_taken_over() -> None:
    """Its configuration is for the flood's repository, and only jobs from there come to it."""
    userdata = runner_type(bootstrap="userdata")
    fleet = Fleet(policy(userdata, max_runners=10))
    for number in range(1, 21):
        fleet.job(number, repository="acme/flood")
    fleet.step()
    fleet.step()
    assert booting_for(fleet) == {"acme/flood": 10}
    fleet.job(101, repository="acme/late")
    fleet.step()
    assert booting_for(fleet) == {"acme/flood": 10}
    assert {runner.target for runner in fleet.runners(RunnerState.STARTING)} == {"repo:acme/flood"}


def test_a_spot_machine_that_is_about_to_go_is_not_taken_over() -> None:
    spot = {"east": (offer("east", purchase=Purchase.SPOT),), "west": ()}
    selectors = (Selector("east", purchase=(Purchase.SPOT,)),)
    fleet = Fleet(policy(runner_type(selectors=selectors), max_runners=4), spot)
    for number in range(1, 9):
        fleet.job(number, repository="acme/flood")
    fleet.step()
    going = fleet.runners(RunnerState.STARTING)
    assert len(going) == 4
    for runner in going:
        fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.INTERRUPTED, "EC2 will terminate it"))
    fleet.job(101, repository="acme/late")
    fleet.step()
    assert {runner.repository for runner in going} == {"acme/flood"}
