"""A JIT config that could not be laid out: what the effect reports."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.clock import Clock
from autoscaler.effects import Effects, Fleet, Parts
from autoscaler.github.client import Jit
from autoscaler.store.store import StaleFence, StoreAway
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.plan import plan
from tests.core.fleet import Fleet as PureFleet
from tests.core.fleet import policy


class GitHub:
    async def jit_turn(self, target: str) -> None:
        """There is always room."""

    async def create_jit(self, target: str, name: str, labels: tuple[str, ...]) -> Jit:
        return Jit(7, "config")


@pytest.mark.parametrize(
    ("failure", "reported"), [(StoreAway("away"), m.EffectFailed), (StaleFence(), type(None))]
)
async def test_the_store_away_is_tried_again_and_another_leader_is_left_alone(
    failure: Exception, reported: type
) -> None:
    fleet = PureFleet(policy())
    fleet.job(1)
    fleet.step()
    fleet.boot()
    plan(fleet.world, fleet.policy, fleet.now)
    (runner,) = fleet.runners(RunnerState.REGISTERING)

    async def put_jit(runner_id: str, config: str) -> None:
        raise failure

    github: Any = GitHub()
    effects = Effects(
        fleet.world, Parts(fleet.policy, {}), github, put_jit, Fleet("acme", b"k" * 32, "http://here"), Clock()
    )
    effects.registrations_listed.set()
    assert type(await effects.perform(m.CreateJit(runner.id))) is reported
