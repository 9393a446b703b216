"""Spot machines: a notice stops new work, never a job; only the provider's word counts against its offer."""

from __future__ import annotations

from scheduling import learning
from scheduling import messages as m
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.model import Purchase, Runner
from scheduling.policy import Selector
from tests.core.fleet import MINUTE, SECOND, USD, Fleet, offer, policy, runner_type


def spot_fleet() -> Fleet:
    """Spot at `east`, dearer on-demand machines at `west`."""
    selectors = (Selector("east", purchase=(Purchase.SPOT,)), Selector("west"))
    offers = {"east": (offer("east", purchase=Purchase.SPOT),), "west": (offer("west", USD),)}
    return Fleet(policy(runner_type(selectors=selectors)), offers)


def notice(fleet: Fleet, runner: Runner) -> None:
    words = "EC2 will terminate it at 2026-11-30T12:02:00Z"
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.INTERRUPTED, words))


def test_a_machine_that_waits_gets_no_job_and_another_offer_serves() -> None:
    fleet = spot_fleet()
    fleet.job(1)
    fleet.step()
    fleet.boot()
    (runner,) = fleet.runners(RunnerState.READY)
    notice(fleet, runner)
    fleet.step()
    assert runner.state is RunnerState.STOPPING
    assert runner.reason is GoneReason.INTERRUPTED
    assert not fleet.registered  # no JIT config was made for it
    assert [each.offer.provider for each in fleet.planned()] == ["west"]
    assert fleet.world.cooldowns[f"offer:{runner.offer.key}"].why == "spot machines are being taken back there"


def test_an_idle_runner_loses_its_registration_first() -> None:
    fleet = spot_fleet()
    fleet.job(1)
    (runner,) = fleet.idle()
    notice(fleet, runner)
    fleet.step()
    assert not fleet.registered
    fleet.step()
    assert runner.state is RunnerState.STOPPING
    assert runner.id not in fleet.cloud.machines


def test_an_idle_runner_that_runs_a_job_after_all_is_left_alone() -> None:
    fleet = spot_fleet()
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.busy.add(runner.id)  # GitHub gave it the job, and we have not heard of it
    notice(fleet, runner)
    fleet.run(2 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def test_a_notice_from_a_busy_machine_is_recorded_and_believed_by_nobody() -> None:
    """Job code can read the callback token: its word kills nothing and closes nothing."""
    fleet = spot_fleet()
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    notice(fleet, runner)
    fleet.run(5 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.interrupted_ms
    assert runner.detail.startswith("EC2 will terminate it")
    assert not fleet.world.cooldowns
    fleet.finish(1, runner)
    fleet.cloud.machines.pop(runner.id)
    fleet.run(3 * MINUTE)
    assert learning.taken_per_hour(fleet.world, runner.offer.key) < learning.SPOT_PRIOR_PER_HOUR


def test_an_on_demand_machine_is_never_interrupted() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    notice(fleet, runner)
    fleet.step()
    assert runner.state is RunnerState.IDLE


def test_the_providers_word_closes_the_offer_and_is_learned() -> None:
    fleet = spot_fleet()
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.run(10 * MINUTE)
    before = learning.taken_per_hour(fleet.world, runner.offer.key)
    del fleet.cloud.machines[runner.id]
    fleet.busy.discard(runner.id)
    fleet.tell(m.MachineTaken(fleet.now, runner.id))
    fleet.job(2)
    fleet.step(SECOND)
    assert [each.offer.provider for each in fleet.planned()] == ["west"]
    fleet.run(3 * MINUTE)
    assert runner.state is RunnerState.GONE
    assert runner.reason is GoneReason.INTERRUPTED
    assert learning.taken_per_hour(fleet.world, runner.offer.key) > 5 * before


def test_a_notice_before_the_boot_report_counts_once_it_has_booted() -> None:
    fleet = spot_fleet()
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    notice(fleet, runner)
    fleet.step()
    assert [each.offer.provider for each in fleet.planned()] == ["west"]
    fleet.boot(runner)
    fleet.step()
    assert runner.state is RunnerState.STOPPING


def test_mass_interruption_kills_within_the_cap_and_hands_nothing_out() -> None:
    fleet = spot_fleet()
    for number in range(1, 301):
        fleet.job(number)
    fleet.step()
    fleet.boot()
    for runner in fleet.runners(RunnerState.READY):
        notice(fleet, runner)
    fleet.step()
    assert fleet.plan.reaps_capped
    assert not fleet.registered
    fleet.step(MINUTE)
    assert not fleet.runners(RunnerState.READY)
    assert not fleet.registered
