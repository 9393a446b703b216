"""How a simulated account behaves, and how it misbehaves when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from autoscaler.clock import Clock
from providers.base import (
    LaunchSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.sim import Machine, Settings, SimCloud
from scheduling.model import Offer

CloudWith = Callable[..., SimCloud]
LaunchOf = Callable[..., LaunchSpec]
MINUTE = 60_000


async def listed(cloud: SimCloud) -> list[str]:
    return [instance.ref for instance in await cloud.instances("test")]


async def test_a_repeated_launch_finds_its_first_machine(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with()
    first, second = await asyncio.gather(*(cloud.create(launch_of(1, offer)) for _ in range(2)))
    assert first == second
    assert first.tags["autoscaler-runner"] == first.runner_id
    assert await listed(cloud) == [first.ref]


async def test_the_key_holds_at_one_offer_only(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, spot: Offer
):
    cloud = cloud_with()
    one, other = await cloud.create(launch_of(1, offer)), await cloud.create(launch_of(1, spot))
    assert await listed(cloud) == [one.ref, other.ref]


async def test_terminate_removes_and_an_absent_machine_is_success(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer
):
    cloud = cloud_with()
    made = await cloud.create(launch_of(1, offer))
    await cloud.terminate(made.ref)
    await cloud.terminate(made.ref)
    await cloud.terminate("nothing")
    assert await listed(cloud) == []
    assert cloud.machines() == []


async def test_only_the_fleet_s_own_machines_are_listed(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with()
    await cloud.create(launch_of(1, offer, fleet="other"))
    assert await listed(cloud) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("no_capacity", NoCapacity),
        ("quota", QuotaExceeded),
        ("refused", Refused),
        ("unauthorized", Unauthorized),
        ("transient", Transient),
    ],
)
async def test_refusals_make_no_machine(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, fault: str, error: type[ProviderError]
):
    cloud = cloud_with(faults={fault: 1})
    with pytest.raises(error, match="lab: "):
        await cloud.create(launch_of(1, offer))
    assert await listed(cloud) == []


async def test_capacity_of_a_zone_is_used_up_and_freed(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with(capacity=2)
    made = [await cloud.create(launch_of(n, offer)) for n in range(2)]
    with pytest.raises(NoCapacity, match="sim-8c-16g is sold out in sim-1a"):
        await cloud.create(launch_of(3, offer))
    await cloud.terminate(made[0].ref)
    await cloud.create(launch_of(4, offer))


async def test_a_lost_answer_leaves_one_machine(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with(faults={"answer_lost": 1})
    with pytest.raises(OutcomeUnknown):
        await cloud.create(launch_of(1, offer))
    assert [(await cloud.create(launch_of(1, offer))).ref] == await listed(cloud)


async def test_a_lost_question_leaves_none(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with(faults={"not_applied": 1})
    with pytest.raises(OutcomeUnknown):
        await cloud.create(launch_of(1, offer))
    assert await listed(cloud) == []


async def test_applied_late(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, clock):
    cloud = cloud_with(faults={"applied_late": 1})
    with pytest.raises(OutcomeUnknown):
        await cloud.create(launch_of(1, offer))
    assert await listed(cloud) == []
    await clock.sleep(MINUTE)
    assert len(await listed(cloud)) == 1


async def test_a_zombie_obeys_the_second_call(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer):
    cloud = cloud_with(faults={"zombie": 1})
    made = await cloud.create(launch_of(1, offer))
    await cloud.terminate(made.ref)
    assert await listed(cloud) == [made.ref]
    await cloud.terminate(made.ref)
    assert await listed(cloud) == []


async def test_a_disk_outlives_its_machine_until_it_is_removed(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer
):
    cloud = cloud_with(faults={"orphan": 1})
    made = await cloud.create(launch_of(1, offer))
    assert made.orphans == ()
    await cloud.terminate(made.ref)
    [left] = await cloud.instances("test")
    assert (left.runner_id, left.ref, left.orphans) == (made.runner_id, "", (f"{made.ref}-disk",))
    await cloud.terminate(*left.orphans)
    assert await listed(cloud) == []


async def test_a_stale_list_shows_the_state_of_a_minute_ago(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, clock
):
    cloud = cloud_with(faults={"stale_list": 1})
    made = await cloud.create(launch_of(1, offer))
    assert await listed(cloud) == []
    await clock.sleep(2 * MINUTE)
    await cloud.terminate(made.ref)
    assert await listed(cloud) == [made.ref]
    await clock.sleep(2 * MINUTE)
    assert await listed(cloud) == []


async def test_spot_machines_are_taken_and_others_are_not(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, spot: Offer, clock
):
    cloud = cloud_with(faults={"preempted": 1})
    day = 24 * 60 * MINUTE
    kept = await cloud.create(launch_of(1, offer, lifetime_ms=day))
    await cloud.create(launch_of(2, spot, lifetime_ms=day))
    await clock.sleep(60 * MINUTE)
    assert await listed(cloud) == [kept.ref]


async def test_the_dead_man_switch(cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, clock):
    cloud = cloud_with()
    await cloud.create(launch_of(1, offer, lifetime_ms=5 * MINUTE))
    await clock.sleep(5 * MINUTE)
    assert await listed(cloud) == []


async def test_a_program_runs_after_the_boot_and_its_end_is_the_machine_s(launch_of: LaunchOf, offer: Offer):
    leave, ended = asyncio.Event(), asyncio.Queue[str]()

    async def program(machine: Machine) -> None:
        try:
            await leave.wait()
        finally:
            ended.put_nowait(machine.ref)

    settings = Settings.model_validate({"seed": 4, "boot_seconds": 30, "faults": {"boot_hang": 0.5}})
    cloud = SimCloud("lab", settings, Clock(speed=10_000), on_boot=program)
    fates = [cloud.fate(n).fault for n in range(6)]
    assert {*fates} == {None, "boot_hang"}
    made = [await cloud.create(launch_of(n, offer, lifetime_ms=10**10)) for n in range(6)]
    healthy = [one.ref for one, fate in zip(made, fates, strict=True) if not fate]
    tasks = [machine.task for machine in cloud.machines() if machine.task]
    await asyncio.sleep(0.02)
    await cloud.terminate(healthy[0])
    assert await ended.get() == healthy[0]
    leave.set()
    assert {await ended.get() for _ in healthy[1:]} == {*healthy[1:]}
    await asyncio.wait(tasks, timeout=5)
    hanging = [one.ref for one, fate in zip(made, fates, strict=True) if fate]
    assert [machine.ref for machine in cloud.machines()] == hanging
    await cloud.close()


async def test_a_lifetime_ends_the_program(launch_of: LaunchOf, offer: Offer):
    ended = asyncio.Event()

    async def program(machine: Machine) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    cloud = SimCloud("lab", Settings(), Clock(speed=10_000), on_boot=program)
    await cloud.create(launch_of(1, offer, lifetime_ms=MINUTE))
    await ended.wait()
    await cloud.close()


async def test_one_seed_gives_one_schedule_whoever_launches(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer
):
    faults = {"no_capacity": 0.2, "transient": 0.1, "answer_lost": 0.1, "boot_failure": 0.2, "zombie": 0.1}

    async def outcomes(runners: range) -> list[str]:
        cloud, found = cloud_with(seed=7, boot_seconds=40, faults=faults), []
        for runner in runners:
            try:
                machine = await cloud.create(launch_of(runner, offer))
                found.append(f"{machine.ref}")
            except ProviderError as error:
                found.append(type(error).__name__)
        return found

    assert await outcomes(range(40)) == await outcomes(range(100, 140))
    assert len({*await outcomes(range(40))}) > 20
    fates = [cloud_with(seed=7, boot_seconds=40, faults=faults).fate(n) for n in range(500)]
    assert fates == [cloud_with(seed=7, boot_seconds=40, faults=faults).fate(n) for n in range(500)]
    assert fates != [cloud_with(seed=8, boot_seconds=40, faults=faults).fate(n) for n in range(500)]
    assert 70 < sum(fate.fault == "no_capacity" for fate in fates) < 130
    assert all(20_000 <= fate.boot_ms <= 60_000 for fate in fates)


async def test_ended_machines_are_forgotten_in_time(
    cloud_with: CloudWith, launch_of: LaunchOf, offer: Offer, clock
):
    cloud = cloud_with()
    made = await cloud.create(launch_of(1, offer))
    await cloud.terminate(made.ref)
    assert (await cloud.create(launch_of(1, offer))).ref == made.ref
    await clock.sleep(61 * MINUTE)
    await cloud.instances("test")
    assert (await cloud.create(launch_of(1, offer))).ref != made.ref
