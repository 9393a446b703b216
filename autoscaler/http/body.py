"""Request bodies from strangers: bounded in size, in time and in how many are held in memory at once."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web


class Refused(Exception):
    """The request is answered with this status and `{"error": text}`."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def response(self) -> web.Response:
        response = web.Response(
            body=json.dumps({"error": str(self)}).encode(), status=self.status, content_type="application/json"
        )
        if self.status == 503:
            response.headers["Retry-After"] = "10"
        if self.status in (408, 413):
            response.force_close()  # the rest of the body is not waited for
        return response


class BodyReader:
    """Reads whole bodies of at most `max_bytes` that arrive within `seconds`, `held_max` bytes of them at once."""

    def __init__(self, max_bytes: int, seconds: float, held_max: int) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._held_max = held_max
        self._held = 0

    async def read(self, request: web.Request) -> bytes:
        """The body; `Refused` with 413, 408 or 503."""
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while chunk := await request.content.readany():
                    chunks.append(chunk)
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > self._max_bytes:
                        raise self._too_large()
                    if self._held > self._held_max:
                        raise Refused(503, "too many large bodies at once; send it again later")
        except TimeoutError:
            raise Refused(408, f"the body was not here within {self._seconds:g} s") from None
        except (web.RequestPayloadError, ConnectionResetError) as error:
            raise Refused(400, f"the body cannot be read: {error}") from None
        finally:
            self._held -= size
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _too_large(self) -> Refused:
        return Refused(413, f"the body is over {self._max_bytes} bytes")
