"""Who may call `/host/v1`: sponsors by join tokens, hosts by secrets of their own, operators by the API's tokens.

A join token is a sponsor's: its SHA-256 stands in the policy, at the one provider it is good for. It is exchanged
for the host's own secret, `SPONSOR~NONCE.HMAC`: the store holds its SHA-256 to void an older one, and a store that
has lost everything still knows its hosts. A host can only speak of machines that it was asked to run: each carries
a proof of that.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from autoscaler.http.auth import ApiAuth
from autoscaler.http.body import Refused
from autoscaler.http.pace import Pace
from autoscaler.store.hosts import Hosts
from providers.base import HostKeeper, Provider

ATTEMPTS_A_MINUTE = 60
"""To join, or with a wrong secret; of one address."""
_HOST = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
audit = logging.getLogger("autoscaler.audit")


class HostAuth:
    """`providers` are those of the policy in force."""

    def __init__(
        self, board: Hosts, providers: Callable[[], Mapping[str, Provider]], key: bytes, api: ApiAuth
    ) -> None:
        self._board, self._providers, self._key, self._auth = board, providers, key, api
        self._strangers = Pace(ATTEMPTS_A_MINUTE)

    # ---- who it is -----------------------------------------------------------------------------------------

    def keepers(self) -> dict[str, HostKeeper]:
        return {name: each for name, each in self._providers().items() if isinstance(each, HostKeeper)}

    def sponsor(self, request: web.Request) -> tuple[str, HostKeeper, str]:
        """Whose join token it is, with the provider that it is good for; `Refused` otherwise."""
        self._slow_down(request)
        stated = digest(bearer(request))
        for name, keeper in self.keepers().items():
            for sha256, sponsor in keeper.sponsors.items():
                if hmac.compare_digest(sha256, stated):
                    return name, keeper, sponsor
        raise Refused(
            401,
            "this join token is not known: have the operator put its SHA-256 (`printf %s TOKEN | sha256sum`) "
            "under settings.sponsors of your provider and reload the policy",
        )

    def named(self, request: web.Request) -> tuple[str, HostKeeper, str]:
        """`PROVIDER/HOST` of the path, which the policy must list."""
        provider, host = request.match_info["provider"], request.match_info["host"]
        keeper = self.keepers().get(provider)
        if keeper is None or not _HOST.fullmatch(host) or host not in keeper.hosts:
            raise Refused(404, f"the policy lists no host {host[:64]!r} of a provider {provider[:64]!r}")
        return f"{provider}/{host}", keeper, host

    async def caller(self, request: web.Request) -> tuple[str, HostKeeper, str]:
        """The host that calls, by its secret; a store that lost its record learns it again."""
        where, keeper, host = self.named(request)
        stated = bearer(request)
        head = stated.rpartition(".")[0]
        good = hmac.compare_digest(digest(stated), digest(self.secret(where, head)))
        by = head.partition("~")[0]
        if good and by in keeper.sponsors.values():
            known = await self._board.joined(where)
            if not known:
                await self._board.join(where, digest(stated), by, "")
            if known.get("secret", digest(stated)) == digest(stated):
                return where, keeper, host
        self._slow_down(request)
        raise Refused(
            401,
            f"this is no longer the secret of {where}: another machine has joined as it, or the policy no longer "
            "names its sponsor; join again",
        )

    async def switcher(self, request: web.Request, where: str, keeper: HostKeeper) -> str:
        """Who may turn this host's switches and does: the sponsor who joined it, or an operator."""
        sponsor = keeper.sponsors.get(digest(bearer(request)))
        if sponsor is None:
            return self._auth.writer(request)
        if (await self._board.joined(where)).get("by") != sponsor:
            raise Refused(403, f"{sponsor} has not joined {where}; a sponsor may pause its own hosts only")
        return sponsor

    # ---- what we gave it -----------------------------------------------------------------------------------

    def secret(self, where: str, head: str) -> str:
        """The bearer token of a host; `head` is `SPONSOR~NONCE`."""
        return f"{head}.{self._tag(f'host {where} {head}')}"

    def proof(self, where: str, lease: Mapping[str, Any]) -> str:
        """That we asked this host for this machine, with these tags: they say what it costs, and whom."""
        said = [where, *(lease[key] for key in ("runner_id", "tags", "instance_type", "lifetime_s"))]
        return self._tag("lease " + json.dumps(said, sort_keys=True))

    def proven(self, where: str, lease: Mapping[str, Any]) -> bool:
        good = hmac.compare_digest(self.proof(where, lease).encode(), lease["proof"].encode(errors="replace"))
        if not good:
            audit.warning("host %s speaks of a machine that nobody asked it for: %s", where, lease["runner_id"])
        return good

    def _tag(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(errors="replace"), "sha256").hex()

    def _slow_down(self, request: web.Request) -> None:
        if not self._strangers.allows(request.remote or ""):
            raise Refused(429, "too many attempts from this address; wait a minute")


def bearer(request: web.Request) -> str:
    scheme, _, stated = request.headers.get("Authorization", "").partition(" ")
    if scheme.casefold() != "bearer" or not stated.strip() or not stated.isascii():
        raise Refused(401, "a bearer token is needed: the header `Authorization: Bearer TOKEN`")
    return stated.strip()


def digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
