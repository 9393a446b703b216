"""Connections on which no request comes: closed, so that strangers cannot hold sockets by sending slowly.

aiohttp bounds the size of a request's head (8 KB a line, 128 headers), not the time of the first one; bodies are
bounded by `http.body`, the pause between requests by `KEEPALIVE_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

HEAD_SECONDS = 10.0
"""A connection's first request head must be complete by then."""
KEEPALIVE_SECONDS = 130.0
"""Longer than the usual load balancers keep their idle connections (60 to 120 s): they close first, not we."""
_END = b"\r\n\r\n"


class HeadGuard(asyncio.Protocol):
    """Watches a connection until its first head is complete, then hands it over to aiohttp's protocol for good."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._transport.abort)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        seen = self._tail + data
        self._tail = seen[-len(_END) :]
        if _END in seen:
            self._timer.cancel()
            self._transport.set_protocol(self._inner)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._inner.connection_lost(error)


def guarded(server: Callable[[], asyncio.Protocol]) -> Callable[[], HeadGuard]:
    """A protocol factory for `create_server` around aiohttp's own."""
    return lambda: HeadGuard(server())
