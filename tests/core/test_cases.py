"""What users of such systems reported (the K ids), as the pure core must answer. tests/README.md has the table."""

from __future__ import annotations

from dataclasses import replace

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.model import Verdict
from scheduling.policy import ProviderPolicy, ReadyFloor
from tests.core.fleet import HOUR, MINUTE, SECOND, USD, Fleet, credit, offer, policy, runner_type


def test_k1_runners_take_other_jobs_than_they_were_launched_for() -> None:
    fleet = Fleet(policy(runner_type(max_runners=5)))
    for number in range(1, 11):
        fleet.job(number)
    idle = fleet.idle()
    assert len(idle) == 5
    for number, runner in zip(range(6, 11), idle, strict=True):
        fleet.start(number, runner)
    fleet.step(MINUTE)
    for number, runner in zip(range(6, 11), idle, strict=True):
        fleet.finish(number, runner)
    fleet.run(2 * MINUTE)
    second = fleet.idle()
    assert len(second) == 5
    for number, runner in zip(range(1, 6), second, strict=True):
        fleet.start(number, runner)
        fleet.finish(number, runner)
    fleet.run(3 * MINUTE)
    assert fleet.at_rest()
    assert fleet.cloud.created == 10


def test_k3_a_job_queued_twice_starts_one_machine() -> None:
    fleet = Fleet(policy())
    first = fleet.job(1, delivery="a")
    fleet.step()
    fleet.tell(first, replace(first, delivery="b"))
    fleet.step()
    assert fleet.cloud.created == 1


def test_k4_completed_before_queued_launches_nothing() -> None:
    fleet = Fleet(policy())
    fleet.job(1, JobState.COMPLETED, conclusion="cancelled")
    fleet.job(1)
    fleet.step()
    assert fleet.cloud.created == 0
    assert fleet.record(1).state is JobState.COMPLETED


def test_k5_cancelled_jobs_leave_no_idle_fleet() -> None:
    fleet = Fleet(policy(runner_type(max_runners=20)))
    for number in range(200):
        fleet.job(number)
    idle = fleet.idle()
    assert len(idle) == 20
    for number in range(20, 200):
        fleet.finish(number, conclusion="cancelled")
    for number, runner in enumerate(idle):
        fleet.start(number, runner)
        fleet.finish(number, runner)
    fleet.run(12 * MINUTE)
    assert fleet.at_rest()
    assert fleet.cloud.created == 20


def test_k5_all_cancelled_while_runners_idle() -> None:
    fleet = Fleet(policy())
    for number in range(20):
        fleet.job(number)
    fleet.idle()
    for number in range(20):
        fleet.finish(number, conclusion="cancelled")
    fleet.run(15 * MINUTE)
    assert fleet.at_rest()
    assert {runner.reason for runner in fleet.runners(RunnerState.GONE)} == {GoneReason.IDLE}


def test_k6_no_capacity_takes_the_next_offer_at_once() -> None:
    fleet = Fleet(policy())
    east = offer("east").key
    fleet.cloud.refuse[east] = m.Trouble.NO_CAPACITY
    fleet.job(1)
    fleet.step()
    fleet.step()
    assert [runner.offer.provider for runner in fleet.runners(RunnerState.STARTING)] == ["west"]
    assert fleet.world.cooldowns[f"offer:{east}"].until_ms == fleet.now + 3 * MINUTE


def test_k6_all_offers_out_is_said_with_the_reason_of_each() -> None:
    fleet = Fleet(policy())
    for name in ("east", "west"):
        fleet.cloud.refuse[offer(name).key] = m.Trouble.NO_CAPACITY
    fleet.job(1)
    for _ in range(3):
        fleet.step()
    refusals = fleet.plan.refusals["linux@repo:acme/app"]
    assert [verdict.refusal.partition(":")[0] for verdict in refusals] == ["cooling", "cooling"]


def test_k7_quota_closes_the_region_and_is_not_retried() -> None:
    fleet = Fleet(policy())
    fleet.cloud.refuse[offer("east").key] = m.Trouble.QUOTA
    for number in range(5):
        fleet.job(number)
    for _ in range(20):
        fleet.step(SECOND)
    assert set(fleet.world.cooldowns) == {"region:east/r1"}
    failed = [r for r in fleet.runners(RunnerState.GONE) if r.reason is GoneReason.LAUNCH_FAILED]
    assert len(failed) == 5  # those under way when the first refusal came, and none after it
    assert len(fleet.runners(RunnerState.STARTING)) == 5


def test_k7_one_probe_after_the_cooldown_and_its_success_opens_the_scope() -> None:
    fleet = Fleet(policy(providers={"east": ProviderPolicy("east", "sim")}))
    scope = f"offer:{offer('east').key}"
    fleet.cloud.refuse[offer("east").key] = m.Trouble.NO_CAPACITY
    for number in range(3):
        fleet.job(number)
    fleet.step()
    fleet.step()
    assert not fleet.planned()
    fleet.step(3 * MINUTE)
    assert len(fleet.planned()) == 1
    assert fleet.world.cooldowns[scope].until_ms == fleet.now + 6 * MINUTE
    fleet.cloud.refuse.clear()
    fleet.step(6 * MINUTE)
    assert len(fleet.planned()) == 1
    assert scope not in fleet.world.cooldowns
    fleet.step()
    assert len(fleet.planned()) == 2


def test_k8_busy_lags_but_a_started_runner_is_never_reaped() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.STARTED))
    fleet.run(30 * MINUTE)
    assert runner.state is RunnerState.BUSY


def test_k8_github_says_busy_at_the_delete_so_the_runner_stays() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.finish(1, conclusion="cancelled")
    fleet.busy.add(runner.id)
    fleet.run(10 * MINUTE)
    assert runner.state is RunnerState.BUSY
    assert runner.id in fleet.cloud.machines


def test_k11_a_machine_that_never_boots_is_replaced_and_three_in_a_row_cool_the_image() -> None:
    fleet = Fleet(policy())
    for number in range(3):
        fleet.job(number)
    fleet.step()
    fleet.run(9 * MINUTE)
    assert fleet.world.cooldowns["image:east"].until_ms > fleet.now
    gone = [r for r in fleet.runners() if r.reason is GoneReason.BOOT_TIMEOUT]
    assert len(gone) == 3
    assert all(runner.offer.provider == "west" for runner in fleet.runners(RunnerState.STARTING))


def test_k12_one_cap_for_ready_machines_and_jobs_together() -> None:
    fleet = Fleet(policy(runner_type(max_runners=100, ready=(ReadyFloor(50),))))
    for number in range(300):
        fleet.job(number)
    for _ in range(5):
        fleet.step(SECOND)
    assert fleet.world.live_count("type:linux") == 100
    assert len(fleet.cloud.machines) == 100


def test_k14_labels_in_another_case_order_and_doubled_match() -> None:
    fleet = Fleet(policy())
    fleet.job(1, labels=("LINUX", "Self-Hosted", "linux"))
    fleet.step()
    assert fleet.record(1).runner_type == "linux"


def test_k15_labels_that_nobody_offers_are_unroutable_at_once_and_name_the_nearest_type() -> None:
    fleet = Fleet(policy())
    fleet.job(1, labels=("self-hosted", "linux", "riscv"))
    fleet.step()
    assert fleet.record(1).blocked == (
        "unroutable: no runner type has all of linux, riscv, self-hosted; the nearest, linux, lacks riscv"
    )


def test_k16_a_job_of_two_types_gets_one_runner_at_the_better_placement() -> None:
    cheap = runner_type("small", labels=("self-hosted", "linux", "small"))
    dear = runner_type("linux", max_price=2 * USD)
    cheap = replace(cheap, hardware=replace(cheap.hardware, cpus=2))
    offers = {"east": (offer("east", USD), offer("east", USD // 10, instance_type="tiny"))}
    tiny = replace(offers["east"][1], hardware=replace(offers["east"][1].hardware, cpus=2))
    fleet = Fleet(policy(dear, cheap), {"east": (offers["east"][0], tiny)})
    fleet.job(1)
    fleet.step()
    assert fleet.record(1).runner_type == "small"
    assert fleet.cloud.created == 1


def test_k16_the_other_type_serves_when_the_first_cannot() -> None:
    first, second = runner_type("first", max_runners=1), runner_type("second")
    labels = ("self-hosted", "linux")
    fleet = Fleet(policy(first, second))
    fleet.job(1, labels=labels)
    fleet.job(2, labels=labels)
    fleet.step()
    assert sorted(runner.runner_type for runner in fleet.runners()) == ["first", "second"]


def test_k17_a_floor_of_zero_is_zero() -> None:
    fleet = Fleet(policy(runner_type(ready=(ReadyFloor(0),))))
    fleet.step()
    assert not fleet.runners()


def test_k18_a_drained_provider_gets_nothing_new_and_running_jobs_finish() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.tell(m.SwitchSet(fleet.now, f"provider:{runner.offer.provider}", on=True))
    fleet.job(2)
    fleet.run(MINUTE)
    assert runner.state is RunnerState.BUSY
    assert [r.offer.provider for r in fleet.runners(RunnerState.STARTING)] == ["west"]


def test_k22_a_spot_machine_killed_under_a_job_leaves_nothing_behind() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.run(5 * MINUTE)
    del fleet.cloud.machines[runner.id]
    fleet.busy.discard(runner.id)
    fleet.run(2 * MINUTE)
    assert runner.state is RunnerState.GONE
    assert runner.reason is GoneReason.VANISHED
    assert fleet.at_rest()
    assert fleet.world.funds["grant"].settled[""] == runner.cost > 0
    assert fleet.cloud.created == 1  # no rule asked for a re-run


def test_k23_no_cash_is_burned_when_credits_run_out() -> None:
    fleet = Fleet(policy(funds=(credit("grant", 5),)))
    for number in range(10):
        fleet.job(number)
    fleet.step()
    assert len(fleet.cloud.machines) == 2  # each hold is $0.50/h over 4 h 13 min at most
    (refusal,) = {v.refusal for v in fleet.plan.refusals["linux@repo:acme/app"] if v.offer.startswith("east")}
    assert refusal == "fund grant has $0.7833 left, a hold needs $2.11"


def test_k27_a_job_that_github_has_forgotten_is_not_launched_for_again() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    fleet.idle()
    fleet.run(50 * MINUTE)
    assert fleet.cloud.created == 1


def test_k29_a_waiting_job_says_why() -> None:
    fleet = Fleet(policy(runner_type(max_runners=0)))
    fleet.job(1)
    fleet.step()
    assert fleet.plan.refusals == {
        "linux@repo:acme/app": (Verdict("linux", refusal="linux runs its max_runners 0"),)
    }


def test_an_unknown_outcome_launches_nothing_twice() -> None:
    fleet = Fleet(policy())
    fleet.cloud.lost_answers = {offer("east").key}
    fleet.job(1)
    fleet.run(30 * SECOND, every=SECOND)
    assert fleet.cloud.created == 1
    (runner,) = fleet.runners(RunnerState.STARTING)  # the inventory showed it
    assert runner.offer.provider == "east"


def test_an_unknown_outcome_that_made_nothing_ends_after_the_settling_time() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    fleet.now += SECOND
    fleet.plan = fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    fleet.cloud.machines.clear()
    runner_id = runner.id
    fleet.run(2 * HOUR)
    assert fleet.world.runners[runner_id].state is RunnerState.GONE


def test_k1_a_started_callback_before_the_webhook_launches_nothing_more() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.STARTED))
    fleet.step()
    assert not fleet.planned()
    fleet.start(1, runner)
    fleet.job(2)
    fleet.step()
    assert len(fleet.planned()) == 1
