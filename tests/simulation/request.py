"""Just enough of an aiohttp request for the real handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Content:
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def readany(self) -> bytes:
        body, self._body = self._body, b""
        return body


class Request:
    """`length` is what the header claims, 0: the truth."""

    content_type = "application/json"

    def __init__(
        self,
        body: bytes,
        headers: Mapping[str, str],
        match_info: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        length: int = 0,
    ) -> None:
        self.headers = headers
        self.content = Content(body)
        self.content_length = length or len(body)
        self.match_info = match_info or {}
        self.query = query or {}
        self._body = body

    async def json(self) -> Any:
        return msgspec.json.decode(self._body)
