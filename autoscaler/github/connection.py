"""One githubkit client for the life of the process, and GitHub's clock.

What of githubkit is used: transport, throttling, errors, and its retry hook for reads. What is not, and why
(measured with 0.16.1): its HTTP cache (drops timeouts), its default retries (repeat POSTs), its App authentication
(signs on the event loop, mints a token for each concurrent first call, never drops a refused one), its models
(one endpoint needs a few milliseconds, all of them 38 s and 340 MB).
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from githubkit.auth import UnauthAuthStrategy
from githubkit.core import GitHubCore
from githubkit.exception import GitHubException, RequestError, RequestFailed, RequestTimeout
from githubkit.response import Response
from githubkit.typing import RetryOption

from autoscaler.clock import Clock
from scheduling.model import DurationMs, UnixMs

TIMEOUT = httpx.Timeout(15, connect=5, pool=30)  # real seconds
READ_RETRIES = (timedelta(seconds=0.25), timedelta(seconds=1))
API_VERSION = "2022-11-28"
SKEW_MS: DurationMs = 30_000

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Lost(Exception):
    """No answer came. `sent` False: the request certainly did not reach GitHub."""

    def __init__(self, detail: str, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class Connection(GitHubCore[UnauthAuthStrategy]):
    """Sends requests with an `Authorization` that the caller brings, and learns GitHub's time from each answer."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        self.clock = clock
        self.offset_ms: DurationMs = 0  # what to add to our time to get GitHub's; 0 while they agree within 30 s
        self._open = AsyncExitStack()
        self._client: httpx.AsyncClient | None = None
        super().__init__(
            UnauthAuthStrategy(),
            base_url=base_url,
            user_agent="runner-autoscaler",
            timeout=TIMEOUT,
            http_cache=False,
            auto_retry=retry_reads,
            trust_env=not _is_local(base_url),
            async_event_hooks={"response": [tidy_retry_after]},
        )

    @asynccontextmanager
    async def get_async_client(self) -> AsyncGenerator[httpx.AsyncClient, None]:
        """githubkit keeps its client in a ContextVar that other tasks do not see; this one is for all of them."""
        if self._client is None:
            self._client = await self._open.enter_async_context(super().get_async_client())
        yield self._client

    async def close(self) -> None:
        self._client = None
        await self._open.aclose()

    def server_ms(self) -> UnixMs:
        """GitHub's time now."""
        return self.clock.now_ms() + self.offset_ms

    async def send(
        self,
        method: str,
        path: str,
        authorization: str,
        params: dict[str, str | int] | None = None,
        body: dict[str, Any] | None = None,
        etag: str = "",
    ) -> Response[Any]:
        """The answer, whatever its status; 304 if it still is the one of that `etag`. Raises `Lost`."""
        headers = {"Authorization": authorization, "X-GitHub-Api-Version": API_VERSION}
        if etag:
            headers["If-None-Match"] = etag
        sent_ms = self.clock.now_ms()
        lost: Lost | None = None
        try:
            response = await self.arequest(method, path, params=params, json=body, headers=headers)
        except RequestFailed as error:
            response = error.response
        except RequestError as error:
            lost = _lost(error.exc, method, path)
        if lost:  # raised out here: an exception in the context of another would keep the request with it
            raise lost
        self._compare_clocks(response, sent_ms)
        return response

    def _compare_clocks(self, response: Response[Any], sent_ms: UnixMs) -> None:
        """GitHub's `Date` should lie between sending and receiving; beyond 30 s outside, its clock counts."""
        try:
            date_ms = int(parsedate_to_datetime(response.headers["date"]).timestamp() * 1000)
        except (KeyError, ValueError):
            return
        now_ms = self.clock.now_ms()
        if date_ms < sent_ms - SKEW_MS:
            self.offset_ms = date_ms - sent_ms
        elif date_ms > now_ms + SKEW_MS:
            self.offset_ms = date_ms - now_ms
        else:
            self.offset_ms = 0


def retry_reads(error: GitHubException, done: int) -> RetryOption:
    """A GET that met a 5xx or a broken connection is sent again, twice; the rest is the caller's decision."""
    if isinstance(error, RequestFailed):
        worth = error.request.method == "GET" and error.response.status_code >= 500
    elif isinstance(error, RequestTimeout) or not isinstance(error, RequestError):
        worth = False
    else:
        failed = error.exc
        worth = isinstance(failed, httpx.NetworkError | httpx.RemoteProtocolError)
        worth = worth and failed.request.method == "GET"
    return RetryOption(True, READ_RETRIES[done]) if worth and done < len(READ_RETRIES) else RetryOption(False)


async def tidy_retry_after(response: httpx.Response) -> None:
    """githubkit reads `retry-after` as whole seconds; a date becomes that, and nonsense goes."""
    value = response.headers.get("retry-after")
    if value is None or value.isdecimal():
        return
    del response.headers["retry-after"]
    try:
        until = parsedate_to_datetime(value)
        since = parsedate_to_datetime(response.headers["date"])
        response.headers["retry-after"] = str(max(1, round((until - since).total_seconds())))
    except (KeyError, ValueError, TypeError):
        response.headers["retry-after"] = "60"


def _lost(error: Exception, method: str, path: str) -> Lost:
    text = f"no answer from GitHub to {method} {path}: {type(error).__name__}"
    return Lost(text, sent=not isinstance(error, _NOT_SENT))


def _is_local(base_url: str) -> bool:
    """Whether proxies of the environment must not be asked for this address."""
    host = httpx.URL(base_url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
