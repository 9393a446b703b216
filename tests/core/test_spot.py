"""Spot machines: a notice stops new work, never a job; only the provider's word counts against its offer."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from scheduling import learning, reruns
from scheduling import messages as m
from scheduling.lifecycle import GoneReason, RerunState, RunnerState
from scheduling.model import Purchase, Runner
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import Rule, Selector
from scheduling.world import TABLES, World
from tests.core.fleet import HOUR, MINUTE, SECOND, USD, Fleet, offer, policy, runner_type


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


def again_fleet(*rules: Rule) -> tuple[Fleet, Runner]:
    """A job runs on a spot machine, which its provider takes away."""
    fleet = spot_fleet()
    fleet.policy = replace(fleet.policy, rules=rules, memo={})
    fleet.job(1, name="build")
    (runner,) = fleet.idle()
    fleet.start(1, runner, name="build")
    fleet.run(5 * MINUTE)
    take(fleet, runner)
    return fleet, runner


def take(fleet: Fleet, runner: Runner) -> None:
    fleet.cloud.machines.pop(runner.id, None)
    fleet.busy.discard(runner.id)
    fleet.tell(m.MachineTaken(fleet.now, runner.id))
    fleet.run(2 * MINUTE)


RERUN = Rule(repository=("acme/*",), rerun=True)


def test_k22_the_interrupted_job_is_run_again_where_a_rule_says_so() -> None:
    fleet, runner = again_fleet(RERUN)
    assert not fleet.reruns  # GitHub has not failed it yet
    fleet.run(8 * MINUTE)
    fleet.finish(1, runner, "failure", name="build")
    fleet.run(3 * MINUTE)
    assert fleet.reruns == ["1.1"]
    assert fleet.at_rest()
    assert fleet.world.reruns["1.1"].state is RerunState.ASKED
    fleet.job(2, run_id=10, run_attempt=2, name="build")
    record = fleet.world.jobs["2.2"]
    assert reruns.of_job(fleet.world, record) is fleet.world.reruns["1.1"]


@pytest.mark.parametrize("heard_of_its_start", [True, False])
def test_k22_a_job_whose_start_is_heard_after_its_machine_is_gone_is_run_again(heard_of_its_start: bool) -> None:
    """GitHub's deliveries were lost; the runner has been settled when the sweep brings them."""
    fleet = spot_fleet()
    fleet.policy = replace(fleet.policy, rules=(RERUN,), memo={})
    fleet.job(1, name="build")
    (runner,) = fleet.idle()
    take(fleet, runner)
    assert runner.state is RunnerState.GONE
    if heard_of_its_start:
        fleet.start(1, runner, name="build")
        fleet.busy.discard(runner.id)
    fleet.run(8 * MINUTE)
    fleet.finish(1, runner, "failure", name="build")
    fleet.run(3 * MINUTE)
    assert fleet.reruns == ["1.1"]


def test_without_a_rule_it_is_not_run_again_and_says_so() -> None:
    fleet, runner = again_fleet(Rule(repository=("other/*",), rerun=True))
    fleet.finish(1, runner, "failure", name="build")
    fleet.step()
    assert fleet.reruns == []
    assert fleet.world.reruns["1.1"].detail == "no rule says `rerun: true` for it"


@pytest.mark.parametrize(
    ("conclusion", "why"), [("success", "it ended as success"), ("cancelled", "it ended as cancelled")]
)
def test_a_job_that_ended_otherwise_is_not_run_again(conclusion: str, why: str) -> None:
    fleet, runner = again_fleet(RERUN)
    fleet.finish(1, runner, conclusion, name="build")
    fleet.step()
    assert fleet.reruns == []
    assert fleet.world.reruns["1.1"].detail == why


def test_a_job_that_failed_before_its_machine_went_is_not_run_again() -> None:
    fleet = spot_fleet()
    fleet.policy = replace(fleet.policy, rules=(RERUN,), memo={})
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.step(MINUTE)
    fleet.finish(1, runner, "failure")
    fleet.now += 3 * MINUTE
    fleet.tell(m.MachineTaken(fleet.now, runner.id))
    fleet.step()
    assert fleet.world.reruns["1.1"].detail == "it had ended before its machine was taken"


def test_a_machine_that_only_vanished_or_only_said_so_leads_to_no_re_run() -> None:
    """Job code can end its machine, and can call back: only the provider's word counts."""
    fleet = spot_fleet()
    fleet.policy = replace(fleet.policy, rules=(RERUN,), memo={})
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    notice(fleet, runner)
    del fleet.cloud.machines[runner.id]
    fleet.busy.discard(runner.id)
    fleet.run(10 * MINUTE)
    fleet.finish(1, runner, "failure")
    fleet.run(3 * MINUTE)
    assert fleet.at_rest()
    assert fleet.reruns == []
    assert not fleet.world.reruns


def test_a_repository_has_so_many_re_runs_a_day() -> None:
    fleet = spot_fleet()
    fleet.policy = replace(fleet.policy, rules=(RERUN,), memo={})
    for number in range(1, reruns.A_DAY + 2):
        fleet.job(number)
    runners = fleet.idle()
    for number, runner in enumerate(runners, 1):
        fleet.start(number, runner)
    for number, runner in enumerate(runners, 1):
        fleet.tell(m.MachineTaken(fleet.now, runner.id))
        fleet.finish(number, runner, "failure")
    fleet.step()
    assert len(fleet.reruns) == reruns.A_DAY
    (refused,) = [each for each in fleet.world.reruns.values() if each.state is RerunState.REFUSED]
    assert refused.detail == "acme/app had 20 re-runs within 24 hours"


def test_a_lost_answer_and_a_run_that_goes_on_are_asked_again_with_patience() -> None:
    fleet, runner = again_fleet(RERUN)
    fleet.finish(1, runner, "failure", name="build")
    fleet.now += SECOND
    plan(fleet.world, fleet.policy, fleet.now)
    assert pending(fleet.world, fleet.now).due == (m.RerunJob("1.1"),)
    fleet.tell(m.RerunAnswered(fleet.now, "1.1", RerunState.DUE, "its run has not ended yet"))
    later = pending(fleet.world, fleet.now)
    assert (later.due, later.next_ms) == ((), fleet.now + reruns.AGAIN_MS)
    fleet.now += 13 * HOUR
    fleet.tell(m.RerunAnswered(fleet.now, "1.1", RerunState.DUE, "its run has not ended yet"))
    assert fleet.world.reruns["1.1"].state is RerunState.REFUSED
    assert fleet.world.reruns["1.1"].detail == "given up after 12 hours: its run has not ended yet"


def test_what_is_due_survives_a_restart() -> None:
    fleet, runner = again_fleet(RERUN)
    fresh = World("acme")
    fresh.restore(records(fleet.world))
    assert list(fresh.taken) == [runner.id]
    fleet.finish(1, runner, "failure", name="build")
    plan(fleet.world, fleet.policy, fleet.now)
    again = World("acme")
    again.restore(records(fleet.world))
    assert m.RerunJob("1.1") in pending(again, fleet.now).due
    assert not again.taken


def records(world: World) -> list[tuple[str, str, object]]:
    return [
        (kind, name, record)
        for kind, table in TABLES.items()
        for name, record in copy.deepcopy(getattr(world, table)).items()
    ]


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
