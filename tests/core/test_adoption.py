"""A new leader: what the one before may have done, and machines whose records are lost."""

from __future__ import annotations

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.model import Runner
from scheduling.plan import plan
from scheduling.policy import ReadyFloor
from scheduling.reaping import CONSISTENCY_MS
from tests.core.fleet import HOUR, MINUTE, SECOND, Fleet, policy, runner_type

TARGET = "repo:acme/app"


def adopted(register: bool = False, busy: bool = False, ready: int = 0) -> tuple[Fleet, Runner]:
    """A new fleet that adopted the only machine of one whose records are lost."""
    before = Fleet(policy())
    before.job(1)
    (old,) = before.idle()
    fleet = Fleet(policy(runner_type(ready=(ReadyFloor(ready),))))
    fleet.world.epoch = "another leader's"
    fleet.now += CONSISTENCY_MS  # its gates are open for good
    fleet.cloud = before.cloud
    fleet.registered = {old.id} if register else set()
    fleet.busy = {old.id} if busy else set()
    adopt(fleet, old)
    return fleet, fleet.world.runners[old.id]


def adopt(fleet: Fleet, old: Runner) -> None:
    began_ms = fleet.now - 10 * MINUTE
    fleet.tell(
        m.MachineAdopted(
            fleet.now, old.id, old.ref, "linux", old.offer, old.price, old.fund, old.hold, old.terms, began_ms
        )
    )


def seen(fleet: Fleet, runner: Runner, busy: bool) -> None:
    fleet.tell(m.RegistrationSeen(fleet.now, runner.id, 77, online=True, busy=busy, target=TARGET))


def test_a_job_that_was_reported_before_its_machine_was_adopted_is_not_stopped() -> None:
    before = Fleet(policy())
    before.job(1)
    (old,) = before.idle()
    fleet = Fleet(before.policy)
    fleet.cloud, fleet.busy = before.cloud, {old.id}
    fleet.job(1, JobState.IN_PROGRESS, runner_name=f"acme-{old.id}")
    adopt(fleet, old)
    fleet.run(old.terms.boot_timeout_ms + 5 * MINUTE)
    runner = fleet.world.runners[old.id]
    assert (runner.state, runner.running) == (RunnerState.BUSY, "1.1")
    assert fleet.record(1).runner == runner.id
    assert runner.id in fleet.cloud.machines


def test_one_that_github_lists_busy_is_busy_and_is_not_stopped() -> None:
    fleet, runner = adopted(register=True, busy=True)
    seen(fleet, runner, busy=True)
    fleet.run(HOUR, every=MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def test_one_that_github_lists_idle_leaves_with_its_registration() -> None:
    fleet, runner = adopted(register=True)
    seen(fleet, runner, busy=False)
    fleet.step()
    assert (runner.state, runner.target) == (RunnerState.IDLE, TARGET)
    fleet.run(10 * MINUTE)
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.IDLE)
    assert fleet.at_rest()


def test_one_that_github_lists_idle_serves_a_job_of_its_repository() -> None:
    fleet, runner = adopted(register=True)
    seen(fleet, runner, busy=False)
    fleet.job(2)
    fleet.step()
    assert not fleet.planned()
    fleet.start(2, runner)
    fleet.run(10 * MINUTE)
    assert runner.state is RunnerState.BUSY
    fleet.finish(2, runner)
    fleet.run(3 * MINUTE)
    assert fleet.at_rest()


def test_one_that_says_it_is_online_stays_until_github_has_said_where() -> None:
    """Without its registration nothing would keep GitHub from giving it a job while it is stopped."""
    fleet, runner = adopted(register=True)
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.REGISTERED))
    fleet.job(2)
    fleet.step()
    fleet.run(20 * MINUTE)
    assert runner.state is RunnerState.IDLE
    fleet.finish(2, conclusion="cancelled")
    seen(fleet, runner, busy=False)
    fleet.run(10 * MINUTE)
    assert runner.reason is GoneReason.IDLE
    assert runner.id not in fleet.registered


def test_one_that_nobody_has_heard_of_is_no_supply() -> None:
    fleet, runner = adopted()
    fleet.job(2)
    fleet.step()
    assert [planned.launched_for for planned in fleet.planned()] == ["2.1"]
    assert runner.state is RunnerState.STARTING


def test_one_that_is_ready_gets_no_second_registration_and_goes_after_its_idle_time() -> None:
    fleet, runner = adopted(ready=1)
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.BOOTED))
    fleet.job(2)
    fleet.step(SECOND)
    fleet.step(SECOND)
    assert runner.state is RunnerState.READY
    assert len(fleet.runners(RunnerState.STARTING)) == 2  # for the job and for the floor
    fleet.run(runner.terms.idle_timeout_ms + 2 * MINUTE)
    assert runner.id not in fleet.registered
    assert (runner.state, runner.reason) == (RunnerState.GONE, GoneReason.SURPLUS)


def test_one_that_never_calls_cools_no_image() -> None:
    fleet, runner = adopted()
    fleet.now += SECOND
    fleet.tell(m.RegistrationsListed(fleet.now))
    fleet.run(runner.terms.boot_timeout_ms + 2 * MINUTE)
    assert runner.reason is GoneReason.BOOT_TIMEOUT
    assert not fleet.world.cooldowns


def test_one_that_is_silent_stays_until_github_has_listed_what_is_registered() -> None:
    fleet, runner = adopted(register=True, busy=True)
    fleet.tell(m.RegistrationsListed(fleet.now - SECOND))  # begun before it was adopted: it was not looked for
    fleet.run(runner.terms.boot_timeout_ms + HOUR, every=MINUTE)
    assert runner.state is RunnerState.STARTING
    seen(fleet, runner, busy=True)
    fleet.tell(m.RegistrationsListed(fleet.now))
    fleet.run(HOUR, every=MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def test_a_definite_error_after_a_takeover_does_not_void_the_call_that_the_leader_before_may_have_sent() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    plan(fleet.world, fleet.policy, fleet.now)
    (runner,) = fleet.runners(RunnerState.PLANNED)
    fleet.cloud.machines[runner.id] = "i-1"  # applied, and the leader died before it could say so

    fleet.tell(m.LeadershipTaken(fleet.now, tuple(fleet.policy.providers), "next"))
    fleet.tell(m.CreateFailed(fleet.now, runner.id, m.Trouble.NO_CAPACITY, "sold out"))
    assert runner.state is RunnerState.UNKNOWN
    assert fleet.world.funds["grant"].held

    fleet.inventory()
    assert (runner.state, runner.ref) == (RunnerState.STARTING, "i-1")


# ---- a store that lost its tail ----------------------------------------------------------------------------


def take_over(fleet: Fleet, whole: bool) -> None:
    fleet.tell(m.LeadershipTaken(fleet.now, tuple(fleet.policy.providers), "next", whole))


def listed(fleet: Fleet, *providers: str) -> None:
    """A complete inventory of these providers, begun now, which shows nothing new."""
    for name in providers:
        fleet.tell(m.InventoryTaken(fleet.now, name, fleet.world.epoch))


def launches(fleet: Fleet) -> int:
    plan(fleet.world, fleet.policy, fleet.now)
    return len(fleet.runners(RunnerState.PLANNED))


def test_after_a_takeover_one_list_opens_a_gate() -> None:
    fleet = Fleet(policy())
    take_over(fleet, whole=True)
    fleet.job(1)
    assert launches(fleet) == 0
    listed(fleet, "east", "west")
    assert launches(fleet) == 1


def test_where_intents_may_be_lost_only_a_list_that_must_show_their_machines_opens_a_gate() -> None:
    fleet = Fleet(policy())
    take_over(fleet, whole=False)
    fleet.job(1)
    listed(fleet, "east", "west")
    fleet.now += CONSISTENCY_MS - 1
    listed(fleet, "east", "west")
    assert launches(fleet) == 0
    assert "lost launches" in " ".join(fleet.world.gates.values())
    fleet.now += 1
    listed(fleet, "east", "west")
    assert launches(fleet) == 1


def test_a_machine_that_the_store_does_not_know_closes_the_gates_of_the_other_providers_too() -> None:
    before = Fleet(policy())
    before.job(1)
    (old,) = before.idle()
    fleet = Fleet(policy())
    take_over(fleet, whole=True)
    fleet.job(2)
    listed(fleet, "west")  # stale, and nobody knows that
    adopt(fleet, old)
    listed(fleet, "east")
    fleet.job(3)
    assert launches(fleet) == 0
    fleet.now += CONSISTENCY_MS
    listed(fleet, "east", "west")
    assert launches(fleet) == 2


def test_one_that_appears_when_every_list_is_new_closes_nothing() -> None:
    before = Fleet(policy())
    before.job(1)
    (old,) = before.idle()
    fleet = Fleet(policy())
    fleet.now += CONSISTENCY_MS
    adopt(fleet, old)
    assert not fleet.world.gates
