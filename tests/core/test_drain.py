"""Drained means no new work at once: what is on its way goes, what idles goes, what runs stays."""

from __future__ import annotations

from dataclasses import replace

from scheduling import messages as m
from scheduling.draft import REAPS_A_MINUTE
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.plan import plan
from scheduling.policy import ReadyFloor
from tests.core.fleet import MINUTE, SECOND, Fleet, credit, policy, runner_type


def test_what_was_on_its_way_is_placed_elsewhere_at_once() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    assert runner.offer.provider == "east"
    fleet.tell(m.SwitchSet(fleet.now, "provider:east", on=True))
    fleet.step()
    assert [planned.offer.provider for planned in fleet.planned()] == ["west"]
    fleet.run(5 * MINUTE)
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.DRAINED)
    assert runner.id not in fleet.cloud.machines


def test_a_launch_whose_create_call_was_not_sent_yet_is_given_up() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    plan(fleet.world, fleet.policy, fleet.now)
    fleet.tell(m.SwitchSet(fleet.now, "all", on=True))
    fleet.run(10 * MINUTE)
    assert fleet.cloud.created == 0
    assert fleet.at_rest()


def test_an_idle_registered_runner_is_taken_out_so_that_it_gets_no_job() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.tell(m.SwitchSet(fleet.now, "provider:east", on=True))
    fleet.step()
    assert runner.id not in fleet.registered
    fleet.run(5 * MINUTE)
    assert runner.state is RunnerState.GONE
    assert [r.offer.provider for r in fleet.runners(RunnerState.STARTING)] == ["west"]


def test_an_idle_runner_that_github_has_given_a_job_is_kept_until_the_job_ends() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.busy.add(runner.id)
    fleet.tell(m.SwitchSet(fleet.now, "all", on=True))
    fleet.run(20 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def big_ready_fleet(count: int) -> Fleet:
    fleet = Fleet(policy(runner_type(ready=(ReadyFloor(count),))))
    for _ in range(3):
        fleet.step()
    fleet.boot()
    fleet.step()
    assert len(fleet.runners(RunnerState.READY)) == count
    return fleet


def test_a_minute_sees_a_bounded_number_of_kills_over_drains_too_while_settlements_go_on() -> None:
    fleet = big_ready_fleet(REAPS_A_MINUTE + 100)
    fleet.tell(m.SwitchSet(fleet.now, "all", on=True))
    fleet.step()
    assert fleet.plan.reaps_capped
    for _ in range(50):
        fleet.step(SECOND)
        fleet.inventory()
    ready = fleet.runners(RunnerState.READY)
    assert len(ready) == 100
    assert len(fleet.runners(RunnerState.GONE)) == REAPS_A_MINUTE
    assert len(fleet.world.wakes) < 1000
    fleet.run(2 * MINUTE)
    assert fleet.at_rest()
    assert {runner.reason for runner in fleet.runners()} == {GoneReason.DRAINED}


def test_ready_machines_of_a_fund_that_the_policy_drops_do_not_fill_the_floor() -> None:
    fleet = big_ready_fleet(2)
    old = fleet.runners(RunnerState.READY)
    fleet.policy = replace(fleet.policy, hash="p2", funds={"new": credit("new", 1000)}, memo={})
    fleet.tell(m.PolicyActivated(fleet.now, "p2"))
    fleet.run(5 * MINUTE)
    assert {runner.reason for runner in old} == {GoneReason.DRAINED}
    fleet.boot()
    fleet.step()
    assert [runner.fund for runner in fleet.runners(RunnerState.READY)] == ["new", "new"]


def test_a_runner_on_its_way_to_a_job_is_kept_though_the_policy_drops_its_fund() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.policy = replace(fleet.policy, hash="p2", funds={"new": credit("new", 1000)}, memo={})
    fleet.tell(m.PolicyActivated(fleet.now, "p2"))
    fleet.step()
    fleet.start(1, runner)
    fleet.run(MINUTE)
    assert runner.state is RunnerState.BUSY
