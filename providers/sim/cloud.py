"""The simulated account: its machines, and what goes wrong with them. All draws come from one seed.

The n-th launch of an account meets the n-th fate, whichever runner it is for, so one seed gives one schedule of
faults. State is a function of the clock wherever it can be: a machine exists between two times and nothing needs
to wake for it. Only with `on_boot` (the sandbox's machine program) does a machine own a task.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from providers.base import (
    Clock,
    Instance,
    LaunchSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from providers.sim.settings import Fault, Settings
from scheduling.model import HOUR_MS, DurationMs, Offer, Purchase, UnixMs

log = logging.getLogger(__name__)

DISK = "-disk"
LATE_MS: DurationMs = 30_000
STALE_MS: DurationMs = 60_000
MEMORY_MS: DurationMs = HOUR_MS  # how long an ended machine still answers to its idempotency key

REFUSALS: dict[Fault, tuple[type[ProviderError], str]] = {
    Fault.NO_CAPACITY: (NoCapacity, "{offer.instance_type} is sold out in {offer.zone}"),
    Fault.QUOTA: (QuotaExceeded, "the quota of {offer.region} is used up"),
    Fault.REFUSED: (Refused, "it takes no such image"),
    Fault.UNAUTHORIZED: (Unauthorized, "the credentials are not valid"),
    Fault.TRANSIENT: (Transient, "too many requests"),
}
UNANSWERED = frozenset({Fault.NOT_APPLIED, Fault.ANSWER_LOST, Fault.APPLIED_LATE})


class Cloud(Protocol):
    """What the adapter asks of an account, in this process or behind an endpoint."""

    async def create(self, spec: LaunchSpec) -> Instance: ...

    async def terminate(self, ref: str) -> None: ...

    async def instances(self, fleet: str) -> Sequence[Instance]: ...

    async def taken(self, refs: Sequence[str]) -> Sequence[str]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Fate:
    """What the n-th launch of an account meets. `preempt_ms` counts from the launch and binds spot machines."""

    fault: Fault | None
    boot_ms: DurationMs
    preempt_ms: DurationMs | None
    zombie: bool
    orphan: bool


@dataclass(slots=True, eq=False)
class Machine:
    """A virtual machine. It exists from `from_ms` (inclusive) to `until_ms` (exclusive)."""

    ref: str
    spec: LaunchSpec
    fate: Fate
    from_ms: UnixMs
    until_ms: UnixMs
    orphans: tuple[str, ...] = ()
    preempted_ms: UnixMs = 0  # when the account takes it back; 0: never
    stops: int = 0
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def boot_fails(self) -> bool:
        """Its program shall report a failed boot and leave."""
        return self.fate.fault is Fault.BOOT_FAILURE

    def taken(self, at_ms: UnixMs) -> bool:
        """Whether it ended because the account took it back."""
        return bool(self.preempted_ms) and self.until_ms == self.preempted_ms <= at_ms

    def exists(self, at_ms: UnixMs) -> bool:
        return self.from_ms <= at_ms < self.until_ms

    def instance(self, *, running: bool = True) -> Instance:
        spec = self.spec
        return Instance(
            runner_id=spec.runner_id,
            ref=self.ref if running else "",
            region=spec.offer.region,
            zone=spec.offer.zone,
            instance_type=spec.offer.instance_type,
            launched_ms=self.from_ms,
            tags=spec.tags,
            orphans=() if running else self.orphans,
        )


class SimCloud:
    """One account. `on_boot(machine)` runs as a task once a machine has booted; when it returns, or the machine
    is terminated, pre-empted or past its lifetime, the machine is gone."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clock: Clock,
        on_boot: Callable[[Machine], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self._clock = clock
        self._on_boot = on_boot
        self._machines: dict[str, Machine] = {}
        self._by_key: dict[tuple[str, str], Machine] = {}  # idempotency key: runner id at an offer
        self._latencies = random.Random(f"{settings.seed}/{name}/latency")
        self._lists = 0
        self.launches = 0  # create calls that did not find their machine: the ordinal of the next fate
        self.made = 0

    def fate(self, ordinal: int) -> Fate:
        """What the launch of that number (from 0) meets."""
        rng = random.Random(f"{self.settings.seed}/{self.name}/launch/{ordinal}")
        faults = self.settings.faults
        point, fault = rng.random(), None
        for candidate, share in faults.launch_shares():
            if point < share:
                fault = candidate
                break
            point -= share
        boot_ms = int(self.settings.boot_seconds * 1000 * rng.uniform(0.5, 1.5))
        preempt_ms, preempted = rng.randrange(HOUR_MS), rng.random() < faults.preempted
        return Fate(
            fault=fault,
            boot_ms=boot_ms,
            preempt_ms=preempt_ms if preempted else None,
            zombie=rng.random() < faults.zombie,
            orphan=rng.random() < faults.orphan,
        )

    async def create(self, spec: LaunchSpec) -> Instance:
        """Idempotent on runner id and offer. The same runner id at another offer makes a second machine."""
        key = (spec.runner_id, spec.offer.key)
        await self._latency()
        if made := self._by_key.get(key):
            made.from_ms = min(made.from_ms, self._clock.now_ms())
            return made.instance()
        fate = self.fate(self.launches)
        self.launches += 1
        if fate.fault in REFUSALS:
            error, words = REFUSALS[fate.fault]
            raise error(f"{self.name}: {words.format(offer=spec.offer)}")
        if fate.fault is not Fault.NOT_APPLIED:
            self._have_room(spec.offer)
            machine = self._make(key, spec, fate)
        if fate.fault in UNANSWERED:
            raise OutcomeUnknown(f"{self.name} did not answer")
        return machine.instance()

    async def terminate(self, ref: str) -> None:
        """Removes a machine, or a disk that outlived one. A zombie obeys the second call."""
        await self._latency()
        machine = self._machines.get(ref.removesuffix(DISK))
        if machine is None:
            return
        if ref.endswith(DISK):
            machine.orphans = ()
            return
        machine.stops += 1
        if not (machine.fate.zombie and machine.stops == 1):
            self._end(machine)

    async def instances(self, fleet: str) -> Sequence[Instance]:
        """The fleet's machines that exist, and what was left behind of others. May be a minute old (a fault)."""
        self._lists += 1
        rng = random.Random(f"{self.settings.seed}/{self.name}/list/{self._lists}")
        stale = rng.random() < self.settings.faults.stale_list
        await self._latency()
        now = self._clock.now_ms()
        self._forget(now - MEMORY_MS)
        at = now - STALE_MS if stale else now
        return [
            machine.instance(running=machine.exists(at))
            for machine in self._machines.values()
            if machine.spec.fleet == fleet and (machine.exists(at) or (machine.orphans and machine.until_ms <= at))
        ]

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        """Those of these that the account took back."""
        await self._latency()
        now = self._clock.now_ms()
        return [ref for ref in refs if ref in self._machines and self._machines[ref].taken(now)]

    async def close(self) -> None:
        """Stops every machine's program; the account is not used again."""
        tasks = [machine.task for machine in self._machines.values() if machine.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def machines(self) -> list[Machine]:
        """The truth: every machine that exists now."""
        now = self._clock.now_ms()
        return [machine for machine in self._machines.values() if now < machine.until_ms]

    def disks(self) -> list[str]:
        """Likewise every disk that outlived its machine."""
        now = self._clock.now_ms()
        return [disk for machine in self._machines.values() if now >= machine.until_ms for disk in machine.orphans]

    # ---- inside ----------------------------------------------------------------------------------------------

    async def _latency(self) -> None:
        if self.settings.latency_ms:
            await self._clock.sleep(int(self.settings.latency_ms * self._latencies.uniform(0.5, 1.5)))

    def _have_room(self, offer: Offer) -> None:
        sold = self.settings.instance_types.get(offer.instance_type)
        capacity = self.settings.capacity if sold is None or sold.capacity is None else sold.capacity
        if capacity is None:
            return
        taken = sum(machine.spec.offer.key == offer.key for machine in self.machines())
        if taken >= capacity:
            raise NoCapacity(f"{self.name}: {offer.instance_type} is sold out in {offer.zone}")

    def _make(self, key: tuple[str, str], spec: LaunchSpec, fate: Fate) -> Machine:
        now = self._clock.now_ms()
        from_ms = now + (LATE_MS if fate.fault is Fault.APPLIED_LATE else 0)
        until_ms, preempted_ms = from_ms + spec.lifetime_ms, 0
        if fate.preempt_ms is not None and spec.offer.purchase is Purchase.SPOT:
            preempted_ms = from_ms + fate.preempt_ms
            until_ms = min(until_ms, preempted_ms)
        ref = f"{self.name}-{self.made:06d}"
        self.made += 1
        disks = (f"{ref}{DISK}",) if fate.orphan else ()
        machine = Machine(ref, spec, fate, from_ms, until_ms, disks, preempted_ms)
        self._machines[ref] = self._by_key[key] = machine
        if self._on_boot and fate.fault is not Fault.BOOT_HANG:
            machine.task = asyncio.create_task(self._run(machine), name=f"machine {ref}")
        return machine

    async def _run(self, machine: Machine) -> None:
        """Boot, then the program, until it returns or the machine's time is over."""
        await self._clock.sleep(machine.from_ms - self._clock.now_ms() + machine.fate.boot_ms)
        program = asyncio.ensure_future(self._program(machine))
        timer = asyncio.ensure_future(self._clock.sleep(machine.until_ms - self._clock.now_ms()))
        try:
            await asyncio.wait({program, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            program.cancel()
            await asyncio.gather(program, timer, return_exceptions=True)
            self._end(machine)

    async def _program(self, machine: Machine) -> None:
        assert self._on_boot is not None
        try:
            await self._on_boot(machine)
        except Exception:
            log.exception("the program of machine %s broke", machine.ref)

    def _end(self, machine: Machine) -> None:
        machine.until_ms = min(machine.until_ms, self._clock.now_ms())
        if machine.task and machine.task is not asyncio.current_task():
            machine.task.cancel()

    def _forget(self, before_ms: UnixMs) -> None:
        old = [m for m in self._machines.values() if m.until_ms < before_ms and not m.orphans]
        for machine in old:
            key = (machine.spec.runner_id, machine.spec.offer.key)
            del self._machines[machine.ref]
            self._by_key.pop(key, None)
