"""GitHub's stand-in in process: its own handlers and limits, below the daemon's own client, in virtual time."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import httpx
import msgspec

from autoscaler.github.client import AppCredentials, GitHub
from autoscaler.github.connection import tidy_retry_after
from autoscaler.sandbox.github import GitHubStandIn, refusal, unchanged
from autoscaler.sandbox.github_access import Denied
from autoscaler.sandbox.github_rest import SPENT
from scheduling.model import UnixMs
from tests.simulation.clock import SimClock

BASE_URL = "http://127.0.0.1:1"
JIT = "POST runners/generate-jitconfig"
COLUMNS = {304: 1, 403: 2, 429: 2}
LATENCY_S = (0.02, 0.15)
"""Each way."""


class Asked(dict[Any, Any]):
    """Just enough of an aiohttp request for the stand-in's handlers."""

    def __init__(self, request: httpx.Request, match_info: dict[str, str]) -> None:
        super().__init__()
        self.method, self.headers = request.method, request.headers
        self.match_info, self._body = match_info, request.content
        self.query = dict(request.url.params.items())

    async def json(self) -> Any:
        return msgspec.json.decode(self._body)


class GitHubWire(httpx.AsyncBaseTransport):
    """The way to the stand-in. `asked` counts answers by App, request and status; `made`: when."""

    def __init__(self, standin: GitHubStandIn, dice: random.Random) -> None:
        self._standin, self._dice = standin, dice
        self._routes = [(each.method, _pattern(each.path), each) for each in standin.routes()]
        self.asked: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
        self.made: dict[str, deque[UnixMs]] = defaultdict(deque)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self._dice.uniform(*LATENCY_S))
        kind, answer = await self._serve(request)
        self._note(request, kind, answer.status_code)
        await asyncio.sleep(self._dice.uniform(*LATENCY_S))
        return answer

    async def _serve(self, request: httpx.Request) -> tuple[str, httpx.Response]:
        path = request.url.path
        for method, pattern, route in self._routes:
            if method != request.method or (found := pattern.fullmatch(path)) is None:
                continue
            asked: Any = Asked(request, found.groupdict())
            try:
                given: Any = unchanged(asked, await route.handler(asked))
            except Denied as denied:
                given = refusal(denied.status, denied.message, denied.headers)
            headers = {**(asked[SPENT].headers() if SPENT in asked else {}), **given.headers}
            headers["Date"] = formatdate(self._standin.clock.now_ms() / 1000, usegmt=True)
            return _words(method, route.path), httpx.Response(given.status, headers=headers, content=given.body)
        return "unknown", httpx.Response(404)

    def _note(self, request: httpx.Request, kind: str, status: int) -> None:
        token = request.headers.get("Authorization", "").partition(" ")[2]
        app = self._standin.access.app_of(token)
        self.asked[app][kind, status] += 1
        if kind == JIT and status == 201:
            self.made[app].append(self._standin.clock.now_ms())


def client(standin: GitHubStandIn, wire: GitHubWire, apps: list[AppCredentials], clock: SimClock) -> GitHub:
    """The daemon's own client, all of it but the sockets."""
    github = GitHub(apps, base_url=BASE_URL, clock=clock)
    hooks = {"response": [tidy_retry_after]}
    github._connection._client = httpx.AsyncClient(transport=wire, base_url=BASE_URL, event_hooks=hooks)
    return github


def by_minute(times: deque[UnixMs], since_ms: UnixMs) -> Counter[int]:
    return Counter((at_ms - since_ms) // 60_000 for at_ms in times)


def requests(wire: GitHubWire) -> Iterator[tuple[str, str, int, int, int]]:
    """(App, request, counted, 304 and so free, refused with 403 or 429), the most frequent first."""
    for app, counts in sorted(wire.asked.items()):
        kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for (kind, status), count in counts.items():
            kinds[kind][COLUMNS.get(status, 0)] += count
        for kind, (counted, free, refused) in sorted(kinds.items(), key=lambda each: -sum(each[1])):
            yield app, kind, counted, free, refused


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)(?::([^}]+))?\}", lambda m: f"(?P<{m[1]}>{m[2] or '[^/]+'})", path))


def _words(method: str, path: str) -> str:
    path = path.replace(":\\d+", "")
    return f"{method} {path.rpartition('/actions/')[2] if '/actions/' in path else path}"
