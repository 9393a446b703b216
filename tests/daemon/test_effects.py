"""What is performed, in which order, and what a replica does when a part of it fails in an unforeseen way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoscaler.daemon import Daemon
from autoscaler.serve import Replica
from autoscaler.store.store import Loaded
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import ProviderPolicy
from tests.core.fleet import MINUTE, NOON, SECOND, Fleet, policy
from tests.daemon.alone import Alone
from tests.daemon.place import Place, live, ready, until


async def test_a_stop_does_not_wait_behind_launches_that_wait_for_their_rate() -> None:
    fleet = Fleet(policy(providers={"east": ProviderPolicy("east", "sim", launch_rate=2.0)}))
    fleet.job(999)
    (runner,) = fleet.idle()
    fleet.start(999, runner)
    fleet.finish(999, runner)
    fleet.tell(m.RegistrationDeleted(fleet.now, runner.id))
    for number in range(1, 401):
        fleet.job(number)
    plan(fleet.world, fleet.policy, fleet.now)
    alone = Alone(fleet)
    alone.account.stopped = stopped = []
    began_ms = fleet.now
    launches = [
        asyncio.create_task(alone.effects.perform(command))
        for command in pending(fleet.world, fleet.now).due
        if isinstance(command, m.CreateMachine)
    ]
    assert len(launches) == 400
    await asyncio.sleep(0)
    assert runner.state is RunnerState.STOPPING
    assert isinstance(await alone.effects.perform(m.StopMachine(runner.id)), m.StopAccepted)
    assert stopped == [runner.ref]
    assert fleet.now - began_ms < 2 * SECOND
    await asyncio.gather(*launches)
    assert len(alone.account.launched) == 400
    assert 195 * SECOND < fleet.now - began_ms < 205 * SECOND


async def test_a_launch_that_is_given_up_while_it_waits_takes_no_place_in_the_rate() -> None:
    fleet = Fleet(policy(providers={"east": ProviderPolicy("east", "sim", launch_rate=2.0)}))
    for number in range(1, 101):
        fleet.job(number)
    plan(fleet.world, fleet.policy, fleet.now)
    alone = Alone(fleet)
    creates = [c for c in pending(fleet.world, fleet.now).due if isinstance(c, m.CreateMachine)]
    fleet.tell(m.SwitchSet(fleet.now, "all", on=True))
    plan(fleet.world, fleet.policy, fleet.now)
    assert await asyncio.gather(*(alone.effects.perform(create) for create in creates)) == [None] * 100
    assert not alone.account.launched
    assert fleet.now < NOON + MINUTE


async def test_a_store_that_cannot_be_read_in_an_unforeseen_way_is_read_again(place: Place) -> None:
    replica = await place.leading()
    replica.daemon.lease_s = 1.8  # how soon it tries again
    load, failures = replica.store.load, 0

    async def fails_twice() -> Loaded:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise RuntimeError("a bug")
        return await load()

    replica.store.load = fails_twice  # type: ignore[method-assign]
    await _depose(replica.daemon)
    await until(lambda: failures > 2 and ready(replica))
    place.push(1)
    await until(place.at_rest)


async def _depose(daemon: Daemon) -> None:
    """The leader finds out, as after a long pause, that its lease is another's."""
    assert daemon.leader
    daemon.leader.fence = type(daemon.leader.fence)("another", 0, "nobody")
    daemon.leader.inject(m.SwitchSet(0, "type:none", on=False))
    await until(lambda: daemon.leader is None)


# ---- providers over a reload -------------------------------------------------------------------------------


def _without_west(replica: Replica, path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("  west:")))
    replica.reload(path)
    assert replica.source.policy_error == ""


def _closing(replica: Replica, name: str) -> list[str]:
    """Notes when that provider is closed."""
    provider: Any = replica.daemon.parts.providers[name]
    closed: list[str] = []
    close: Callable[[], Any] = provider.close

    async def noted() -> None:
        closed.append(name)
        await close()

    provider.close = noted
    return closed


async def test_a_replica_that_does_not_lead_keeps_a_removed_provider_and_ends_its_machines(place: Place) -> None:
    first = await place.leading()
    await first.source.switch("provider:east", True, "test")
    place.push(1, seconds=240)
    await until(lambda: first.daemon.world and first.daemon.world.by_state[RunnerState.BUSY])
    assert {runner.offer.provider for runner in live(first.daemon.world)} == {"west"}
    second = await place.replica(
        AUTOSCALER_LISTEN="127.0.0.1:0", AUTOSCALER_REDIS_URL=f"unix://{next(_sockets(place))}"
    )
    closed = _closing(second, "west")
    _without_west(second, place.around.policy_path)
    assert set(second.daemon.parts.providers) == {"east", "west"}
    await first.daemon.stop()
    await until(lambda: second.daemon.world is not None and not second.daemon.world.gates)
    await until(place.at_rest)
    await until(lambda: not live(second.daemon.world))
    assert not closed
    assert not place.around.github.never_ran()


def _sockets(place: Place) -> Any:
    return (place.directory / "redis").glob("*.sock*")


async def test_a_removed_provider_without_machines_and_a_replaced_one_are_closed(place: Place) -> None:
    replica = await place.leading()
    closed = [_closing(replica, name) for name in ("east", "west")]
    kept = replica.daemon.parts.providers["east"]
    _without_west(replica, place.around.policy_path)
    await until(lambda: closed == [[], ["west"]])
    assert replica.daemon.parts.providers == {"east": kept}
    path = place.around.policy_path
    path.write_text(path.read_text().replace("boot_seconds: 20.0", "boot_seconds: 21.0"))
    replica.reload(path)
    await until(lambda: closed == [["east"], ["west"]])
    assert replica.daemon.parts.providers["east"] is not kept
    place.push(1)
    await until(place.at_rest)


# ---- machines ----------------------------------------------------------------------------------------------


async def test_a_machine_whose_boot_report_was_lost_counts_as_booted_when_it_asks_for_its_config(
    place: Place,
) -> None:
    replica = await place.leading()
    append, lost = replica.store.append, 0

    async def loses_boots(events: Any, **kept: Any) -> Any:
        nonlocal lost
        first = [e for e in events if isinstance(e, m.StageReported) and e.stage is m.Stage.BOOTED]
        if first and not lost:
            lost += 1
            return None
        return await append(events, **kept)

    replica.runner_api._store.append = loses_boots  # type: ignore[method-assign]
    place.push(1)
    await until(place.at_rest)
    assert lost == 1
    assert sum(cloud.made for cloud in place.around.clouds.values()) == 1
