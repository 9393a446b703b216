"""Who may ask the GitHub stand-in what, and how often: Apps, their JWTs and tokens, rate limits."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass, field

import jwt
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from autoscaler.clock import Clock
from autoscaler.sandbox.github_owners import number_of
from scheduling.model import HOUR_MS, DurationMs, UnixMs

TOKEN_MS: DurationMs = HOUR_MS
MINUTE_MS: DurationMs = 60_000


@dataclass(frozen=True, slots=True)
class Limits:
    """`per_hour` requests an installation and resource; `creations` of content a minute, 0: unlimited.

    Source: docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api.
    """

    per_hour: int = 12_500
    creations: int = 0


class Denied(Exception):
    """An answer of GitHub that is an error: status, `message` of the body, headers."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


@dataclass(slots=True)
class SandboxApp:
    """A GitHub App; `installations` by case-folded owner; `selected` None: it sees all their repositories."""

    id: str
    public_key: bytes
    installations: dict[str, int]
    selected: frozenset[str] | None = None
    suspended: bool = False

    def sees(self, repository: str) -> bool:
        return self.selected is None or repository.casefold() in self.selected


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated installation."""

    app: SandboxApp
    owner: str
    installation_id: int


@dataclass(slots=True)
class Window:
    """What one installation used of one resource; a fixed hour from its first request."""

    resource: str
    limit: int
    reset_ms: UnixMs
    used: int = 0

    def headers(self) -> dict[str, str]:
        return {
            "x-ratelimit-limit": str(self.limit),
            "x-ratelimit-remaining": str(self.limit - self.used),
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-reset": str(self.reset_ms // 1000),
            "x-ratelimit-resource": self.resource,
        }


@dataclass(slots=True)
class Access:
    """Apps and tokens. Times are the stand-in's clock: a caller with another time is refused, as by GitHub."""

    clock: Clock
    limits: Limits
    apps: dict[str, SandboxApp] = field(default_factory=dict)
    minted: int = 0
    _tokens: dict[str, tuple[Caller, UnixMs]] = field(default_factory=dict, repr=False)
    _windows: dict[tuple[int, str], Window] = field(default_factory=dict)
    _creations: dict[int, deque[UnixMs]] = field(default_factory=dict)

    def add_app(self, app_id: str, public_key: bytes, owners: list[str]) -> SandboxApp:
        installations = {owner.casefold(): number_of(f"{app_id}/{owner}") % 10**8 for owner in owners}
        self.apps[app_id] = SandboxApp(app_id, public_key, installations)
        return self.apps[app_id]

    def app(self, request: web.Request) -> SandboxApp:
        """The App that signed the request's JWT.

        "Generating a JSON Web Token (JWT) for a GitHub App": RS256, `iat` not in the future, `exp` at most ten
        minutes ahead.
        """
        token = _credential(request)
        try:
            issuer = str(jwt.decode(token, options={"verify_signature": False}).get("iss"))
            app = self.apps[issuer]
            key = serialization.load_pem_public_key(app.public_key)
            lenient = {"verify_exp": False, "verify_iat": False}
            claims = jwt.decode(token, key, algorithms=["RS256"], options=lenient)  # type: ignore[arg-type]
            issued, expires = int(claims["iat"]), int(claims["exp"])
        except (jwt.PyJWTError, KeyError, ValueError):
            raise Denied(401, "A JSON web token could not be decoded") from None
        now = self.clock.now_ms() / 1000
        if issued > now + 1:
            raise Denied(401, "'Issued at' claim ('iat') must be an Integer representing the time of issue")
        if expires > now + 601:
            raise Denied(401, "'Expiration time' claim ('exp') is too far in the future")
        if expires <= now:
            raise Denied(401, "'Expiration time' claim ('exp') must be a numeric value representing the future")
        return app

    def mint(self, app: SandboxApp, installation_id: int) -> tuple[str, UnixMs]:
        """An installation token and when it ends."""
        owner = next((name for name, each in app.installations.items() if each == installation_id), None)
        if owner is None:
            raise Denied(404, "Not Found")
        if app.suspended:
            raise Denied(403, "This installation has been suspended")
        token = f"ghs_{secrets.token_urlsafe(27)}"
        expires = self.clock.now_ms() + TOKEN_MS
        self._tokens[token] = (Caller(app, owner, installation_id), expires)
        self.minted += 1
        return token, expires

    def caller(self, request: web.Request) -> Caller:
        caller, expires = self._tokens.get(_credential(request), (None, 0))
        if caller is None or expires <= self.clock.now_ms():
            raise Denied(401, "Bad credentials")
        return caller

    def app_of(self, token: str) -> str:
        """The App that an installation token was minted for; empty for anything else."""
        found = self._tokens.get(token)
        return found[0].app.id if found else ""

    def tokens(self) -> list[str]:
        """Every token that was minted, for tests that look for them where they must not be."""
        return list(self._tokens)

    def revoke_tokens(self) -> None:
        self._tokens.clear()

    def spend(self, caller: Caller, resource: str) -> Window:
        """Counts one request where it belongs."""
        now = self.clock.now_ms()
        key = (caller.installation_id, resource)
        window = self._windows.get(key)
        if window is None or now >= window.reset_ms:
            window = self._windows[key] = Window(resource, self.limits.per_hour, now + HOUR_MS)
        over = window.used >= window.limit
        window.used += not over
        if over:
            words = f"API rate limit exceeded for installation ID {caller.installation_id}."
            raise Denied(403, words, window.headers())
        return window

    def create(self, caller: Caller) -> None:
        """Counts one creation of content against the secondary limit, which shows in no header."""
        now = self.clock.now_ms()
        recent = self._creations.setdefault(caller.installation_id, deque())
        while recent and recent[0] <= now - MINUTE_MS:
            recent.popleft()
        if self.limits.creations and len(recent) >= self.limits.creations:
            raise Denied(403, "You have exceeded a secondary rate limit. Please wait a few minutes.")
        recent.append(now)


def _credential(request: web.Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.casefold() not in ("bearer", "token") or not value:
        raise Denied(401, "Requires authentication")
    return value
