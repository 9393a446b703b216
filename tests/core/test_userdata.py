"""`bootstrap: userdata`: the JIT config is made before the machine. The rows of the crash matrix have answers."""

from __future__ import annotations

import pytest

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.model import Runner
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import ProviderPolicy
from tests.core.fleet import MINUTE, SECOND, Fleet, offer, policy, runner_type

BOTH = {name: ProviderPolicy(name, "sim") for name in ("east", "west")}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(policy(runner_type(bootstrap="userdata"), providers=BOTH))


def due(fleet: Fleet) -> list[type]:
    return [type(command) for command in pending(fleet.world, fleet.now).due]


def planned(fleet: Fleet, number: int = 1) -> Runner:
    """The intent is committed and nothing was done for it."""
    fleet.job(number)
    plan(fleet.world, fleet.policy, fleet.now)
    return fleet.runners(RunnerState.PLANNED)[-1]


def registered(fleet: Fleet) -> Runner:
    """Its registration is made and recorded; the create call comes next."""
    runner = planned(fleet)
    fleet.registered.add(runner.id)
    fleet.tell(m.JitStored(fleet.now, runner.id, 77, "sealed"))
    return runner


def take_over(fleet: Fleet) -> None:
    fleet.tell(m.LeadershipTaken(fleet.now, tuple(fleet.policy.providers), "epoch 2"))


def settle(fleet: Fleet) -> None:
    """Nothing is wanted any more; let everything end."""
    for number in (1, 2, 3):
        if f"{number}.1" in fleet.world.jobs:
            fleet.finish(number, conclusion="cancelled")
    fleet.run(30 * MINUTE)


def test_first_the_config_then_the_machine_then_the_job(fleet: Fleet) -> None:
    runner = planned(fleet)
    assert runner.target == "repo:acme/app"
    assert due(fleet) == [m.CreateJit]
    fleet.step()
    assert due(fleet) == [m.CreateMachine]
    assert runner.registration_id
    fleet.step()
    assert runner.state is RunnerState.STARTING
    assert due(fleet) == []
    fleet.start(1, runner)
    assert runner.state is RunnerState.BUSY
    fleet.finish(1, runner)
    fleet.run(2 * MINUTE)
    assert fleet.at_rest()


def test_the_config_is_kept_sealed_until_the_outcome_is_known(fleet: Fleet) -> None:
    runner = registered(fleet)
    assert runner.sealed == "sealed"
    fleet.tell(m.CreateUnknown(fleet.now, runner.id, "no answer"))
    assert (runner.state, runner.sealed) == (RunnerState.UNKNOWN, "sealed")
    fleet.tell(m.MachineCreated(fleet.now, runner.id, "i-1"))
    assert runner.sealed == ""


def test_a_call_of_the_machine_is_only_news(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.boot()
    assert runner.state is RunnerState.STARTING
    assert runner.booted_ms == fleet.now
    assert due(fleet) == []


def test_seen_online_at_github_it_is_idle(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.tell(m.RegistrationSeen(fleet.now, runner.id, 77, online=True, busy=False))
    assert runner.state is RunnerState.IDLE


# ---- the crash matrix --------------------------------------------------------------------------------------


def test_killed_before_the_config_the_next_leader_makes_it(fleet: Fleet) -> None:
    runner = planned(fleet)
    take_over(fleet)
    assert runner.state is RunnerState.PLANNED  # no create call was possible, so nothing is unknown
    assert due(fleet) == [m.CreateJit]


def test_killed_after_the_config_the_create_call_counts_as_sent(fleet: Fleet) -> None:
    runner = registered(fleet)
    take_over(fleet)
    assert runner.state is RunnerState.UNKNOWN
    assert due(fleet) == [m.CreateMachine]
    assert runner.sealed == "sealed"


def test_a_second_answer_to_the_config_does_not_replace_the_first(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.tell(m.JitStored(fleet.now, runner.id, 78, "other"))
    assert (runner.registration_id, runner.sealed) == (77, "sealed")


def test_i4_a_refused_create_call_deletes_the_registration_before_it_ends(fleet: Fleet) -> None:
    fleet.cloud.refuse[offer("east").key] = m.Trouble.NO_CAPACITY
    runner = registered(fleet)
    held = sum(part.amount for part in runner.hold)
    fleet.tell(m.CreateFailed(fleet.now, runner.id, m.Trouble.NO_CAPACITY, "sold out"))
    assert runner.state is RunnerState.LEAVING
    assert due(fleet) == [m.DeleteRegistration]
    assert sum(fleet.world.funds["grant"].held.values()) >= held > 0
    fleet.step()
    fleet.step()
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.LAUNCH_FAILED)
    assert runner.cost == 0
    assert runner.id not in fleet.registered
    other = fleet.runners(RunnerState.PLANNED, RunnerState.STARTING)[0]
    assert other.offer.provider == "west"
    settle(fleet)
    assert fleet.at_rest()


def test_i3_a_refusal_that_a_deposed_leader_hears_late_ends_no_machine_that_was_made(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    assert (runner.state, runner.ref) == (RunnerState.STARTING, "i-1")
    fleet.tell(m.CreateFailed(fleet.now, runner.id, m.Trouble.TRANSIENT, "429 throttled"))
    assert runner.state is RunnerState.STARTING
    assert runner.registration_id
    settle(fleet)
    assert fleet.at_rest()


def test_a_create_call_that_was_never_applied_ends_without_a_registration(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.tell(m.CreateUnknown(fleet.now, runner.id, "no answer"))
    fleet.finish(1, conclusion="cancelled")
    fleet.perform = lambda command: (  # type: ignore[method-assign]
        m.CreateUnknown(fleet.now, runner.id, "no answer")
        if isinstance(command, m.CreateMachine)
        else Fleet.perform(fleet, command)
    )
    fleet.run(6 * MINUTE)
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.NEVER_CREATED)
    assert fleet.at_rest()


def test_a_machine_that_never_registers_goes_with_its_registration(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.run(10 * MINUTE)
    assert runner.state is RunnerState.STARTING  # booting and registering have their time each
    fleet.run(2 * MINUTE)
    assert runner.reason is GoneReason.BOOT_TIMEOUT
    assert runner.id not in fleet.registered
    settle(fleet)
    assert fleet.at_rest()


def test_i6_one_whose_job_nobody_told_us_of_is_not_stopped(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.busy.add(runner.id)  # GitHub refuses to delete its registration
    fleet.run(15 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def test_a_machine_that_vanishes_takes_its_registration_along(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.finish(1, conclusion="cancelled")
    del fleet.cloud.machines[runner.id]
    fleet.run(3 * MINUTE)
    assert runner.state is RunnerState.GONE
    assert fleet.at_rest()


def test_github_that_never_answers_ends_the_intent(fleet: Fleet) -> None:
    runner = planned(fleet)
    fleet.finish(1, conclusion="cancelled")
    fleet.perform = lambda command: (  # type: ignore[method-assign]
        m.EffectFailed(fleet.now, command.runner_id, m.Trouble.TRANSIENT, "502")  # type: ignore[union-attr]
        if isinstance(command, m.CreateJit)
        else Fleet.perform(fleet, command)
    )
    fleet.run(70 * MINUTE, every=MINUTE)
    assert runner.state is RunnerState.GONE
    assert fleet.cloud.created == 0
    assert fleet.at_rest()


def test_a_config_that_comes_after_the_intent_was_given_up_is_deleted(fleet: Fleet) -> None:
    runner = planned(fleet)
    fleet.tell(m.ReapDecided(fleet.now, runner.id, GoneReason.DRAINED))
    fleet.registered.add(runner.id)
    fleet.tell(m.JitStored(fleet.now, runner.id, 77, "sealed"))
    assert runner.sealed == ""
    settle(fleet)
    assert fleet.at_rest()


# ---- pools -------------------------------------------------------------------------------------------------


def test_a_cancelled_job_frees_no_machine_for_another_pool(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.step()
    fleet.finish(1, conclusion="cancelled")
    fleet.job(2, repository="acme/other")
    fleet.step(SECOND)
    assert (runner.pool, runner.target) == ("linux@repo:acme/app", "repo:acme/app")
    assert len(fleet.runners()) == 2
    settle(fleet)
    assert fleet.at_rest()


def test_drained_before_its_machine_exists(fleet: Fleet) -> None:
    runner = registered(fleet)
    fleet.tell(m.SwitchSet(fleet.now, "type:linux", True))
    fleet.run(4 * MINUTE)
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.DRAINED)
    assert not fleet.registered
