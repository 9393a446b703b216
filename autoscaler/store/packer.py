"""Packs concurrent appends into few script calls: the limit of ingest is the client's cost a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

BATCH_BYTES = 1_000_000
"""A batch is closed once it holds this much, so that one answer is never long in coming."""


@dataclass(slots=True)
class _Append:
    events: Sequence[bytes]
    bulk: bool
    stored: asyncio.Future[bool]


class Packer:
    """`send(urgent, bulk)` stores one batch and says whether the bulk events were taken.

    While one batch is on its way, the next collects. A caller that is cancelled leaves its events in the batch:
    they are stored all the same.
    """

    def __init__(self, send: Callable[[list[bytes], list[bytes]], Awaitable[bool]]) -> None:
        self._send = send
        self._waiting: list[_Append] = []
        self._sender: asyncio.Task[None] | None = None

    async def append(self, events: Sequence[bytes], bulk: bool) -> bool:
        """Wait until these events are stored; False: bulk and refused. Raises what `send` raised."""
        entry = _Append(events, bulk, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if self._sender is None:
            self._sender = asyncio.create_task(self._run())
        return await entry.stored

    async def close(self) -> None:
        """Wait until everything handed over is stored or has failed."""
        if self._sender is not None:
            await self._sender

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                try:
                    taken = await self._send(
                        [event for entry in batch if not entry.bulk for event in entry.events],
                        [event for entry in batch if entry.bulk for event in entry.events],
                    )
                except Exception as error:
                    # Whoever waits behind this batch would meet the same trouble later: tell them now.
                    for entry in batch + self._waiting:
                        if not entry.stored.done():
                            entry.stored.set_exception(error)
                    self._waiting.clear()
                else:
                    for entry in batch:
                        if not entry.stored.done():
                            entry.stored.set_result(taken or not entry.bulk)
        finally:
            self._sender = None

    def _next_batch(self) -> list[_Append]:
        size = count = 0
        while count < len(self._waiting) and size < BATCH_BYTES:
            size += sum(map(len, self._waiting[count].events))
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
