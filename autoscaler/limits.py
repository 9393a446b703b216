"""Rates in a clock's own time."""

from __future__ import annotations

from providers.base import Clock


class Rate:
    """At most `per_second` acquisitions a second, evenly spaced, after a burst of one second's worth."""

    def __init__(self, clock: Clock, per_second: float) -> None:
        self._clock = clock
        self._gap_ms = 1000 / per_second
        self._burst_ms = max(1000.0, self._gap_ms)
        self._next_ms = 0.0

    async def acquire(self) -> None:
        """Wait for the next place."""
        now_ms = self._clock.now_ms()
        self._next_ms = max(self._next_ms, now_ms - self._burst_ms) + self._gap_ms
        if self._next_ms > now_ms:
            await self._clock.sleep(int(self._next_ms - now_ms))
