"""Wall clocks on virtual time: the true one, and one a replica that may be wrong and may step."""

from __future__ import annotations

import asyncio

from autoscaler.clock import Clock
from tests.core.fleet import NOON


class SimClock(Clock):
    """Unix ms from the loop's time, wrong by `skew_ms`. Sleeps and waits do not depend on the skew."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0) -> None:
        self.speed = 1.0
        self.skew_ms = skew_ms
        self._loop = loop

    def now_ms(self) -> int:
        return NOON + round(self._loop.time() * 1000) + self.skew_ms
