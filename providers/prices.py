"""Prices that a vendor's price API told: asked rarely, kept with the time at which they were true.

The bundled tables stay underneath: they are used until an answer came, and for what no answer names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from providers.base import Clock, ProviderError
from scheduling.model import DurationMs, MicroUSD, Purchase, UnixMs

log = logging.getLogger(__name__)

REFRESH_MS: DurationMs = 12 * 3_600_000
"""Between readings of a region's prices; one that failed is made again with the next list of offers."""
PATIENCE_S = 5.0
"""Real time that a list of offers waits for a reading, which then goes on and serves the next list."""

Told = Mapping[tuple[str, Purchase], MicroUSD]
"""Micro-dollars an hour by (instance type, purchase)."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What is sold in one region at which price, true at `at_ms`."""

    at_ms: UnixMs = 0
    told: Told = field(default_factory=dict)


NONE_TOLD = Prices()


class PriceReader:
    """The prices of one account. `read` asks the API for a region's, once; None: there is no API to ask."""

    def __init__(self, name: str, clock: Clock, read: Callable[[str], Awaitable[Told]] | None) -> None:
        self._name, self._clock, self._read = name, clock, read
        self._kept: dict[str, Prices] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._complaint = ""

    async def of(self, region: str) -> Prices:
        """The latest known, asked anew after `REFRESH_MS`. A failure is logged and leaves the old ones."""
        kept = self._kept.get(region, NONE_TOLD)
        if self._read is None or (kept.at_ms and self._clock.now_ms() < kept.at_ms + REFRESH_MS):
            return kept
        task = self._reading.get(region)
        if task is None or task.done():
            task = self._reading[region] = asyncio.ensure_future(self._refresh(region, self._read))
        await asyncio.wait({task}, timeout=PATIENCE_S)
        return self._kept.get(region, NONE_TOLD)

    def close(self) -> None:
        for task in self._reading.values():
            task.cancel()

    async def _refresh(self, region: str, read: Callable[[str], Awaitable[Told]]) -> None:
        at_ms = self._clock.now_ms()
        try:
            self._kept[region] = Prices(at_ms, await read(region))
        except ProviderError as error:
            if str(error) != self._complaint:  # an API that is out of reach stays so: one line, not one a list
                log.warning("%s: prices in %s cannot be read, the last known stand: %s", self._name, region, error)
            self._complaint = str(error)
        except Exception:
            log.exception("%s: reading the prices in %s failed in an unforeseen way", self._name, region)
