"""What pages and commands see of a fleet: the live world on the leader, elsewhere one loaded from the store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

from autoscaler.daemon import Daemon
from autoscaler.reconcile import OFFERS_MS
from autoscaler.store.store import Loaded, StoreAway
from autoscaler.views import why, why_text
from autoscaler.views.jobs_and_runners import View
from providers.base import ProviderError
from scheduling import ledger
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState
from scheduling.model import MicroUSD, UnixMs, Verdict
from scheduling.plan import plan
from scheduling.world import World

KEPT_S = 2.0
"""Real time for which a loaded world serves."""


class Source:
    """Answers for one replica. Reading never changes the fleet."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.policy_error = ""
        self._loading = asyncio.Lock()
        self._listed: list[m.OffersListed] = []
        self._kept: tuple[float, View] | None = None

    async def view(self) -> View:
        """The fleet now, or at most `KEPT_S` old on a replica that does not lead. Raises `StoreAway`."""
        leader = self.daemon.leader
        if leader is not None:
            return self._view(leader.world, leader.refusals, leading=True)
        async with self._loading:
            now = asyncio.get_running_loop().time()
            if self._kept is None or now > self._kept[0] + KEPT_S:
                self._kept = (now, await self._load())
            return self._kept[1]

    async def _load(self) -> View:
        """The stored records; refusals are those of a plan on a second copy, since planning changes a world."""
        loaded, now_ms = await self.daemon.store.load(), self.daemon.clock.now_ms()
        listed = await self._offers(now_ms)
        shown, planned = self._restored(loaded, listed), self._restored(deepcopy(loaded), listed)
        return self._view(shown, plan(planned, self.daemon.policy, now_ms).refusals, leading=False)

    async def _offers(self, now_ms: UnixMs) -> list[m.Event]:
        """What every provider sells, asked for as rarely as a leader asks."""
        if not self._listed or now_ms > self._listed[0].at_ms + OFFERS_MS:
            self._listed = []
            for name, provider in self.daemon.parts.providers.items():
                with suppress(ProviderError):
                    self._listed.append(m.OffersListed(now_ms, name, tuple(await provider.offers())))
        return list(self._listed)

    def _restored(self, loaded: Loaded, listed: list[m.Event]) -> World:
        world = World(self.daemon.fleet.name)
        world.restore(loaded.records)
        for event in listed:
            evolve(world, event, self.daemon.clock.now_ms())
        return world

    def _view(self, world: World, refusals: dict[str, tuple[Verdict, ...]], leading: bool) -> View:
        return View(
            world=world,
            policy=self.daemon.policy,
            refusals=refusals,
            leading=leading,
            policy_error=self.policy_error,
            now_ms=self.daemon.clock.now_ms(),
            budgets=tuple(self.daemon.github.budgets()),
            observed=self.daemon.observed if leading else None,
        )

    async def switch(self, target: str, on: bool, by: str) -> None:
        """Set or clear an operator's switch for the whole fleet. Raises `StoreAway`."""
        await self.daemon.store.append([m.SwitchSet(self.daemon.clock.now_ms(), target, on, by)])

    async def state_spent(self, fund: str, amount: MicroUSD, by: str) -> None:
        """All that was spent of a fund by now, in its present period. KeyError for a fund not in the policy."""
        now_ms = self.daemon.clock.now_ms()
        period = ledger.period(self.daemon.policy.funds[fund], now_ms)
        await self.daemon.store.append([m.FundSpentStated(now_ms, fund, period, amount, now_ms, by)])

    async def explain(self, runner_id: str, run_id: int) -> str:
        """What `why` says of the job that this notice runner got; empty for another runner. Raises `StoreAway`."""
        view = await self.view()
        runner = view.world.runners.get(runner_id)
        job = view.world.jobs.get(runner.launched_for) if runner and runner.terms.notice else None
        if runner is None or job is None:
            return ""
        if job.run_id != run_id:  # GitHub gave it another job of the repository with such labels
            keys = sorted(view.world.runs.get((job.repository, run_id), ()))
            of_run = [view.world.jobs[key] for key in keys]
            job = next((each for each in of_run if set(each.labels) <= set(runner.terms.labels)), job)
        return why_text.as_text(why.job_document(view, replace(job, state=JobState.QUEUED)))

    async def ready(self) -> bool:
        """Whether the store answers."""
        try:
            await self.daemon.store.ping()
        except StoreAway:
            return False
        return True
