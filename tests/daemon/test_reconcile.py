"""What GitHub and clouds list against what we know: nothing is ended, hidden or stopped for want of proof."""

from __future__ import annotations

import asyncio

from autoscaler.github.client import Registration
from providers import base
from providers.base import Instance
from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.plan import plan
from scheduling.policy import ProviderPolicy, ReadyFloor
from tests.core.fleet import HOUR, MINUTE, Fleet, policy, runner_type
from tests.daemon.alone import Alone, failing

EAST = {"east": ProviderPolicy("east", "sim")}
LOST = "r" + "1" * 20
TAGS = {base.TAG_TYPE: "linux", base.TAG_PRICE: "500000", base.TAG_FUND: "grant", base.TAG_HOLD: "1000"}


def queued(fleet: Fleet, number: int, repository: str = "acme/app") -> m.JobReported:
    return m.JobReported(fleet.now, JobState.QUEUED, number, number * 10, 1, repository, ("self-hosted", "linux"))


# ---- jobs --------------------------------------------------------------------------------------------------


async def test_a_queued_job_that_no_list_shows_is_kept_while_its_run_goes_on() -> None:
    alone = Alone(Fleet(policy()))
    alone.fleet.job(1)
    alone.github.listed = {"acme/app": []}
    alone.github.jobs[1] = queued(alone.fleet, 1)
    for _ in range(10):
        alone.fleet.now += 2 * MINUTE
        await alone.sweep.sweep()
    assert alone.fleet.record(1).state is JobState.QUEUED


async def test_a_queued_job_of_a_completed_run_ends_as_stale() -> None:
    alone = Alone(Fleet(policy()))
    alone.fleet.job(1)
    alone.github.listed = {"acme/app": []}
    alone.github.jobs[1] = queued(alone.fleet, 1)
    alone.github.ended_runs = {10}
    alone.fleet.now += 2 * MINUTE
    await alone.sweep.sweep()
    assert (alone.fleet.record(1).state, alone.fleet.record(1).conclusion) == (JobState.COMPLETED, "stale")


async def test_a_waiting_job_that_is_listed_as_queued_is_taken_up() -> None:
    alone = Alone(Fleet(policy()))
    alone.fleet.job(1, JobState.WAITING)
    alone.github.listed = {"acme/app": [queued(alone.fleet, 1)]}
    alone.fleet.now += 2 * MINUTE
    await alone.sweep.sweep()
    alone.fleet.step()
    assert [planned.launched_for for planned in alone.fleet.planned()] == ["1.1"]


async def test_a_waiting_job_that_no_list_shows_is_asked_for_and_taken_up() -> None:
    alone = Alone(Fleet(policy()))
    alone.fleet.job(1, JobState.WAITING)
    alone.github.listed = {"acme/app": []}
    alone.github.jobs[1] = queued(alone.fleet, 1)
    alone.fleet.now += 2 * MINUTE
    await alone.sweep.sweep()
    assert alone.fleet.record(1).state is JobState.QUEUED


async def test_one_repository_that_cannot_be_listed_does_not_hide_the_others() -> None:
    alone = Alone(Fleet(policy()))
    alone.github.listed = {"acme/a": [], "acme/b": [queued(alone.fleet, 1, "acme/b")], "acme/c": []}
    alone.github.away = {"acme/a"}
    assert await failing(alone.sweep.sweep)
    assert alone.fleet.record(1).state is JobState.QUEUED


# ---- registrations -----------------------------------------------------------------------------------------


async def test_one_target_that_cannot_be_listed_does_not_hide_the_others() -> None:
    fleet = Fleet(policy())
    fleet.job(1, repository="acme/a")
    fleet.job(2, repository="acme/b")
    fleet.step()
    alone = Alone(fleet)
    alone.github.away = {"repo:acme/a"}
    alone.github.registrations = {"repo:acme/b": [Registration(5, f"acme-{LOST}", False, False, ())]}
    for _ in range(2):
        assert await failing(alone.reconciler.registrations)
    assert alone.github.deleted == [5]


def with_lost_machine(busy: bool, knows_pool: bool) -> Alone:
    """A machine with our tags, registered at acme/app, that the store does not know."""
    fleet = Fleet(policy(providers=EAST))
    fleet.cloud.machines[LOST] = "i-9"
    if busy:
        fleet.busy.add(LOST)
    fleet.registered.add(LOST)
    if knows_pool:
        fleet.job(1)
        fleet.step()
    alone = Alone(fleet)
    alone.account.odd = [Instance(LOST, "i-9", "r1", "r1-a", "big", fleet.now - HOUR, TAGS)]
    alone.github.registrations["repo:acme/app"] = [Registration(77, f"acme-{LOST}", True, busy, ())]
    return alone


async def rounds(alone: Alone, minutes: int) -> None:
    for _ in range(minutes):
        await alone.inventory.take()
        await alone.reconciler.registrations()
        alone.fleet.step(MINUTE)


async def test_an_adopted_machine_that_github_lists_busy_is_not_stopped() -> None:
    alone = with_lost_machine(busy=True, knows_pool=True)
    await rounds(alone, 60)
    assert alone.fleet.world.runners[LOST].state is RunnerState.BUSY
    assert LOST in alone.fleet.cloud.machines


async def test_an_adopted_busy_machine_is_found_at_a_target_that_is_only_known_later() -> None:
    """The records of pools are lost too: the first job of the repository names the target."""
    alone = with_lost_machine(busy=True, knows_pool=False)
    await rounds(alone, 4)
    alone.fleet.job(1)
    alone.fleet.step()
    await rounds(alone, 20)
    assert alone.fleet.world.runners[LOST].state is RunnerState.BUSY
    assert LOST in alone.fleet.cloud.machines


async def test_an_adopted_machine_that_github_lists_online_leaves_with_its_registration() -> None:
    alone = with_lost_machine(busy=False, knows_pool=True)
    await rounds(alone, 1)
    runner = alone.fleet.world.runners[LOST]
    assert (runner.state, runner.target) == (RunnerState.IDLE, "repo:acme/app")
    alone.fleet.finish(1, conclusion="cancelled")
    await rounds(alone, 12)
    assert runner.reason is GoneReason.IDLE
    assert LOST not in alone.fleet.registered
    assert LOST not in alone.fleet.cloud.machines


async def test_an_adopted_machine_that_said_itself_that_it_is_online_gets_its_target_from_github() -> None:
    alone = with_lost_machine(busy=False, knows_pool=True)
    await alone.inventory.take()
    alone.fleet.tell(m.StageReported(alone.fleet.now, LOST, m.Stage.REGISTERED))
    await rounds(alone, 1)
    assert alone.fleet.world.runners[LOST].target == "repo:acme/app"


async def test_a_registration_that_the_store_has_lost_is_deleted_before_another_is_made() -> None:
    """The machine was ready and is to serve another repository now: GitHub is asked before anything is made."""
    fleet = Fleet(policy())
    fleet.job(1, repository="acme/lib")
    fleet.step()
    fleet.boot()
    (runner,) = fleet.runners(RunnerState.READY)
    alone = Alone(fleet)
    alone.github.registrations["repo:acme/lib"] = [Registration(9, f"acme-{runner.id}", False, False, ())]
    fleet.finish(1, conclusion="cancelled", repository="acme/lib")
    fleet.job(2)
    plan(fleet.world, fleet.policy, fleet.now)
    assert (runner.state, runner.target) == (RunnerState.REGISTERING, "repo:acme/app")
    creating = asyncio.create_task(alone.effects.perform(m.CreateJit(runner.id)))
    await asyncio.sleep(0)
    assert not alone.github.created
    await alone.reconciler.registrations()
    assert alone.github.deleted == [9]
    assert isinstance(await creating, m.JitStored)
    assert alone.github.created == ["repo:acme/app"]


async def test_i2_a_store_that_lost_commits_registers_nobody_again_before_github_is_asked_everywhere() -> None:
    """The machine, which boots by what is left of the records, was registered for a pool that they do not know."""
    fleet = Fleet(policy())
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    for whole, deleted in ((True, []), (False, [9])):
        alone = Alone(fleet, whole=whole)
        alone.github.listed = {"acme/lib": [], "other/one": []}
        alone.github.registrations["repo:acme/lib"] = [Registration(9, f"acme-{runner.id}", False, False, ())]
        await alone.reconciler.registrations()
        assert alone.github.deleted == deleted


# ---- machines ----------------------------------------------------------------------------------------------


async def test_an_orphan_that_cannot_be_removed_does_not_block_the_inventory() -> None:
    fleet = Fleet(policy(providers=EAST))
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.finish(1, runner)
    alone = Alone(fleet)
    alone.account.odd = [Instance(LOST, "", "r1", "r1-a", "big", fleet.now, {}, ("disk-1", "disk-2"))]
    alone.account.locked = {"disk-1"}
    for _ in range(5):
        await alone.inventory.take()
        fleet.step(MINUTE)
    assert runner.state is RunnerState.GONE
    assert fleet.at_rest()
    assert "disk-2" in alone.account.stopped


# ---- --observe ---------------------------------------------------------------------------------------------


async def test_observe_plans_a_ready_floor_once_and_makes_nothing() -> None:
    fleet = Fleet(policy(runner_type(ready=(ReadyFloor(10),))))
    alone = Alone(fleet, observe=True)
    for _ in range(100):
        await alone.tick(30_000)
    assert fleet.world.totals.launched == len(fleet.world.runners) == 10
    assert not alone.account.launched


async def test_observe_neither_adopts_nor_removes_anything() -> None:
    alone = with_lost_machine(busy=False, knows_pool=False)
    alone = Alone(alone.fleet, observe=True)
    ghost = Registration(5, "acme-r" + "3" * 20, False, False, ())
    alone.github.registrations["repo:acme/app"] = [ghost]
    alone.account.odd = [
        Instance(LOST, "i-9", "r1", "r1-a", "big", alone.fleet.now - HOUR, TAGS),
        Instance("r" + "2" * 20, "", "r1", "r1-a", "big", alone.fleet.now, {}, ("disk-1",)),
    ]
    alone.fleet.job(1)
    for _ in range(20):
        await alone.inventory.take()
        await alone.reconciler.registrations()
        await alone.tick(MINUTE)
    assert LOST not in alone.fleet.world.runners
    assert alone.fleet.cloud.machines == {LOST: "i-9"}
    assert [alone.account.launched, alone.account.stopped, alone.github.deleted] == [[], [], []]
    assert alone.fleet.world.totals.launched == 1
