"""One leader's parts without a store: facts go straight into the pure fleet, whose time a test moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from autoscaler.daemon import Daemon, Leader
from autoscaler.effects import Effects, Parts
from autoscaler.effects import Fleet as Identity
from autoscaler.github.client import GitHubError, Jit, Registration
from autoscaler.inventory import Inventory
from autoscaler.metrics import Metrics
from autoscaler.reconcile import Reconciler
from autoscaler.store.store import Fence
from autoscaler.sweep import Sweep
from providers.base import Instance, LaunchSpec, Provider, ProviderError
from scheduling import messages as m
from scheduling.pending import pending
from scheduling.plan import plan
from tests.core.fleet import Fleet

EPOCH = "epoch"


class HandClock:
    """A pure fleet's time. Sleeping moves it on."""

    speed = 1.0

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def now_ms(self) -> int:
        return self.fleet.now

    async def sleep(self, ms: int) -> None:
        self.fleet.now += max(0, ms)
        await asyncio.sleep(0)

    def real_seconds(self, ms: int) -> float:
        return ms / 1000


@dataclass
class GitHubSays:
    """GitHub's answers by repository, job, run and target. What is in `away` cannot be asked."""

    listed: dict[str, list[m.JobReported]] = field(default_factory=dict)
    jobs: dict[int, m.JobReported] = field(default_factory=dict)
    ended_runs: set[int] = field(default_factory=set)
    registrations: dict[str, list[Registration]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    deleted: list[int] = field(default_factory=list)
    created: list[str] = field(default_factory=list)

    async def jit_turn(self, target: str) -> None:
        """There is always room."""

    async def create_jit(self, target: str, name: str, labels: Sequence[str]) -> Jit:
        self.created.append(target)
        return Jit(len(self.created), "config")

    async def repositories(self) -> list[str]:
        return sorted(self.listed)

    async def queued_jobs(self, repository: str) -> list[m.JobReported]:
        self._ask(repository)
        return self.listed[repository]

    async def job(self, repository: str, job_id: int) -> m.JobReported | None:
        return self.jobs.get(job_id)

    async def run_ended(self, repository: str, run_id: int) -> bool:
        return run_id in self.ended_runs

    async def list_runners(self, target: str, prefix: str) -> list[Registration]:
        self._ask(target)
        return [found for found in self.registrations.get(target, []) if found.name.startswith(prefix)]

    async def get_runner(self, target: str, registration_id: int) -> Registration | None:
        found = self.registrations.get(target, [])
        return next((each for each in found if each.id == registration_id), None)

    async def delete_runner(self, target: str, registration_id: int) -> None:
        self.deleted.append(registration_id)
        self.registrations[target] = [r for r in self.registrations[target] if r.id != registration_id]

    def budgets(self) -> list[object]:
        return []

    def _ask(self, place: str) -> None:
        if place in self.away:
            raise GitHubError(m.Trouble.REFUSED, f"{place}: 404")


@dataclass
class Account:
    """A provider over the pure fleet's machines. `odd` are instances that its records do not explain."""

    fleet: Fleet
    odd: list[Instance] = field(default_factory=list)
    locked: set[str] = field(default_factory=set)
    launched: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)

    async def instances(self) -> list[Instance]:
        known = self.fleet.world.runners
        found = [
            Instance(runner_id, ref, "r1", "r1-a", "big", known[runner_id].planned_ms)
            for runner_id, ref in self.fleet.cloud.machines.items()
            if runner_id in known
        ]
        return found + [each for each in self.odd if not (each.ref and each.runner_id in known)]

    async def launch(self, spec: LaunchSpec) -> Instance:
        self.launched.append(spec.runner_id)
        ref = self.fleet.cloud.machines.setdefault(spec.runner_id, f"i-{spec.runner_id}")
        return Instance(spec.runner_id, ref, "r1", "r1-a", "big", self.fleet.now)

    async def terminate(self, ref: str) -> None:
        if ref in self.locked:
            raise ProviderError(f"{ref} is locked")
        self.stopped.append(ref)
        for runner_id in [key for key, value in self.fleet.cloud.machines.items() if value == ref]:
            del self.fleet.cloud.machines[runner_id]


class Alone:
    """One leader's looks and effects on `fleet`."""

    def __init__(self, fleet: Fleet, observe: bool = False, whole: bool = True) -> None:
        self.fleet, self.github, self.account = fleet, GitHubSays(), Account(fleet)
        providers = {name: cast(Provider, self.account) for name in fleet.policy.providers}
        parts = Parts(fleet.policy, providers)
        self.clock = HandClock(fleet)
        identity = Identity("acme", b"k" * 32, "http://127.0.0.1")
        self.daemon = cast(
            Daemon,
            SimpleNamespace(
                store=SimpleNamespace(append=self._append),
                clock=self.clock, github=self.github, policy=fleet.policy, parts=parts, fleet=identity,
                metrics=Metrics(), observe=observe, poll=(),
            ),
        )  # fmt: skip
        self.effects = Effects(
            fleet.world, parts, cast(Any, self.github), self._put_jit, identity, cast(Any, self.clock), observe
        )
        self.leader = cast(
            Leader,
            SimpleNamespace(
                world=fleet.world, epoch=EPOCH, inject=fleet.tell, effects=self.effects,
                fence=Fence("server", 1, "alone", whole),
            ),
        )  # fmt: skip
        self.sweep = Sweep(self.daemon, self.leader)
        self.reconciler = Reconciler(self.daemon, self.leader)
        self.inventory = Inventory(self.daemon, self.leader, next(iter(providers)))

    async def _append(self, events: Sequence[m.Event]) -> None:
        self.fleet.tell(*events)

    async def _put_jit(self, runner_id: str, config: str) -> None:
        pass

    async def tick(self, ms: int = 0) -> None:
        """Let time pass, plan, perform through the real effects."""
        self.fleet.now += ms
        self.fleet.plan = plan(self.fleet.world, self.fleet.policy, self.fleet.now)
        for command in pending(self.fleet.world, self.fleet.now).due:
            event = await self.effects.perform(command)
            if event is not None:
                self.fleet.tell(event)


async def failing(look: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """One round of a look, as the reconciler repeats it. True: it said that something could not be seen."""
    try:
        await look()
    except (GitHubError, ProviderError):
        return True
    return False
