"""The loop: read a batch, evolve, plan, commit, then perform what the records say. One replica leads at a time.

Everything is decided from the world, and every fact comes in through the store's inbox; what only concerns this
leader (offers, its takeover, its policy) is injected. A commit that is rejected or unanswered drops the world.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscaler.clock import Clock
from autoscaler.crew import Crew
from autoscaler.effects import Effects, Fleet, Parts
from autoscaler.github.budget import creations_a_minute
from autoscaler.github.client import GitHub
from autoscaler.metrics import Metrics
from autoscaler.observed import Observed
from autoscaler.reconcile import Reconciler
from autoscaler.store.codec import Undecodable
from autoscaler.store.store import Entry, Fence, JournalEntry, StaleFence, Store, StoreAway
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import LIVE, JobState
from scheduling.model import Verdict
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.policy import Policy
from scheduling.world import Key, World

log = logging.getLogger(__name__)

BATCH = 500
LEASE_S = 6.0
"""Real time after which a dead leader is replaced; renewed three times as often."""
DRAIN_S = 20.0
"""Real time that effects under way get to end at a stop."""
IDLE_S = 1.0
"""Longest real time without a look at the records."""
REMIND_S = 60.0
"""Real time between two lines that say the same of a trouble that lasts."""

JOURNALLED = (
    m.RunnerPlanned,
    m.ReapDecided,
    m.RunnerSettled,
    m.RerunDecided,
    m.RerunAnswered,
    m.SwitchSet,
    m.FundSpentStated,
    m.FundsValued,
    m.CreateFailed,
    m.CreateUnknown,
    m.MachineAdopted,
    m.LeadershipTaken,
    m.PolicyActivated,
)
"""What the journal keeps: decisions about machines and money, and what the operator or a cloud did to them."""


class Deposed(Exception):
    """This replica leads no longer; the text says why."""


@dataclass(slots=True)
class Leader:
    """All that lives only while this replica leads."""

    fence: Fence
    world: World
    cursor: str
    epoch: str
    effects: Effects
    crew: Crew
    injected: list[m.Event] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    refusals: dict[str, tuple[Verdict, ...]] = field(default_factory=dict)

    def inject(self, event: m.Event) -> None:
        """Evolve this with the next tick; it is not stored."""
        self.injected.append(event)
        self.wake.set()


class Daemon:
    """One replica. `run` until `stop`; it leads whenever it gets the lease."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        github: GitHub,
        parts: Parts,
        fleet: Fleet,
        metrics: Metrics,
        observe: bool = False,
        poll: tuple[str, ...] = (),
        lease_s: float = LEASE_S,
        dice: random.Random | None = None,
    ) -> None:
        self.store, self.clock, self.github, self.parts = store, clock, github, parts
        self.fleet, self.metrics, self.observe, self.poll = fleet, metrics, observe, poll
        self.lease_s = lease_s
        self.dice = dice or random.SystemRandom()
        self.holder = self.dice.randbytes(8).hex()
        self.leader: Leader | None = None
        self.value_funds = False  # whether a leader runs the planner, where SciPy is installed
        self.heard: Callable[[m.Event, World], None] = lambda event, world: None  # told of facts and decisions
        self.observed = Observed() if observe else None
        self._poisoned: set[str] = set()
        self._complained: tuple[type[Exception], float] | None = None  # of what, and when (loop time)
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def policy(self) -> Policy:
        return self.parts.policy

    @property
    def world(self) -> World | None:
        """The live world; None while another replica leads."""
        return self.leader.world if self.leader else None

    # ---- leading -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lead when possible, until `stop`. Redis or a cloud away is waited for, never fatal."""
        while not self._stopping:
            try:
                fence = await self.store.acquire(self.holder, self.lease_s)
                if fence is not None:
                    await self._lead(fence)
                    continue
                self._complained = None
            except (StoreAway, StaleFence, Deposed) as error:
                self._complain(error)
            except Exception:  # a replica that cannot lead must say so and try again, not fall silent
                log.exception("leading failed in an unforeseen way")
                self.metrics.commit("failed")
            await self._pause(self.lease_s / 6 * (0.5 + self.dice.random()))

    def _complain(self, error: Exception) -> None:
        """One line at the change, then a reminder each minute: Redis may be away for hours."""
        now = asyncio.get_running_loop().time()
        if self._complained is None or self._complained[0] is not type(error):
            log.warning("not leading: %s", error)
        elif now - self._complained[1] >= REMIND_S:
            log.warning("still not leading: %s", error)
        else:
            return
        self._complained = type(error), now

    async def stop(self) -> None:
        """Drain: finish the tick and the effects under way, give the lease to another replica."""
        self._stopping = True
        self._stopped.set()
        if self.leader:
            self.leader.wake.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _lead(self, fence: Fence) -> None:
        leader = await self._take_over(fence)
        self._complained = None
        self.metrics.leading(True)
        lease = asyncio.create_task(self._keep_lease(leader))
        duties = [asyncio.create_task(self._loop(leader)), asyncio.create_task(Reconciler(self, leader).run())]
        try:
            done, _ = await asyncio.wait({lease, *duties}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.leader = None
            self.metrics.leading(False)
            await _cancel(*duties)  # first, so that nothing new is begun
            await leader.crew.finish(DRAIN_S if self._stopping else 0.0)
            await _cancel(lease)
            if self._stopping:
                await self.store.release(fence)

    async def _take_over(self, fence: Fence) -> Leader:
        loaded = await self.store.load()
        world = World(self.fleet.name)
        world.restore(loaded.records)
        effects = Effects(
            world,
            self.parts,
            self.github,
            lambda runner_id, config: self.store.put_jit(runner_id, config, fence),
            self.fleet,
            self.clock,
            self.observe,
        )
        epoch = self.dice.randbytes(8).hex()
        crew = Crew(effects, self.store.append, self.metrics, self.dice)
        self.leader = leader = Leader(fence, world, loaded.cursor, epoch, effects, crew)
        now_ms = self.clock.now_ms()
        leader.inject(m.LeadershipTaken(now_ms, tuple(self.parts.providers), epoch, fence.whole))
        leader.inject(self._activation(self.policy))
        for name in sorted(
            {r.offer.provider for r in world.runners.values() if r.state in LIVE} - set(self.parts.providers)
        ):
            log.error("machines run at %s, which the policy does not name: put it back until they are gone", name)
        if not fence.whole:
            log.warning("the store may have lost its last commits: no launch before machines were listed anew")
        log.info("leading with %d jobs and %d runners on record", len(world.jobs), len(world.runners))
        return leader

    async def _keep_lease(self, leader: Leader) -> None:
        loop = asyncio.get_running_loop()
        good_until = loop.time() + self.lease_s
        while True:
            await asyncio.sleep(self.lease_s / 3)
            asked = loop.time()
            try:
                if not await self.store.renew(leader.fence, self.lease_s):
                    raise Deposed("another replica took the lease")
                good_until = asked + self.lease_s
            except StoreAway as error:
                if loop.time() > good_until:
                    raise Deposed(f"the lease ran out while the store was away: {error}") from error

    def activate(self, parts: Parts) -> None:
        """A new policy rules from the next tick on; launches under way keep their frozen terms."""
        self.parts = parts
        if self.leader:
            self.leader.effects.use(parts)
            self.leader.inject(self._activation(parts.policy))

    def _activation(self, policy: Policy) -> m.PolicyActivated:
        return m.PolicyActivated(self.clock.now_ms(), policy.hash, policy.fair_share.half_life_ms)

    # ---- the loop ------------------------------------------------------------------------------------------

    async def _loop(self, leader: Leader) -> None:
        next_wake_ms = 0
        reading: asyncio.Task[list[Entry]] | None = None
        try:
            while not self._stopping:
                reading = reading or asyncio.create_task(self.store.read(leader.cursor, BATCH, self._wait_s(0)))
                woken = asyncio.create_task(leader.wake.wait())
                timeout = self._wait_s(next_wake_ms)
                await asyncio.wait({reading, woken}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                leader.wake.clear()
                entries: list[Entry] = []
                if reading.done():
                    entries, reading = reading.result(), None
                next_wake_ms = await self._tick(leader, entries)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _wait_s(self, at_ms: int) -> float:
        """Real seconds until that time on our clock, at most `IDLE_S`."""
        if not at_ms:
            return IDLE_S
        return min(IDLE_S, self.clock.real_seconds(at_ms - self.clock.now_ms()))

    async def _tick(self, leader: Leader, entries: Sequence[Entry]) -> int:
        """One round. Returns when the next one is due without news (Unix ms of our clock, 0: never)."""
        loop = asyncio.get_running_loop()
        began, now_ms, world = loop.time(), self.clock.now_ms(), leader.world
        changed: set[Key] = set()
        journal: list[JournalEntry] = []
        rejects = [entry for entry in entries if not self._evolve(leader, entry, now_ms, changed, journal)]
        injected, leader.injected = leader.injected + self._paces(world, now_ms), []
        for event in injected:
            changed |= evolve(world, event, now_ms)
            _note(journal, event)
        planned = plan(world, self.policy, now_ms)
        changed |= planned.changed
        for event in planned.decisions:
            _note(journal, event)
        leader.refusals = planned.refusals
        if entries or changed or journal:
            await self._commit(leader, changed, entries[-1].id if entries else leader.cursor, journal, rejects)
        for event in planned.decisions:
            self.heard(event, world)  # committed: another leader will not decide it again
        commands = pending(world, self.clock.now_ms())
        leader.crew.start(commands.due)
        self.metrics.tick(loop.time() - began, len(entries), len(planned.decisions))
        if planned.reaps_capped:
            self.metrics.reaps_capped()
        return min((at for at in (planned.next_wake_ms, commands.next_ms) if at), default=0)

    def _paces(self, world: World, now_ms: int) -> list[m.Event]:
        """What is new about how many registrations GitHub takes."""
        paces = creations_a_minute(self.github.budgets())
        return [
            m.GitHubPaced(now_ms, *pace) for pace in paces.items() if world.github_pace.get(pace[0]) != pace[1]
        ]

    def _evolve(
        self, leader: Leader, entry: Entry, now_ms: int, changed: set[Key], journal: list[JournalEntry]
    ) -> bool:
        """Evolve one inbox entry; False sets it aside.

        An event that breaks `evolve` half-way leaves a world that nobody can trust: it is reloaded, and the entry
        is passed over the next time.
        """
        event = entry.event
        if isinstance(event, Undecodable) or entry.id in self._poisoned:
            self._poisoned.discard(entry.id)
            log.error("inbox entry %s is set aside: %s", entry.id, event)
            self.metrics.rejected("undecodable" if isinstance(event, Undecodable) else "poisoned")
            return False
        try:
            keys = evolve(leader.world, event, now_ms)
        except Exception as error:
            self._poisoned.add(entry.id)
            log.exception("inbox entry %s breaks the world: %r", entry.id, event)
            raise Deposed(f"the world is loaded anew after a bad event: {error}") from error
        changed |= keys
        self.metrics.event(type(event).__name__)
        self.heard(event, leader.world)
        _note(journal, event)
        self._note_start(leader.world, event, keys)
        if self.observed:
            self.observed.hear(event, leader.world, self.policy, now_ms)
        return True

    def _note_start(self, world: World, event: m.Event, keys: set[Key]) -> None:
        if isinstance(event, m.JobReported) and event.state is JobState.IN_PROGRESS:
            for kind, key in keys:
                if kind == "job" and world.jobs[key].queued_ms:
                    job = world.jobs[key]
                    self.metrics.started(max(0, job.started_ms - job.queued_ms) / 1000, job.runner_type)

    async def _commit(
        self,
        leader: Leader,
        changed: set[Key],
        cursor: str,
        journal: list[JournalEntry],
        rejects: Sequence[Entry],
    ) -> None:
        puts = {key: leader.world.record(key) for key in changed}
        try:
            if not await self.store.commit(leader.fence, puts, cursor, journal, rejects):
                self.metrics.commit("rejected")
                raise Deposed("a commit was rejected: another replica leads")
        except StoreAway as error:
            self.metrics.commit("unanswered")
            raise Deposed(f"a commit was not answered: {error}") from error
        self.metrics.commit("done")
        leader.cursor = cursor


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _note(journal: list[JournalEntry], event: m.Event) -> None:
    if isinstance(event, JOURNALLED):
        journal.append({"event": type(event).__name__, "body": event})
