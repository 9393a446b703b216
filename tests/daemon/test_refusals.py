"""A preferred provider that refuses everything: jobs move on at once, and it is not asked in a loop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from providers.conformance import Fault
from scheduling.cooling import FIRST_MS
from scheduling.lifecycle import GoneReason
from scheduling.world import World
from tests.daemon.accounts import KINDS, accounts
from tests.daemon.place import until

pytestmark = pytest.mark.needs("sshd", "bwrap")

JOBS = 20
MINUTE_MS = 60_000
REFUSALS = [
    (kind, fault)
    for kind in KINDS
    for fault in (Fault.NO_CAPACITY, Fault.QUOTA, Fault.UNAUTHORIZED)
    if (kind, fault) != ("ssh", Fault.QUOTA)  # a donated host has no quota
]


def spare(clouds: str) -> Mapping[str, Any]:
    """Where jobs go that nobody else takes: dear, and always willing."""
    types = {"t": {"cpus": 2, "memory_gib": 4, "on_demand": "9 USD/h"}}
    settings = {"boot_seconds": 20, "instance_types": types}
    return {"spare": {"kind": "sim", "endpoint": f"{clouds}/spare", "settings": settings}}


def refused(world: World, kind: str) -> int:
    """Launches that this provider refused, as the daemon knows them."""
    return sum(
        runner.offer.provider == kind and runner.reason is GoneReason.LAUNCH_FAILED
        for runner in world.runners.values()
    )


@pytest.mark.parametrize(("kind", "fault"), REFUSALS)
async def test_k6_k7_every_job_moves_to_the_next_provider(kind: str, fault: Fault) -> None:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        async with accounts(Path(name), 1.0, {kind: 100}, spare) as found:
            replica = await found.place.leading()
            await found.benches[kind].inject(fault)
            if kind == "ssh":  # a connection that is open stays good
                await replica.daemon.parts.providers[kind].close()
            pushed = time.monotonic()
            found.place.push(JOBS, seconds=600)
            await until(lambda: len(found.place.around.clouds["spare"].machines()) == JOBS)
            seconds = time.monotonic() - pushed
            world = replica.daemon.world
            assert world
            assert any(f":{kind}" in scope for scope in world.cooldowns)
            calls = found.creates(kind) or refused(world, kind)
            print(f"{kind}, {fault}: {JOBS} machines elsewhere after {seconds:.2f} s, {calls} calls refused")


async def test_k7_the_calls_a_minute_against_providers_that_refuse_stay_bounded() -> None:
    """All five refuse for five minutes in which jobs keep coming; only cooldowns' probes ask them again."""
    caps = {"ssh": 100, "kubernetes": 100, "gcp": 100, "aws": 100, "azure": 100}
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        async with accounts(Path(name), 60.0, caps, spare) as found:
            place = found.place
            replica = await place.leading()
            for kind in KINDS:
                await found.benches[kind].inject(Fault.NO_CAPACITY)
            world = replica.daemon.world
            assert world
            place.push(JOBS)
            await until(place.done)
            began_ms = place.clock.now_ms()
            before = {kind: refused(world, kind) for kind in KINDS}
            assert all(before.values())
            while place.clock.now_ms() < began_ms + 5 * MINUTE_MS:
                place.push(1)
                await place.clock.sleep(5_000)
            minutes = (place.clock.now_ms() - began_ms) / MINUTE_MS
            probes = sum(
                at <= place.clock.now_ms() - began_ms for at in accumulate(FIRST_MS * 2**n for n in range(9))
            )
            for kind in KINDS:
                scopes = [scope for scope in world.cooldowns if scope.startswith(f"offer:{kind}/")]
                calls = refused(world, kind) - before[kind]
                print(f"{kind}: {before[kind]} calls, then {calls / minutes:.2f} a minute ({len(scopes)} scopes)")
                assert calls <= len(scopes) * (probes + 1)
