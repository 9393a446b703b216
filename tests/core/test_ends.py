"""How runners end: stale lists, GitHub's lag, callbacks that never stop, create calls that nobody answered."""

from __future__ import annotations

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.model import Runner
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import ProviderPolicy
from tests.core.fleet import MINUTE, SECOND, Fleet, policy


def running() -> tuple[Fleet, Runner]:
    """A job that has run for ten minutes."""
    fleet = Fleet(policy(providers={"east": ProviderPolicy("east", "sim")}))
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.now += 10 * MINUTE
    return fleet, runner


def test_a_machine_that_two_lists_lack_is_kept_while_github_says_that_its_job_runs() -> None:
    fleet, runner = running()
    fleet.tell(m.MachineAbsent(fleet.now, runner.id))
    fleet.now += 12 * SECOND
    fleet.tell(m.MachineAbsent(fleet.now, runner.id))
    fleet.step()
    fleet.step(12 * SECOND)
    fleet.tell(m.MachineSeen(fleet.now, runner.id, runner.ref))
    fleet.run(20 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert not runner.stop_ms
    assert runner.id in fleet.cloud.machines
    fleet.finish(1, runner)
    fleet.run(3 * MINUTE)
    assert runner.reason is GoneReason.DONE
    assert fleet.at_rest()


def test_a_registration_that_github_calls_busy_after_the_job_is_deleted_a_little_later() -> None:
    fleet, runner = running()
    fleet.finish(1, runner)
    fleet.busy.add(runner.id)
    fleet.run(MINUTE)
    assert runner.state is RunnerState.LEAVING
    assert runner.id in fleet.registered
    fleet.busy.discard(runner.id)
    fleet.run(4 * MINUTE)
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.DONE)
    assert fleet.at_rest()


def test_callbacks_that_never_stop_do_not_keep_a_job_past_its_longest_life() -> None:
    fleet, runner = running()
    fleet.now = runner.jit_ms + runner.terms.max_lifetime_ms
    for _ in range(10):
        fleet.step(SECOND)
        fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.STARTED))
        fleet.tell(m.RegistrationSeen(fleet.now, runner.id, runner.registration_id, online=True, busy=True))
    assert runner.id not in fleet.cloud.machines
    assert runner.reason is GoneReason.MAX_LIFETIME
    fleet.busy.discard(runner.id)
    fleet.run(5 * MINUTE)
    assert runner.state is RunnerState.GONE


def test_a_started_callback_does_not_revive_a_runner_whose_job_is_done() -> None:
    fleet, runner = running()
    fleet.finish(1, runner)
    for _ in range(10):
        fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.STARTED))
        fleet.run(30 * SECOND)
    assert runner.state is RunnerState.GONE


def test_definite_errors_while_the_outcome_is_unknown_are_not_replayed_without_bound() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    plan(fleet.world, fleet.policy, fleet.now)
    (runner,) = fleet.runners(RunnerState.PLANNED)
    fleet.tell(m.CreateUnknown(fleet.now, runner.id, "no answer"))
    calls = 0
    for _ in range(5 * 60):
        fleet.now += SECOND
        if m.CreateMachine(runner.id) in pending(fleet.world, fleet.now).due:
            calls += 1
            fleet.tell(m.CreateFailed(fleet.now, runner.id, m.Trouble.QUOTA, "quota"))
    assert 1 <= calls <= 3
    assert runner.state is RunnerState.UNKNOWN  # the first call may have made a machine
    fleet.run(15 * MINUTE)
    assert runner.state is RunnerState.GONE
    assert fleet.record(1).state is JobState.QUEUED
    assert len(fleet.runners(RunnerState.STARTING)) == 1


def test_a_runner_that_github_lists_at_another_place_than_we_know_belongs_there() -> None:
    """A store that lost the last moments had it registered a second time, for another repository."""
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    elsewhere = "repo:acme/lib"
    fleet.tell(m.RegistrationSeen(fleet.now, runner.id, 9, online=True, busy=True, target=elsewhere))
    assert (runner.state, runner.registration_id, runner.target) == (RunnerState.BUSY, 9, elsewhere)
    fleet.step()
    assert [planned.launched_for for planned in fleet.planned()] == ["1.1"]
    assert fleet.world.live_count("repository:acme/lib") == 1
