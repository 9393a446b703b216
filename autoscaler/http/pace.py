"""How often one caller may ask: a bucket a name, for as many names as are remembered."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

REMEMBERED = 10_000


class Pace:
    """`per_minute` calls a name, all at once or spread; event-loop time."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def allows(self, name: str) -> bool:
        """Whether one more call may come now; it counts if so."""
        now = asyncio.get_running_loop().time()
        left, since = self._buckets.pop(name, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - since) * self._per_minute / 60)
        self._buckets[name] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return left >= 1
