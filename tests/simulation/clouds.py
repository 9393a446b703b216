"""Cloud accounts: `providers.sim`'s account and machines, behind a wire that fails as clouds do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from providers.base import FundBalance, Instance, LaunchSpec, Transient
from providers.sim import Machine, Settings, SimCloud
from providers.sim.cloud import Fate
from providers.sim.settings import Fault
from scheduling.model import Offer
from tests.simulation.clock import SimClock
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire

LAUNCH_FAULTS = tuple(Fault)
_STALE = Settings.model_validate({"faults": {"stale_list": 1}})
_WELL = Settings()
Result = TypeVar("Result")


class Cloud(SimCloud):
    """The account. What each launch meets comes from the weather."""

    def __init__(
        self, name: str, clock: SimClock, weather: Weather, on_boot: Callable[[Machine], Awaitable[None]]
    ) -> None:
        super().__init__(name, _WELL, clock, on_boot)
        self.weather = weather

    def fate(self, ordinal: int) -> Fate:
        dice, strikes = self.weather.dice, self.weather.strikes
        fault = next((fault for fault in LAUNCH_FAULTS if strikes(f"cloud_{fault}")), None)
        if "cloud_forgets_key" in self.weather.chances and dice.random() < 0.7:
            fault = Fault.ANSWER_LOST  # so that the key is used again
        preempted = dice.randrange(5_000, 240_000) if strikes("cloud_preempted") else None
        return Fate(
            fault=fault,
            boot_ms=dice.randrange(3_000, 40_000),
            preempt_ms=preempted,
            zombie=strikes("cloud_zombie"),
            orphan=strikes("cloud_orphan"),
        )

    async def create(self, spec: LaunchSpec) -> Instance:
        key = (spec.runner_id, spec.offer.key)
        if key in self._by_key and self.weather.strikes("cloud_forgets_key"):
            del self._by_key[key]
        return await super().create(spec)

    async def instances(self, fleet: str) -> Sequence[Instance]:
        self.settings = _STALE if self.weather.strikes("cloud_stale_list") else _WELL
        return await super().instances(fleet)

    def machine_of(self, runner_id: str) -> Machine | None:
        return next((each for each in self._machines.values() if each.spec.runner_id == runner_id), None)

    def machine(self, ref: str) -> Machine | None:
        return self._machines.get(ref)


class Account:
    """One replica's adapter of an account. `on_create` hears of it when sent, `on_terminate` when it arrives."""

    def __init__(
        self,
        cloud: Cloud,
        offers: Sequence[Offer],
        fleet: str,
        wire: Wire,
        weather: Weather,
        on_create: Callable[[LaunchSpec], None],
        on_terminate: Callable[[Cloud, str], None],
    ) -> None:
        self.cloud, self._offers, self._fleet = cloud, offers, fleet
        self._wire, self._weather = wire, weather
        self._on_create, self._on_terminate = on_create, on_terminate

    async def offers(self) -> Sequence[Offer]:
        return await self._ask(lambda: self._offers)

    async def launch(self, spec: LaunchSpec) -> Instance:
        self._on_create(spec)
        return await self._ask(lambda: at_once(self.cloud.create(spec)), "create", slow_s=4)

    async def terminate(self, ref: str) -> None:
        def act() -> None:
            self._on_terminate(self.cloud, ref)
            at_once(self.cloud.terminate(ref))
            if self._weather.strikes("cloud_stop_answer_lost"):
                raise Transient("no answer to the terminate call")

        await self._ask(act, "stop", slow_s=1)

    async def instances(self) -> Sequence[Instance]:
        def act() -> Sequence[Instance]:
            if self._weather.strikes("cloud_partial_list"):
                raise Transient("page 2 of the list failed")
            return at_once(self.cloud.instances(self._fleet))

        return await self._ask(act)

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        return await self._ask(lambda: at_once(self.cloud.taken(refs)))

    async def balance(self) -> FundBalance | None:
        return None

    async def close(self) -> None:
        """Nothing is open."""

    async def _ask(self, act: Callable[[], Result], effect: str = "", slow_s: float = 0.2) -> Result:
        dice, strikes = self._wire.dice, self._weather.strikes

        def served() -> Result:
            if strikes("cloud_429"):
                raise Transient("429 throttled")
            if strikes("cloud_5xx"):
                raise Transient("503 and nothing was done")
            return act()

        out_s, back_s = 0.05 + slow_s * dice.random(), 0.05 + slow_s * dice.random()
        if strikes("cloud_hangs"):
            back_s += 300.0
        if effect:
            return await self._wire.effect(effect, served, out_s, back_s)
        return await self._wire.call(served, out_s, back_s)


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    raise AssertionError("the account waited: its latency is the wire's")
