"""The wire between processes: what was sent is applied, whatever becomes of the one who sent it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import PROCESS, WORLD, VirtualLoop


class Wire:
    """Calls with latency. Each is applied at one instant, in the world's own context, never in the caller's.

    `kill_before` and `kill_after` hold the names of effects at which the next caller dies: not yet sent, or
    applied and not answered. `killed(when, effect)` is told.
    """

    def __init__(self, loop: VirtualLoop, dice: random.Random) -> None:
        self.loop, self.dice = loop, dice
        self.kill_before: list[str] = []
        self.kill_after: list[str] = []
        self.killed: Callable[[str, str], None] = lambda when, effect: None

    def effect(self, name: str, act: Callable[[], Any], out_s: float, back_s: float) -> asyncio.Future[Any]:
        """`call`, at whose boundaries the caller may die."""
        process = PROCESS.get()
        if process is not None and name in self.kill_before:
            self.kill_before.remove(name)
            self.killed("before", name)
            process.kill()
            return self.loop.create_future()
        if process is not None and name in self.kill_after:
            self.kill_after.remove(name)

            def last() -> Any:
                try:
                    return act()
                finally:
                    self.killed("after", name)
                    process.kill()

            return self.call(last, out_s, back_s)
        return self.call(act, out_s, back_s)

    def call(self, act: Callable[[], Any], out_s: float, back_s: float) -> asyncio.Future[Any]:
        """`act` after `out_s`; its result or exception `back_s` later. 0: at once."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        if out_s:
            self.loop.call_later(out_s, self._apply, act, back_s, answer, context=WORLD)
        else:
            WORLD.copy().run(self._apply, act, back_s, answer)
        return answer

    def _apply(self, act: Callable[[], Any], back_s: float, answer: asyncio.Future[Any]) -> None:
        try:
            result, error = act(), None
        except Exception as caught:
            result, error = None, caught
        if back_s:
            self.loop.call_later(back_s, settle, answer, result, error, context=WORLD)
        else:
            settle(answer, result, error)


def settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
        answer.exception()  # nobody may be left to look at it
    else:
        answer.set_result(result)
