"""`autoscaler verify`: every disagreement between store, clouds and GitHub. Reads everything, changes nothing.

What is on its way (a launch or a stop of the last minutes) may show as a disagreement of the moment: only what a
second look confirms is told.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.github.client import GitHub, GitHubError, Registration
from autoscaler.store.store import Store
from providers.base import Instance, Provider, ProviderError
from scheduling.lifecycle import LIVE, RunnerState
from scheduling.model import Runner
from scheduling.world import World

SECOND_LOOK_S = 15.0
"""Real time between the two looks."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """`where` is a provider's name or a registration target; `what` says both sides."""

    where: str
    what: str


async def verify(
    store: Store,
    fleet: str,
    providers: Mapping[str, Provider],
    github: GitHub,
    second_look_s: float = SECOND_LOOK_S,
) -> list[Disagreement]:
    """Everything found twice. A cloud or GitHub that does not answer is a disagreement of its own."""
    first = await _look(store, fleet, providers, github)
    if not first:
        return []
    await asyncio.sleep(second_look_s)
    second = set(await _look(store, fleet, providers, github))
    return [found for found in first if found in second]


async def _look(store: Store, fleet: str, providers: Mapping[str, Provider], github: GitHub) -> list[Disagreement]:
    world = World(fleet)
    world.restore((await store.load()).records)
    found: list[Disagreement] = []
    for name, provider in providers.items():
        try:
            instances = await provider.instances()
        except ProviderError as error:
            found.append(Disagreement(name, f"cannot list its machines: {error}"))
            continue
        found += [Disagreement(name, what) for what in _machines(name, world, instances)]
    strays = Counter(r.offer.provider for r in world.runners.values() if r.state in LIVE)
    for name in sorted(strays.keys() - providers.keys()):
        found.append(
            Disagreement(name, f"{strays[name]} runners are on record there, but the policy does not name it")
        )
    registered = [runner for runner in world.runners.values() if runner.target and runner.state in _REGISTERED]
    for target in sorted({pool.target for pool in world.pools.values()} | {r.target for r in registered}):
        try:
            listed = await github.list_runners(target, f"{fleet}-r")
        except GitHubError as error:
            found.append(Disagreement(target, f"cannot list its runners: {error}"))
            continue
        found += [Disagreement(target, what) for what in _registrations(target, world, listed)]
    return found


_REGISTERED = (RunnerState.IDLE, RunnerState.BUSY)


def _machines(provider: str, world: World, instances: Sequence[Instance]) -> list[str]:
    found = []
    seen = {instance.runner_id for instance in instances if instance.ref}
    for instance in instances:
        found += [f"{orphan} outlived runner {instance.runner_id}" for orphan in instance.orphans]
        runner = world.runners.get(instance.runner_id)
        if not instance.ref:
            continue
        if runner is None:
            found.append(f"machine {instance.ref} runs for {instance.runner_id}, which the store does not know")
        elif runner.state is RunnerState.GONE:
            found.append(f"machine {instance.ref} still runs for {runner.id}, which has ended ({runner.reason})")
        elif runner.ref and runner.ref != instance.ref:
            found.append(f"machine {instance.ref} is a second one for {runner.id} beside {runner.ref}")
    for runner in world.runners.values():
        if runner.offer.provider == provider and _must_exist(runner) and runner.id not in seen:
            found.append(f"runner {runner.id} is {runner.state}, but its machine {runner.ref} is not listed")
    return found


def _must_exist(runner: Runner) -> bool:
    ended = (RunnerState.STOPPING, RunnerState.GONE, RunnerState.LEAVING)
    return bool(runner.ref) and runner.state not in ended


def _registrations(target: str, world: World, listed: Sequence[Registration]) -> list[str]:
    found = []
    name = re.compile(rf"{re.escape(world.fleet)}-(r[a-z0-9]{{20}})")
    ids = set()
    for registration in listed:
        match = name.fullmatch(registration.name)
        if match is None:
            continue
        ids.add(match[1])
        runner = world.runners.get(match[1])
        if runner is None:
            found.append(f"{registration.name} is registered, but the store does not know it")
        elif runner.state is RunnerState.GONE:
            found.append(f"{registration.name} is registered, but its runner has ended ({runner.reason})")
    for runner in world.runners.values():
        if runner.target == target and runner.state is RunnerState.IDLE and runner.id not in ids:
            found.append(f"runner {runner.id} is idle, but GitHub does not list it")
    return found
