"""Compares clouds, GitHub and the world, and only emits facts. Unknown means keep; one list proves nothing.

Runs while this replica leads: each provider's inventory and offers (`inventory`), GitHub's registrations (here),
its jobs (`sweep`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from autoscaler.github.client import GitHubError, Registration
from autoscaler.inventory import Inventory
from autoscaler.planner.planner import Planner
from autoscaler.store.store import StoreAway
from autoscaler.sweep import REDELIVERY_MS, STUCK_MS, Sweep
from providers.base import HostKeeper, ProviderError
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.matching import target_of
from scheduling.model import DurationMs, Runner
from scheduling.policy import matches

if TYPE_CHECKING:
    from autoscaler.daemon import Daemon, Leader

log = logging.getLogger(__name__)

INVENTORY_MS: DurationMs = 60_000
CONFIRM_MS: DurationMs = 12_000
"""Between inventories while some machine's end or beginning waits for proof, or the provider's gate is closed."""
OFFERS_MS: DurationMs = 600_000
ROOM_MS: DurationMs = 30_000
"""Between offers that count what a cluster has room for, which others use too."""
CALLERS_MS: DurationMs = 5_000
"""Between looks at offers of hosts that call us: no call goes out, and one that just joined is used at once."""
REGISTRATIONS_MS: DurationMs = 120_000
RETRY_MS: DurationMs = 5_000
LONGEST_RETRY_MS: DurationMs = 60_000

_BEFORE_MACHINE = (RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING)
_BEFORE_IDLE = (*_BEFORE_MACHINE, RunnerState.READY, RunnerState.REGISTERING)
_SERVING = (RunnerState.IDLE, RunnerState.BUSY)
_UNPROVEN = (RunnerState.STOPPING, RunnerState.LEAVING, RunnerState.UNKNOWN)


class Reconciler:
    """The periodic comparisons of one leader."""

    def __init__(self, daemon: Daemon, leader: Leader) -> None:
        self.daemon, self.leader, self.world = daemon, leader, leader.world
        self.clock, self.github = daemon.clock, daemon.github
        self._targets = dict.fromkeys((pool.target for pool in self.world.pools.values()), 3)  # rounds left
        self._missing: set[str] = set()  # registrations that one list lacked
        self._ghosts: set[int] = set()  # registrations of ours without a live runner, seen once
        self._name = re.compile(rf"{re.escape(daemon.fleet.name)}-(r[a-z0-9]{{20}})")

    async def run(self) -> None:
        """Until cancelled. New providers of a reloaded policy join at once."""
        async with asyncio.TaskGroup() as group:
            sweep = Sweep(self.daemon, self.leader)
            group.create_task(self._repeat(sweep.sweep, sweep.gap_ms))
            group.create_task(self._repeat(sweep.stuck, lambda: STUCK_MS))
            if not self.daemon.poll:
                group.create_task(self._repeat(sweep.redeliver, lambda: REDELIVERY_MS))
            group.create_task(self._repeat(self.registrations, lambda: REGISTRATIONS_MS))
            if self.daemon.value_funds:
                group.create_task(Planner(self.daemon, self.world).run())
            watched: dict[str, tuple[object, list[asyncio.Task[None]]]] = {}
            while True:
                for name, provider in self.daemon.parts.providers.items():
                    if name in watched and watched[name][0] is provider:
                        continue
                    for task in watched.pop(name, (None, []))[1]:
                        task.cancel()
                    watched[name] = (provider, self._watch(group, name))
                for name in [name for name in watched if name not in self.daemon.parts.providers]:
                    for task in watched.pop(name)[1]:
                        task.cancel()
                await self.clock.sleep(1_000)

    def _watch(self, group: asyncio.TaskGroup, name: str) -> list[asyncio.Task[None]]:
        inventory = Inventory(self.daemon, self.leader, name)
        return [
            group.create_task(self._repeat(inventory.offers, lambda: self._offers_gap_ms(name))),
            group.create_task(self._repeat(inventory.take, lambda: self._inventory_gap_ms(name))),
            group.create_task(self._repeat(inventory.balance, lambda: OFFERS_MS)),
        ]

    def _offers_gap_ms(self, name: str) -> DurationMs:
        keeper, provider = self.daemon.parts.providers.get(name), self.daemon.policy.providers.get(name)
        if isinstance(keeper, HostKeeper) and keeper.sponsors:
            return CALLERS_MS
        return ROOM_MS if provider and provider.from_cluster else OFFERS_MS

    def _inventory_gap_ms(self, name: str) -> DurationMs:
        runners = self.world.runners
        unproven = any(
            runners[key].offer.provider == name for state in _UNPROVEN for key in self.world.by_state[state]
        )
        return CONFIRM_MS if unproven or name in self.world.gates else INVENTORY_MS

    async def _repeat(
        self, round_: Callable[[], Coroutine[Any, Any, None]], gap_ms: Callable[[], DurationMs]
    ) -> None:
        """One round after the other; a failed one is logged and tried again, at first soon, never all at once."""
        retry_ms = RETRY_MS
        while True:
            try:
                await round_()
                retry_ms = RETRY_MS
            except (ProviderError, GitHubError, StoreAway) as error:
                log.warning("%s: %s", round_.__qualname__, error)
                wait_ms = max(retry_ms, getattr(error, "retry_after_ms", 0))
                await self.clock.sleep(int(wait_ms * (1 + self.daemon.dice.random() / 2)))
                retry_ms = min(2 * retry_ms, LONGEST_RETRY_MS)
                continue
            except Exception:
                log.exception("%s failed in an unforeseen way", round_.__qualname__)
            began_ms = self.clock.now_ms()
            while (left_ms := began_ms + gap_ms() - self.clock.now_ms()) > 0:
                await self.clock.sleep(min(left_ms, CONFIRM_MS))

    async def emit(self, events: Sequence[m.Event]) -> None:
        if events:
            await self.daemon.store.append(events)

    # ---- registrations -------------------------------------------------------------------------------------

    async def registrations(self) -> None:
        """Ask GitHub for our registrations at every target in use, and delete those that nobody stands behind.

        A target that was in use is asked twice more, so that what was left there is found; at a takeover all are.
        Whatever the policy allows is asked while it is not known where an adopted machine is registered, and once
        after a store has lost its last commits: a runner must not be registered a second time elsewhere.
        """
        began_ms = self.clock.now_ms()
        used = {runner.target for runner in self._registered() if runner.target}
        lost = any(self._lost(runner) for runner in self.world.runners.values())
        first = not self.leader.effects.registrations_listed.is_set()
        if lost or (first and not self.leader.fence.whole):
            used |= {pool.target for pool in self.world.pools.values()} | await self._every_target()
        self._targets = {target: rounds - 1 for target, rounds in self._targets.items() if rounds > 1}
        self._targets |= dict.fromkeys(used, 3)
        seen: set[str] = set()
        listed: set[str] = set()
        failed: GitHubError | None = None
        try:
            for target in sorted(self._targets):
                try:
                    for found in await self.github.list_runners(target, f"{self.daemon.fleet.name}-r"):
                        if match := self._name.fullmatch(found.name):
                            seen.add(match[1])
                            await self._compare(match[1], target, found)
                    listed.add(target)
                except GitHubError as error:  # one that cannot be listed must not hide the others
                    log.warning("cannot list the runners of %s: %s", target, error)
                    failed = error
        finally:
            self.leader.effects.registrations_listed.set()
        await self._confirm_missing(listed, seen)
        if failed is not None:
            raise failed
        if lost:
            await self.emit([m.RegistrationsListed(began_ms)])

    async def _every_target(self) -> set[str]:
        """Wherever the policy could have registered a runner: for a store that has lost its pools too."""
        repositories = await self.github.repositories()
        return {
            target_of(rtype, name)
            for rtype in self.daemon.policy.runner_types.values()
            for name in repositories
            if matches(rtype.access.repositories, name)
        }

    def _registered(self) -> list[Runner]:
        states = (RunnerState.REGISTERING, RunnerState.IDLE, RunnerState.BUSY, RunnerState.LEAVING)
        early = [self.world.runners[key] for state in _BEFORE_MACHINE for key in self.world.by_state[state]]
        found = [self.world.runners[key] for state in states for key in self.world.by_state[state]]
        return found + [runner for runner in early if runner.registration_id]

    def _lost(self, runner: Runner) -> bool:
        """Whether it may be registered at a target that we do not know."""
        return runner.adopted and not runner.pool and runner.state in (*_BEFORE_IDLE, *_SERVING)

    def _forgotten(self, runner: Runner) -> bool:
        """Whether a registration can only be one that the store has lost: this leader has made none yet."""
        made = self.leader.effects.registrations_listed.is_set()
        fresh = runner.state in _BEFORE_IDLE and not runner.registration_id
        return fresh and not made and not runner.adopted and not runner.terms.userdata

    async def _compare(self, runner_id: str, target: str, found: Registration) -> None:
        runner = self.world.runners.get(runner_id)
        if runner is None or runner.state in (RunnerState.GONE, RunnerState.STOPPING):
            await self._ghost(target, found.id, found.online or found.busy)
            return
        if self._forgotten(runner) and not (found.online or found.busy or self.daemon.observe):
            await self.github.delete_runner(target, found.id)  # before another is made
            return
        news = found.busy or (found.online and runner.state in _BEFORE_IDLE)
        if (news and runner.state in (*_BEFORE_IDLE, RunnerState.IDLE)) or self._lost(runner):
            now_ms = self.clock.now_ms()
            await self.emit([m.RegistrationSeen(now_ms, runner_id, found.id, found.online, found.busy, target)])

    async def _ghost(self, target: str, registration_id: int, alive: bool) -> None:
        """A registration of ours without a runner: deleted the second time that it is seen offline and idle."""
        if alive or self.daemon.observe:
            self._ghosts.discard(registration_id)
        elif registration_id not in self._ghosts:
            self._ghosts.add(registration_id)
        else:
            self._ghosts.discard(registration_id)
            await self.github.delete_runner(target, registration_id)
            log.info("deleted registration %d at %s: no runner of ours stands behind it", registration_id, target)

    async def _confirm_missing(self, targets: set[str], seen: set[str]) -> None:
        """A registration that a list lacks is asked for by id, in two rounds, before it counts as gone."""
        missing: set[str] = set()
        for runner in self._registered():
            if runner.state not in (RunnerState.REGISTERING, RunnerState.IDLE) or not runner.registration_id:
                continue
            if runner.target not in targets or runner.id in seen:
                continue
            if await self.github.get_runner(runner.target, runner.registration_id) is not None:
                continue
            if runner.id in self._missing:
                await self.emit([m.RegistrationAbsent(self.clock.now_ms(), runner.id)])
            else:
                missing.add(runner.id)
        self._missing = missing
