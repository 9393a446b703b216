"""A simulated account behind an `endpoint`: the same verbs over HTTP, so that it outlives the daemon.

`POST machines` (a LaunchSpec as JSON) -> 200 Instance · `GET machines?fleet=F` -> 200 [Instance] ·
`GET machines/taken?refs=A,B` -> 200 [REF] ·
`DELETE machines/REF` -> 204. A refusal is a 4xx or 5xx with `{"trouble": ..., "detail": ...}`; a lost answer is a
closed connection. The serving side is `autoscaler.sandbox.clouds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from providers.base import (
    Instance,
    LaunchSpec,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)

TIMEOUT = aiohttp.ClientTimeout(total=30)
ERRORS: dict[str, type[ProviderError]] = {
    kind.trouble.value: kind for kind in (NoCapacity, QuotaExceeded, Refused, Unauthorized, Transient)
}


class RemoteCloud:
    """Client of one account at `endpoint` (`http://HOST:PORT/NAME`)."""

    def __init__(self, endpoint: str) -> None:
        self._machines = endpoint.rstrip("/") + "/machines"
        self._session: aiohttp.ClientSession | None = None

    async def create(self, spec: LaunchSpec) -> Instance:
        try:
            body = await self._call("POST", self._machines, data=msgspec.json.encode(spec))
        except aiohttp.ClientConnectorError as error:
            raise Transient(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OutcomeUnknown(f"no answer from {self._machines}: {error or 'timeout'}") from error
        return msgspec.json.decode(body, type=Instance)

    async def terminate(self, ref: str) -> None:
        if ref:
            await self._repeatable("DELETE", f"{self._machines}/{ref}")

    async def instances(self, fleet: str) -> Sequence[Instance]:
        body = await self._repeatable("GET", self._machines, params={"fleet": fleet})
        return msgspec.json.decode(body, type=list[Instance])

    async def taken(self, refs: Sequence[str]) -> Sequence[str]:
        body = await self._repeatable("GET", f"{self._machines}/taken", params={"refs": ",".join(refs)})
        return msgspec.json.decode(body, type=list[str])

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def _repeatable(self, method: str, url: str, **options: Any) -> bytes:
        try:
            return await self._call(method, url, **options)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Transient(f"no answer from {url}: {error or 'timeout'}") from error

    async def _call(self, method: str, url: str, **options: Any) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        async with self._session.request(method, url, **options) as response:
            body = await response.read()
            if response.status >= 400:
                raise refusal(response.status, body)
            return body


def refusal(status: int, body: bytes) -> ProviderError:
    """The error that the account answered with; an answer that is not its own is Transient."""
    try:
        said = msgspec.json.decode(body, type=dict[str, str])
        return ERRORS[said["trouble"]](said["detail"])
    except (msgspec.DecodeError, KeyError):
        return Transient(f"answered {status}")
