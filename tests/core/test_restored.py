"""A world that is loaded from its records goes on where the one before stopped, in whatever order they come."""

from __future__ import annotations

import copy

from scheduling.lifecycle import RunnerState
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.world import TABLES, World
from tests.core.fleet import HOUR, MINUTE, Fleet, policy


def restored(world: World) -> World:
    """The store gives its records in no order; here in the least handy one."""
    records = [
        (kind, name, record)
        for kind, table in TABLES.items()
        for name, record in copy.deepcopy(getattr(world, table)).items()
    ]
    again = World(world.fleet)
    again.restore(reversed(records))
    return again


def test_the_oldest_are_still_forgotten_first() -> None:
    fleet = Fleet(policy())
    for number in range(1, 5):
        fleet.job(number)
        (runner,) = fleet.idle()
        fleet.start(number, runner)
        fleet.finish(number, runner)
        fleet.run(3 * MINUTE)
        fleet.step(5 * HOUR)
    again = restored(fleet.world)
    assert list(again.finished) == list(fleet.world.finished) == ["1.1", "2.1", "3.1", "4.1"]
    assert list(again.by_state[RunnerState.GONE]) == list(fleet.world.by_state[RunnerState.GONE])
    fleet.world = again
    fleet.step(10 * HOUR)
    assert set(again.jobs) == set(fleet.world.jobs)
    assert list(again.tombstones) == ["1.1", "2.1"]
    assert len(again.runners) == 2
    assert list(restored(again).tombstones) == ["1.1", "2.1"]


def test_intents_are_carried_out_in_the_order_of_their_decisions() -> None:
    fleet = Fleet(policy())
    for number in range(1, 5):
        fleet.job(number)
        fleet.now += MINUTE
        plan(fleet.world, fleet.policy, fleet.now)
    wanted = [command.runner_id for command in pending(fleet.world, fleet.now).due]
    assert [command.runner_id for command in pending(restored(fleet.world), fleet.now).due] == wanted
