"""Performs pending commands side by side, each at most once at a time, and brings their results to the inbox."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from autoscaler.effects import Effects
from autoscaler.metrics import Metrics
from autoscaler.store.store import StoreAway
from scheduling import messages as m

log = logging.getLogger(__name__)

REDO_S = 5.0
"""A command whose result was reported and that is still due after this real time is performed again."""

Append = Callable[[Sequence[m.Event]], Awaitable[None]]


class Crew:
    """The effects under way of one leader."""

    def __init__(self, effects: Effects, append: Append, metrics: Metrics, dice: random.Random) -> None:
        self._effects, self._append, self._metrics, self._dice = effects, append, metrics, dice
        self._under_way: dict[m.Command, asyncio.Task[None]] = {}
        # performed, when and on which version of the record: its fact may not have been evolved yet
        self._reported: dict[m.Command, tuple[float, object]] = {}

    def start(self, due: Iterable[m.Command]) -> None:
        """Begin what is due and neither under way nor just reported."""
        wanted = dict.fromkeys(due)
        now = asyncio.get_running_loop().time()
        self._reported = {
            command: (at, version)
            for command, (at, version) in self._reported.items()
            if command in wanted and now < at + REDO_S and version == self._effects.version(command)
        }
        for command in wanted:
            if command not in self._under_way and command not in self._reported:
                self._under_way[command] = asyncio.create_task(self._run(command))

    async def _run(self, command: m.Command) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        provider, version = self._effects.provider_of(command), self._effects.version(command)
        outcome = "crashed"
        try:
            event = await self._effects.perform(command)
            outcome = type(event).__name__ if event else "nothing"
            if event is not None:
                await self._report(event)
        except Exception:
            log.exception("%r failed in an unforeseen way", command)
        finally:
            self._metrics.effect(type(command).__name__, provider, outcome, loop.time() - began)
            self._under_way.pop(command, None)
            self._reported[command] = (loop.time(), version)

    async def _report(self, event: m.Event) -> None:
        """Until the store has it: a result that is not stored is learned again only at some cost."""
        pause_s = 0.1
        while True:
            try:
                await self._append([event])
                return
            except StoreAway as error:
                log.warning("the store is away, a result waits: %s", error)
                await asyncio.sleep(pause_s * (0.5 + self._dice.random()))
                pause_s = min(2 * pause_s, 5.0)

    async def finish(self, limit_s: float) -> None:
        """Let what is under way end, cancel what takes longer. A cancelled command counts as possibly sent."""
        tasks = list(self._under_way.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=limit_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
