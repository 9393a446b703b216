"""What comes of commands: machines that are created, boot, register, run a job and go, as the world model says.

Every chance follows from the runner id, so that the same launches meet the same fate in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

from autoscaler.backtest.hub import Hub, Registration
from autoscaler.backtest.world_model import Place, WorldModel
from autoscaler.effects import CONCURRENCY
from autoscaler.reconcile import CONFIRM_MS
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.model import HOUR_MS, DurationMs, Offer, Runner, UnixMs
from scheduling.policy import Policy
from scheduling.world import World

NEVER = 1 << 62
EXIT_MS: DurationMs = 2_000
"""From the end of the job to the machine's own shutdown."""


@dataclass(slots=True, eq=False)
class Machine:
    """One machine. `row` is the job that it runs or ran; `gone_ms` is when it ceased to exist."""

    runner_id: str
    offer: Offer
    created_ms: UnixMs
    gone_ms: UnixMs = NEVER
    booted_ms: UnixMs = 0
    registration: Registration | None = None
    row: int = -1
    started_ms: UnixMs = 0
    ended_ms: UnixMs = 0

    @property
    def busy(self) -> bool:
        return bool(self.started_ms) and not self.ended_ms


class Calls:
    """When a call to a provider begins: so many at once, and no faster than its launch rate."""

    def __init__(self, launch_rate: float | None) -> None:
        self._ends: list[UnixMs] = []
        self._gap_ms = 1000 / launch_rate if launch_rate else 0.0
        self._next_ms = 0.0

    def begin(self, now_ms: UnixMs, lasts_ms: DurationMs) -> UnixMs:
        """The time at which a call that is made now ends."""
        start = float(now_ms)
        while self._ends and self._ends[0] <= now_ms:
            heappop(self._ends)
        if len(self._ends) >= CONCURRENCY:
            start = max(start, heappop(self._ends))
        start = max(start, self._next_ms)
        self._next_ms = start + self._gap_ms
        end = int(start) + lasts_ms
        heappush(self._ends, end)
        return end


class At(Protocol):
    """Do this at that time, with that argument; urgent where a job may wait for it."""

    def __call__(
        self, at_ms: UnixMs, act: Callable[[UnixMs, Any], None], what: Any, urgent: bool = False
    ) -> None: ...


@dataclass(slots=True)
class Machines:
    """Performs commands. `begin` and `finish` are told of jobs; `tell` brings a fact to the core."""

    world: World
    model: WorldModel
    hub: Hub
    at: At
    tell: Callable[[m.Event], None]
    begin: Callable[[UnixMs, int, Machine], None]
    end: Callable[[UnixMs, Machine, str], None]
    alive: dict[str, Machine] = field(default_factory=dict)
    _calls: dict[str, Calls] = field(default_factory=dict)
    _places: dict[str, Place] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)  # machines by offer
    _ended: dict[str, Machine] = field(default_factory=dict)  # gone, and not yet proven so
    _inventory_ms: UnixMs = 0
    _under_way: set[m.Command] = field(default_factory=set)
    _labels: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    def use(self, policy: Policy) -> None:
        self._calls = {name: Calls(provider.launch_rate) for name, provider in policy.providers.items()}

    # ---- commands ------------------------------------------------------------------------------------------

    def perform(self, command: m.Command, now_ms: UnixMs) -> None:
        """Begin a command unless it is under way."""
        if command in self._under_way:
            return
        self._under_way.add(command)
        github_ms = self.model.pace.github_ms
        match command:
            case m.CreateMachine():
                self._create(command, now_ms)
            case m.CreateJit():
                self.at(now_ms + github_ms, self._jit_created, command)
            case m.DeleteRegistration():
                self.at(now_ms + github_ms, self._deleted, command)
            case m.StopMachine():
                self.at(now_ms + self.model.pace.stop_ms, self._stopped, command)
            case m.FetchRun():
                raise AssertionError("the driver answers it")
            case m.RerunJob():
                raise AssertionError("no provider says here that it took a machine")

    def _done(self, command: m.Command) -> None:
        self._under_way.discard(command)

    def _place(self, offer: Offer) -> Place:
        found = self._places.get(offer.key)
        if found is None:
            found = self._places[offer.key] = self.model.place(offer)
        return found

    def _create(self, command: m.CreateMachine, now_ms: UnixMs) -> None:
        runner = self.world.runners[command.runner_id]
        place = self._place(runner.offer)
        lasts_ms = vary(place.create_ms, place.spread, chance(runner.id, 0))
        end_ms = self._calls[runner.offer.provider].begin(now_ms, lasts_ms)
        fails = place.capacity is not None or bool(place.refused)
        self.at(end_ms, self._created, command, urgent=fails)

    def _created(self, now_ms: UnixMs, command: m.CreateMachine) -> None:
        self._done(command)
        runner = self.world.runners[command.runner_id]
        offer, place, key = runner.offer, self._place(runner.offer), runner.offer.key
        full = place.capacity is not None and self._used.get(key, 0) >= place.capacity
        if full or (place.refused and chance(runner.id, 2) < place.refused):
            why = f"{offer.instance_type} is sold out in {offer.zone}"
            self.tell(m.CreateFailed(now_ms, runner.id, m.Trouble.NO_CAPACITY, why))
            if runner.state is not RunnerState.PLANNED:  # given up meanwhile: an inventory must prove it absent
                self._ended[runner.id] = Machine(runner.id, offer, now_ms, gone_ms=now_ms)
                self.look_soon(now_ms)
            return
        machine = self.alive[runner.id] = Machine(runner.id, offer, now_ms)
        self._used[key] = self._used.get(key, 0) + 1
        self.tell(m.MachineCreated(now_ms, runner.id, runner.id))
        boot_ms = vary(place.boot_ms, place.spread, chance(runner.id, 1))
        self.at(now_ms + boot_ms, self._booted, machine, urgent=True)
        if place.interrupted:
            rate = -math.log1p(-min(place.interrupted, 0.999999)) / HOUR_MS
            self.at(now_ms + int(-math.log1p(-chance(runner.id, 3)) / rate), self._taken, machine)

    def _booted(self, now_ms: UnixMs, machine: Machine) -> None:
        if now_ms < machine.gone_ms:
            machine.booted_ms = now_ms
            runner = self.world.runners[machine.runner_id]
            if runner.terms.userdata:
                self._registers(now_ms, machine, runner)
            else:
                self.tell(m.StageReported(now_ms, machine.runner_id, m.Stage.BOOTED))

    def _jit_created(self, now_ms: UnixMs, command: m.CreateJit) -> None:
        self._done(command)
        runner = self.world.runners.get(command.runner_id)
        if runner is None or runner.state not in (RunnerState.PLANNED, RunnerState.REGISTERING):
            return
        self.tell(m.JitStored(now_ms, runner.id, 1))
        if machine := self.alive.get(runner.id):
            self._registers(now_ms, machine, runner)

    def _registers(self, now_ms: UnixMs, machine: Machine, runner: Runner) -> None:
        registration = Registration(runner.id, runner.target, self._folded(runner), 0)
        self.at(now_ms + self.model.pace.register_ms, self._online, (machine, registration))

    def _folded(self, runner: Runner) -> frozenset[str]:
        labels = runner.terms.labels
        found = self._labels.get(labels)
        if found is None:
            found = self._labels[labels] = frozenset(label.casefold() for label in labels)
        return found

    def _online(self, now_ms: UnixMs, given: tuple[Machine, Registration]) -> None:
        machine, registration = given
        runner = self.world.runners[machine.runner_id]
        waits = RunnerState.STARTING if runner.terms.userdata else RunnerState.REGISTERING
        if now_ms >= machine.gone_ms or runner.state is not waits:
            return
        registration.online_ms = now_ms
        machine.registration = registration
        self.tell(m.StageReported(now_ms, runner.id, m.Stage.REGISTERED))
        row = self.hub.register(registration)
        if row is not None:
            self.start(now_ms, row, machine)

    def _deleted(self, now_ms: UnixMs, command: m.DeleteRegistration) -> None:
        self._done(command)
        machine = self.alive.get(command.runner_id)
        if machine is not None and machine.busy:
            self.tell(m.RegistrationBusy(now_ms, command.runner_id))
            return
        if machine is not None and machine.registration is not None:
            self.hub.leave(machine.registration)
        self.tell(m.RegistrationDeleted(now_ms, command.runner_id))

    def _stopped(self, now_ms: UnixMs, command: m.StopMachine) -> None:
        self._done(command)
        self.tell(m.StopAccepted(now_ms, command.runner_id))
        if machine := self.alive.get(command.runner_id):
            if machine.busy:
                self.finish(now_ms, machine, "failure")
            self._gone(now_ms, machine)

    # ---- jobs ----------------------------------------------------------------------------------------------

    def start(self, now_ms: UnixMs, row: int, machine: Machine) -> None:
        """GitHub gave the job to this machine's runner."""
        machine.row, machine.started_ms = row, now_ms
        self.begin(now_ms, row, machine)

    def finish(self, now_ms: UnixMs, machine: Machine, conclusion: str) -> None:
        """Its job ended; the runner is ephemeral, so it and its machine leave."""
        machine.ended_ms = now_ms
        self.end(now_ms, machine, conclusion)
        if machine.gone_ms == NEVER:
            self.at(now_ms + EXIT_MS, self._gone, machine)

    def _taken(self, now_ms: UnixMs, machine: Machine) -> None:
        """The cloud takes a spot machine back; GitHub notices later."""
        if now_ms >= machine.gone_ms or machine.ended_ms:
            return
        if machine.registration is not None and not machine.busy:
            self.hub.leave(machine.registration)
        if machine.busy:
            self.at(now_ms + self.model.pace.lost_ms, self._lost, machine)
        self._gone(now_ms, machine)

    def _lost(self, now_ms: UnixMs, machine: Machine) -> None:
        if machine.busy:
            self.finish(now_ms, machine, "interrupted")

    # ---- ends ----------------------------------------------------------------------------------------------

    def _gone(self, now_ms: UnixMs, machine: Machine) -> None:
        if machine.gone_ms != NEVER:
            return
        machine.gone_ms = now_ms
        self._used[machine.offer.key] -= 1
        self._ended[machine.runner_id] = machine
        self.look_soon(now_ms)

    def look_soon(self, now_ms: UnixMs) -> None:
        """Inventories run in step, as often as while some machine's end waits for proof."""
        if self._inventory_ms <= now_ms:
            self._inventory_ms = now_ms - now_ms % CONFIRM_MS + CONFIRM_MS
            self.at(self._inventory_ms, self._inventory, None)

    def _inventory(self, now_ms: UnixMs, _: object) -> None:
        settled = []
        for runner_id, machine in self._ended.items():
            runner = self.world.runners.get(runner_id)
            if runner is None or runner.absences >= 2:
                settled.append(runner_id)
            elif machine.gone_ms < now_ms:
                self.tell(m.MachineAbsent(now_ms, runner_id))
        for runner_id in settled:
            del self._ended[runner_id]
        if self._ended:
            self.look_soon(now_ms)

    def forget(self, runner_id: str) -> Machine | None:
        """Its runner was settled."""
        return self.alive.pop(runner_id, None)


def chance(runner_id: str, number: int) -> float:
    """A number from 0 to 1 that belongs to this runner; `number` is 0 to 3."""
    return int(runner_id[1 + 5 * number : 6 + 5 * number], 36) / 36**5


def vary(typical_ms: DurationMs, spread: float, point: float) -> DurationMs:
    return int(typical_ms * (1 + spread * (2 * point - 1)))
