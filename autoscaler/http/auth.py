"""Who may ask `/api/v1`: bearer tokens with the scope `read` or `write`.

Without a tokens file reads are open and writes are refused; with one everything needs a token. Only digests are
kept, and each is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac

from aiohttp import web

from autoscaler.http.body import Refused
from autoscaler.settings import ApiToken


class ApiAuth:
    """`tokens` None: there is no tokens file."""

    def __init__(self, tokens: tuple[ApiToken, ...] | None) -> None:
        self._tokens = tokens

    def reader(self, request: web.Request) -> None:
        """Raises `Refused` with 401 where a token is needed and missing or unknown."""
        if self._tokens is not None:
            self._token(request, self._tokens)

    def writer(self, request: web.Request) -> str:
        """The name of the token; raises `Refused` with 401 or, without write scope, 403."""
        if self._tokens is None:
            raise Refused(403, "switches need a token: start the daemon with AUTOSCALER_API_TOKENS_FILE")
        token = self._token(request, self._tokens)
        if token.scope != "write":
            raise Refused(403, f"the token {token.name} may only read; switches need one with scope write")
        return token.name

    def _token(self, request: web.Request, tokens: tuple[ApiToken, ...]) -> ApiToken:
        scheme, _, stated = request.headers.get("Authorization", "").partition(" ")
        if scheme.casefold() != "bearer" or not stated.strip():
            raise Refused(401, "a bearer token is needed: the header `Authorization: Bearer TOKEN`")
        digest = hashlib.sha256(stated.strip().encode(errors="replace")).hexdigest()
        found = None
        for token in tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None:
            raise Refused(401, "this bearer token is not in the daemon's tokens file")
        return found
