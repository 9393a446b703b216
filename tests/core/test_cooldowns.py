"""Cooldowns end: a probe that comes to nothing frees its scope, and a machine's boot time is its own."""

from __future__ import annotations

from collections.abc import Callable

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.model import Runner
from scheduling.plan import plan
from scheduling.policy import ProviderPolicy
from tests.core.fleet import HOUR, MINUTE, SECOND, Fleet, offer, policy, runner_type

EAST = {"east": ProviderPolicy("east", "sim")}
SCOPE = f"offer:{offer('east').key}"


def sold_out() -> Fleet:
    """One job that the only offer refused: its scope cools for three minutes."""
    fleet = Fleet(policy(providers=EAST))
    fleet.cloud.refuse[offer("east").key] = m.Trouble.NO_CAPACITY
    fleet.job(1)
    fleet.step()
    fleet.cloud.refuse.clear()
    return fleet


def never_booting() -> tuple[Fleet, Runner]:
    """Three machines never booted; the image cooled and a fourth machine probes it."""
    fleet = Fleet(policy(providers=EAST))
    for number in (1, 2, 3):
        fleet.job(number)
    fleet.step()
    fleet.run(9 * MINUTE)
    assert fleet.world.cooldowns["image:east"].failures == 3
    fleet.run(4 * MINUTE)
    return fleet, fleet.world.runners[fleet.world.cooldowns["image:east"].probe]


def until(fleet: Fleet, true: Callable[[], object], ms: int) -> None:
    end = fleet.now + ms
    while not true():
        assert fleet.now < end, "did not happen in time"
        fleet.run(30 * SECOND, every=30 * SECOND)


def test_a_probe_whose_create_call_is_lost_frees_its_scope_and_the_job_gets_a_machine() -> None:
    fleet = sold_out()
    perform = fleet.perform

    def lost(command: m.Command) -> m.Event | None:
        if isinstance(command, m.CreateMachine):
            return m.CreateUnknown(fleet.now, command.runner_id, "no answer")
        return perform(command)

    fleet.perform = lost  # type: ignore[method-assign]
    until(fleet, lambda: fleet.world.cooldowns[SCOPE].probe, 5 * MINUTE)
    probe = fleet.world.runners[fleet.world.cooldowns[SCOPE].probe]
    until(fleet, lambda: probe.state is RunnerState.GONE, 30 * MINUTE)
    fleet.perform = perform  # type: ignore[method-assign]
    until(fleet, lambda: fleet.cloud.machines, HOUR)
    assert SCOPE not in fleet.world.cooldowns


def test_an_image_probe_that_is_taken_before_it_boots_frees_the_image() -> None:
    fleet, probe = never_booting()
    del fleet.cloud.machines[probe.id]
    until(fleet, lambda: probe.state is RunnerState.GONE, 10 * MINUTE)
    until(fleet, lambda: fleet.runners(RunnerState.STARTING), HOUR)
    fleet.boot()
    assert "image:east" not in fleet.world.cooldowns


def test_an_image_probe_whose_boot_callback_is_lost_but_that_runs_a_job_frees_the_image() -> None:
    fleet, probe = never_booting()
    fleet.tell(m.StageReported(fleet.now, probe.id, m.Stage.REGISTERED))
    fleet.step()
    fleet.start(1, probe)
    assert "image:east" not in fleet.world.cooldowns
    fleet.finish(1, probe)
    fleet.run(5 * MINUTE)
    assert (probe.state, probe.reason) == (RunnerState.GONE, GoneReason.DONE)
    assert len(fleet.world.live) > 1  # the other two jobs have machines on their way again


def test_boot_timeout_counts_from_the_create_and_not_from_the_decision() -> None:
    fleet = Fleet(policy(providers=EAST))
    fleet.job(1)
    plan(fleet.world, fleet.policy, fleet.now)
    (runner,) = fleet.runners(RunnerState.PLANNED)
    fleet.now += runner.terms.boot_timeout_ms - 20 * SECOND  # it waited for its turn at the launch rate
    fleet.cloud.machines[runner.id] = "i-1"
    fleet.tell(m.MachineCreated(fleet.now, runner.id, "i-1"))
    fleet.run(40 * SECOND)
    assert runner.state is RunnerState.STARTING
    fleet.run(runner.terms.boot_timeout_ms)
    assert runner.reason is GoneReason.BOOT_TIMEOUT


def test_launches_that_wait_for_a_slow_launch_rate_are_not_taken_for_machines_that_do_not_boot() -> None:
    """300 jobs, two creates a second, boots of 20 s, a boot timeout of a minute."""
    fleet = Fleet(policy(runner_type(boot_timeout_ms=MINUTE), providers=EAST))
    perform, places = fleet.perform, [0]

    def slowly(command: m.Command) -> m.Event | None:
        if isinstance(command, m.CreateMachine):
            if not places[0]:
                return None
            places[0] -= 1
        return perform(command)

    fleet.perform = slowly  # type: ignore[method-assign]
    for number in range(300):
        fleet.job(number)
    for _ in range(175):
        places[0] = 2
        fleet.step(SECOND)
        for runner in fleet.runners(RunnerState.STARTING):
            if runner.created_ms <= fleet.now - 20 * SECOND:
                fleet.boot(runner)
    assert fleet.cloud.created == len(fleet.world.runners) == 300
    assert not fleet.runners(RunnerState.STOPPING, RunnerState.GONE, RunnerState.STARTING)
    assert not fleet.world.cooldowns
