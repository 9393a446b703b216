"""The one place that reads the time.

The daemon lives on a `Clock`: real, or running `speed` times faster (`demo --speed`), or virtual in the
simulation. Sockets and the lease do not: they use the event loop's own time.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from scheduling.model import DurationMs, UnixMs

YEARS = range(2000, 3000)
"""Of times that others tell us: far from the ends of the calendar, where arithmetic and printing fail."""


class Clock:
    """Wall clock in Unix milliseconds that runs `speed` times faster than real time from its creation on."""

    def __init__(self, speed: float = 1.0, start_ms: UnixMs | None = None) -> None:
        self.speed = speed
        self._real0 = time.time()
        self._start_ms = self._real0 * 1000 if start_ms is None else float(start_ms)

    def now_ms(self) -> UnixMs:
        if self.speed == 1.0 and self._start_ms == self._real0 * 1000:
            return int(time.time() * 1000)
        return int(self._start_ms + (time.time() - self._real0) * 1000 * self.speed)

    async def sleep(self, ms: DurationMs) -> None:
        """Sleep that many milliseconds of this clock."""
        await asyncio.sleep(max(0.0, ms / 1000 / self.speed))

    def real_seconds(self, ms: DurationMs) -> float:
        """How long a duration of this clock takes, for timeouts of waits."""
        return max(0.0, ms / 1000 / self.speed)


def unix_ms(text: str) -> UnixMs:
    """RFC 3339 (UTC where it names no zone) to Unix ms. ValueError: it is none, or not of these centuries."""
    at = datetime.fromisoformat(text)
    if at.year not in YEARS:
        raise ValueError(f"the time {text[:40]!r} is not of the years {YEARS[0]} to {YEARS[-1]}")
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
