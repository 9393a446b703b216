"""Server-sent events: the summary to every open dashboard, whenever it changed, twice a second at most.

One task looks while anybody listens. A listener that is slow gets the newest summary and misses those between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from autoscaler.http.body import Refused
from autoscaler.store.store import StoreAway

LOOK_SECONDS = 0.5
REST = 20
"""Times as long as a look took, the looker rests: pages never take more than a twentieth of the loop."""
BEAT_SECONDS = 5.0
"""A quiet stream says the time that often, so that ages on a page go on and dead connections are noticed."""
WRITE_SECONDS = 10.0
LISTENERS_MAX = 64

Document = dict[str, Any]
log = logging.getLogger(__name__)


class Stream:
    """`look` makes the document; its `at` alone is no change."""

    def __init__(self, look: Callable[[], Awaitable[Document]]) -> None:
        self._look = look
        self._listeners: set[asyncio.Event] = set()
        self._message = b""
        self._looker: asyncio.Task[None] | None = None
        self._closing = False

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Send until the client leaves or the daemon stops. Raises `Refused` when too many listen."""
        if self._closing or len(self._listeners) >= LISTENERS_MAX:
            raise Refused(503, f"{LISTENERS_MAX} listeners are the most that this replica serves; try again later")
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            await response.prepare(request)
            if self._looker is None or self._looker.done():
                self._looker = asyncio.create_task(self._watch())
            else:
                news.set()
            await self._send(response, news)
        except (ConnectionError, TimeoutError):
            pass  # the client is gone, or reads nothing
        finally:
            self._listeners.discard(news)
        return response

    async def close(self) -> None:
        """End all streams."""
        self._closing = True
        for news in self._listeners:
            news.set()
        if self._looker:
            self._looker.cancel()
            await asyncio.gather(self._looker, return_exceptions=True)

    async def _send(self, response: web.StreamResponse, news: asyncio.Event) -> None:
        sent = b""
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await news.wait()
            news.clear()
            if self._closing or not self._message:
                continue
            message = self._message if self._message != sent else b": still here\n\n"
            sent = self._message
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(message)

    async def _watch(self) -> None:
        """Look while anybody listens; tell all when something changed."""
        loop = asyncio.get_running_loop()
        last, told_s = b"", loop.time()
        while self._listeners:
            began_s = loop.time()
            try:
                document = await self._look()
            except StoreAway as error:
                document = {"away": str(error)}
            except Exception:
                log.exception("the summary cannot be made")
                document = {"away": "the summary cannot be made; the daemon's log says why"}
            found = json.dumps({**document, "at": None}).encode()
            if found != last or loop.time() - told_s >= BEAT_SECONDS:
                last, told_s = found, loop.time()
                self._message = b"event: summary\ndata: " + json.dumps(document).encode() + b"\n\n"
                for news in self._listeners:
                    news.set()
            await asyncio.sleep(max(LOOK_SECONDS, REST * (loop.time() - began_s)))
        self._message = b""
