"""GitHub Apps: who we are to GitHub. Keys, JWTs, installation tokens, and which App is installed where.

Source: docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from githubkit.response import Response

from autoscaler.github.budget import JIT, Budget, Budgets, JitPace, Need
from autoscaler.github.call import Call, KnownLists, Params
from autoscaler.github.connection import SKEW_MS, Connection, Lost
from autoscaler.github.errors import GitHubError, NotFound, RateLimited, refused, transient
from autoscaler.github.wire import InstallationShape, TokenShape, decode, unix_ms
from scheduling.messages import Trouble
from scheduling.model import DurationMs, UnixMs

log = logging.getLogger(__name__)

JWT_AGE_MS: DurationMs = 60_000  # `iat` lies in the past, for clocks that differ a little
JWT_LIFE_MS: DurationMs = 510_000  # GitHub allows ten minutes from its own time
TOKEN_MARGIN_MS: DurationMs = 120_000
ABSENT_MS: DurationMs = 300_000  # how long "not installed there" is believed
SEEN_MS: DurationMs = 300_000  # how long an App that saw a collection is believed about what is not in it
PAGE_SIZE = 100

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class AppCredentials:
    """`private_key` is the PEM that GitHub gave for the App."""

    app_id: str
    private_key: str = field(repr=False)


class SingleFlight(Generic[Result]):
    """Callers that want the same thing at the same time share one attempt, its result and its failure."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Result]] = {}

    async def do(self, key: Hashable, work: Callable[[], Awaitable[Result]]) -> Result:
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.ensure_future(self._run(key, work))
        return await asyncio.shield(task)

    async def _run(self, key: Hashable, work: Callable[[], Awaitable[Result]]) -> Result:
        try:
            return await work()
        finally:
            del self._running[key]


class Installation:
    """One App at one owner: its token, its budgets and its pace. `app` is the App's id, for people."""

    def __init__(
        self, app: str, owner: str, connection: Connection, mint: Callable[[], Awaitable[tuple[str, UnixMs]]]
    ) -> None:
        self.app, self.owner, self.connection = app, owner, connection
        self.budgets = Budgets(app, owner)
        self.pace = JitPace(connection.clock)
        self._mint = mint
        self._flight = SingleFlight[str]()
        self._token = ""
        self._until_ms: UnixMs = 0
        self._blocked: dict[Need, UnixMs] = {}
        self._sees: dict[str, UnixMs] = {}
        self._known = KnownLists()

    def rank(self, need: Need) -> tuple[DurationMs, float]:
        """Order among Apps for such a call: the shortest wait, then the most left of the budget."""
        return self.wait_ms(need), -self.budgets.remaining(need, self.connection.clock.now_ms())

    def wait_ms(self, need: Need) -> DurationMs:
        """How long such a call would have to wait here."""
        return max(self.pace.wait_ms() if need is Need.JIT else 0, self.held_ms(need))

    def jit_budget(self) -> Budget:
        """Its pace of JIT creations, as a budget."""
        next_ms = self.connection.clock.now_ms() + self.wait_ms(Need.JIT)
        return Budget(self.app, JIT, int(self.pace.rate), self.pace.left(), next_ms, self.owner)

    async def admit(self, need: Need) -> None:
        """Waits for a JIT creation's turn. Raises `RateLimited` while a limit of GitHub's holds."""
        self._refuse_held(need)
        if need is Need.JIT and await self.pace.acquire():
            self._refuse_held(need)

    async def send(self, call: Call) -> Response[Any]:
        """A 2xx answer. Raises `GitHubError`, and `Lost` when no answer came. A refused token is replaced once."""
        need, token = call.need, await self.token()
        response = await self._send(call, token)
        if response.status_code == 401:
            if token == self._token:  # else another call has replaced it already
                self._until_ms = 0
            response = await self._send(call, await self.token())
        if response.is_success:
            if need is Need.JIT:
                self.pace.accepted()
            return response
        error = refused(response, self.app, self.connection.server_ms())
        if isinstance(error, RateLimited):
            until_ms = self.connection.clock.now_ms() + error.retry_after_ms
            self._blocked |= {each: until_ms for each in Need if each.value >= need.value}
            if need is Need.JIT and error.secondary:
                self.pace.limited()
        raise error

    async def sees(self, collection: str) -> None:
        """Raises unless this App may look into a collection, so that a 404 of an entry proves its absence."""
        now_ms = self.connection.clock.now_ms()
        if self._sees.get(collection, 0) > now_ms:
            return
        try:
            await self.send(Call(Need.RUNNER, "GET", collection, {"per_page": 1}))
        except NotFound as error:
            raise GitHubError(Trouble.UNAUTHORIZED, error.detail) from None
        self._sees[collection] = now_ms + SEEN_MS

    def held_ms(self, need: Need) -> DurationMs:
        """How long a limit that GitHub named, or a budget kept for more urgent calls, still holds."""
        now_ms = self.connection.clock.now_ms()
        return max(0, self._blocked.get(need, 0) - now_ms, self.budgets.wait_ms(need, now_ms))

    def _refuse_held(self, need: Need) -> None:
        if held_ms := self.held_ms(need):
            where = f"App {self.app} at {self.owner}"
            raise RateLimited(f"GitHub's limit for {where} leaves nothing for this call until its reset", held_ms)

    async def token(self) -> str:
        if self.connection.clock.now_ms() >= self._until_ms:
            return await self._flight.do("token", self._renew)
        return self._token

    async def _renew(self) -> str:
        self._token, expires_ms = await self._mint()
        self._until_ms = expires_ms - TOKEN_MARGIN_MS
        return self._token

    async def _send(self, call: Call, token: str) -> Response[Any]:
        known = self._known.get(call) if call.need is Need.LIST else None
        etag = known.headers["etag"] if known else ""
        response = await self.connection.send(
            call.method, call.path, f"Bearer {token}", call.params, call.body, etag
        )
        self.budgets.learn(call.need, response.headers, self.connection.offset_ms)
        if known and response.status_code == 304:
            return known
        if call.need is Need.LIST:
            self._known.keep(call, response)
        return response


class App:
    """One GitHub App and the installations of it that are known."""

    def __init__(self, credentials: AppCredentials, connection: Connection) -> None:
        self.id = credentials.app_id
        self.connection = connection
        self.installations: dict[str, Installation] = {}  # by case-folded owner
        self._pem = credentials.private_key
        self._key: RSAPrivateKey | None = None
        self._absent: dict[str, UnixMs] = {}
        self._lookups = SingleFlight[Installation | None]()
        self._signing = SingleFlight[str]()
        self._jwt = ""
        self._jwt_until_ms: UnixMs = 0
        self._jwt_offset_ms: DurationMs = 0

    async def installation(self, owner: str) -> Installation | None:
        """The App's installation at an owner; None where it is not installed (believed for five minutes)."""
        key = owner.casefold()
        if found := self.installations.get(key):
            return found
        if self._absent.get(key, 0) > self.connection.clock.now_ms():
            return None
        return await self._lookups.do(key, lambda: self._look_up(owner))

    async def refresh(self) -> list[Installation]:
        """All installations, as GitHub lists them now; suspended ones are left out."""
        listed: list[InstallationShape] = []
        page = 1
        while len(listed) == (page - 1) * PAGE_SIZE:
            params: Params = {"per_page": PAGE_SIZE, "page": page}
            listed += decode(await self.send("GET", "/app/installations", params), list[InstallationShape])
            page += 1
        usable = [each for each in listed if each.account and each.account.login and not each.suspended_at]
        found = [self._known(each.account.login, each.id) for each in usable if each.account]
        self.installations = {each.owner.casefold(): each for each in found}
        return found

    async def send(self, method: str, path: str, params: Params | None = None) -> Response[Any]:
        """A 2xx answer to a request of the App itself. Raises `GitHubError`."""
        lost = ""
        try:
            response = await self._send(method, path, params)
            if response.status_code == 401:  # its Date told us GitHub's time: once more with that
                self._jwt_until_ms = 0
                response = await self._send(method, path, params)
        except Lost as error:
            lost = str(error)
        if lost:
            raise transient(lost)
        if not response.is_success:
            raise refused(response, self.id, self.connection.server_ms())
        return response

    async def key(self) -> RSAPrivateKey:
        """The private key, read once. Raises `GitHubError` when it is none."""
        if self._key is None:
            found: object = None
            with suppress(ValueError, TypeError, UnsupportedAlgorithm):
                found = await asyncio.to_thread(load_pem_private_key, self._pem.encode(), None)
            if not isinstance(found, RSAPrivateKey):
                text = f"the private key of GitHub App {self.id} is not an unencrypted RSA key in PEM form"
                raise GitHubError(Trouble.UNAUTHORIZED, f"{text}: generate a new one in the App's settings")
            self._key = found
        return self._key

    async def _send(self, method: str, path: str, params: Params | None) -> Response[Any]:
        return await self.connection.send(method, path, f"Bearer {await self._signed()}", params)

    async def _signed(self) -> str:
        """A JWT in GitHub's time. Signing takes milliseconds, reading the key a hundred: not on the event loop."""
        stale = abs(self._jwt_offset_ms - self.connection.offset_ms) > SKEW_MS
        if stale or self.connection.clock.now_ms() >= self._jwt_until_ms:
            return await self._signing.do("jwt", self._sign)
        return self._jwt

    async def _sign(self) -> str:
        key = await self.key()
        offset_ms, server_ms = self.connection.offset_ms, self.connection.server_ms()
        issued = (server_ms - JWT_AGE_MS) // 1000
        claims = {"iss": self.id, "iat": issued, "exp": (server_ms + JWT_LIFE_MS) // 1000}
        self._jwt = await asyncio.to_thread(jwt.encode, claims, key, "RS256")
        self._jwt_offset_ms = offset_ms
        self._jwt_until_ms = server_ms - offset_ms + JWT_LIFE_MS // 2
        return self._jwt

    async def _look_up(self, owner: str) -> Installation | None:
        for path in (f"/orgs/{owner}/installation", f"/users/{owner}/installation"):
            try:
                found = decode(await self.send("GET", path), InstallationShape)
            except NotFound:
                continue
            if found.suspended_at is None:
                return self.installations.setdefault(owner.casefold(), self._known(owner, found.id))
        self._absent[owner.casefold()] = self.connection.clock.now_ms() + ABSENT_MS
        return None

    def _known(self, owner: str, number: int) -> Installation:
        """The one client of an installation, for the life of the process."""
        before = self.installations.get(owner.casefold())
        return before or Installation(self.id, owner, self.connection, lambda: self._mint(owner, number))

    async def _mint(self, owner: str, number: int) -> tuple[str, UnixMs]:
        try:
            response = await self.send("POST", f"/app/installations/{number}/access_tokens")
        except NotFound as error:
            self.installations.pop(owner.casefold(), None)  # uninstalled: look it up anew
            raise GitHubError(Trouble.UNAUTHORIZED, error.detail) from None
        minted = decode(response, TokenShape)
        return minted.token, unix_ms(minted.expires_at) - self.connection.offset_ms
