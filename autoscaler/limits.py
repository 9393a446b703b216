"""Rates in a clock's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from providers.base import Clock


class Rate:
    """At most `per_second` places a second, evenly spaced, after a burst of one second's worth, in turn."""

    def __init__(self, clock: Clock, per_second: float) -> None:
        self._clock = clock
        self._gap_ms = 1000 / per_second
        self._burst_ms = max(1000.0, self._gap_ms)
        self._next_ms = 0.0
        self._turn = asyncio.Lock()

    async def acquire(self, wanted: Callable[[], bool]) -> None:
        """Wait for a place; who is not `wanted` any more when its turn comes takes none."""
        async with self._turn:
            while wanted():
                now_ms = self._clock.now_ms()
                if self._next_ms <= now_ms:
                    self._next_ms = max(self._next_ms, now_ms - self._burst_ms) + self._gap_ms
                    return
                await self._clock.sleep(max(1, int(self._next_ms - now_ms)))
