"""`/host/v1`: what donated hosts call that open no port, and the switches of whoever gave them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from autoscaler.http.auth import ApiAuth
from autoscaler.http.body import BodyReader, Refused
from autoscaler.http.host_auth import HostAuth, digest
from autoscaler.http.pace import Pace
from autoscaler.store.hosts import Hosts
from providers.base import HostState, Provider, Transient

WAIT_S = 20.0
LOOK_S = 0.1
BODY_MAX = 2 * 1024 * 1024
BODY_SECONDS = 20.0
POLLS_A_MINUTE = 600
"""Of one host: a busy one reports after each launch."""
KEEP_MINUTES_MAX = 7 * 24 * 60
audit = logging.getLogger("autoscaler.audit")

Handler = Callable[[web.Request], Awaitable[web.Response]]


class HostApi:
    """The handlers, for one replica. `providers` are those of the policy in force."""

    def __init__(
        self, board: Hosts, providers: Callable[[], Mapping[str, Provider]], fleet: str, key: bytes, auth: ApiAuth
    ) -> None:
        self._board, self._fleet = board, fleet
        self._auth = HostAuth(board, providers, key, auth)
        self._bodies = BodyReader(BODY_MAX, BODY_SECONDS, 16 * BODY_MAX)
        self._polls = Pace(POLLS_A_MINUTE)
        self._waiting: dict[str, int] = {}  # host -> polls that wait
        self._round: asyncio.Task[dict[str, int]] | None = None
        self._closing = False

    def close(self) -> None:
        """Answer everybody who waits. For the start of a shut-down."""
        self._closing = True

    # ---- joining -------------------------------------------------------------------------------------------

    async def program(self, _: web.Request) -> web.Response:
        """`GET /host/v1/program`: what a host installs. No secret is in it."""
        for keeper in self._auth.keepers().values():
            if keeper.sponsors:
                return web.Response(body=keeper.program(), content_type="text/x-python", charset="utf-8")
        raise Refused(404, "no provider of the policy has sponsors: no host can join")

    async def join(self, request: web.Request) -> web.Response:
        """`POST /host/v1/join` with `{"host", "machine", "launchers", "has"}` and a join token: its secret."""
        provider, keeper, sponsor = self._auth.sponsor(request)
        body = _decoded(_JOIN, await self._bodies.read(request))
        where = f"{provider}/{body.host}"
        if body.host not in keeper.hosts:
            names = ", ".join(sorted(keeper.hosts)) or "none"
            raise Refused(
                404,
                f"the policy lists no host {body.host[:64]!r} for provider {provider} (it lists: {names}); "
                "name one of these with --name, or have the operator add it under settings.hosts",
            )
        terms = keeper.terms(body.host)
        if terms["launcher"] not in body.launchers:
            has = " and ".join(body.launchers) or "neither systemd nor bubblewrap"
            raise Refused(
                409, f"provider {provider} runs jobs by {terms['launcher']}, and this host has {has}; "
                "install it, or have the operator set settings.launcher"
            )  # fmt: skip
        lacks = keeper.lacks(body.host, msgspec.to_builtins(body.has))
        if lacks:
            raise Refused(409, f"host {body.host} {lacks}; have the operator correct it in the policy")
        known, state = await self._board.joined(where), await self._board.read(where)
        if known and known["machine"] not in ("", body.machine) and (state.present or state.report.get("leases")):
            raise Refused(
                409, f"another machine has joined as {where} and is there or has jobs; name this one otherwise"
            )
        secret = self._auth.secret(where, f"{sponsor}~{secrets.token_hex(16)}")
        await self._board.join(where, digest(secret), sponsor, body.machine[:64])
        audit.warning("host %s joined, by %s", where, sponsor, extra={"token": sponsor, "peer": request.remote})
        joined = {"provider": provider, "host": body.host, "fleet": self._fleet, "secret": secret, "terms": terms}
        return web.json_response(joined, headers={"Cache-Control": "no-store"})

    # ---- serving -------------------------------------------------------------------------------------------

    async def poll(self, request: web.Request) -> web.Response:
        """`POST /host/v1/PROVIDER/HOST/poll` with `{"acted", "report"}`: what is wanted, as soon as it is news."""
        where, keeper, host = await self._auth.caller(request)
        if not self._polls.allows(where):
            raise Refused(429, "too many calls of this host; it waits")
        body = _decoded(_POLL, await self._bodies.read(request))
        report = msgspec.to_builtins(body.report)
        report["leases"] = [lease for lease in report["leases"] if self._auth.proven(where, lease)]
        await self._board.report(where, body.acted or 0, report)
        await self._news(where, body.acted)
        state, numbers = await self._board.read(where), await self._board.numbers([where])
        return web.json_response(
            {
                "n": numbers[where],
                "terms": keeper.terms(host),
                "keep_s": 60 * state.keep_minutes,
                **self._wanted(where, state),
            },
            headers={"Cache-Control": "no-store"},
        )

    def _wanted(self, where: str, state: HostState) -> dict[str, Any]:
        launches = {
            runner_id: {**launch, "proof": self._auth.proof(where, {**launch, "runner_id": runner_id})}
            for runner_id, launch in state.wanted.items()
            if launch is not None
        }
        return {"launch": launches, "end": [each for each in state.wanted if each not in launches]}

    async def _news(self, where: str, acted: int | None) -> None:
        """Until the board has another number, or for `WAIT_S`. One look a moment serves all who wait."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + WAIT_S
        self._waiting[where] = self._waiting.get(where, 0) + 1
        try:
            while acted is not None and not self._closing and loop.time() < end_s:
                if self._round is None or self._round.done():
                    self._round = asyncio.create_task(self._look())
                if (await asyncio.shield(self._round)).get(where, acted) != acted:
                    return
        finally:
            self._waiting[where] -= 1
            if not self._waiting[where]:
                del self._waiting[where]

    async def _look(self) -> dict[str, int]:
        await asyncio.sleep(LOOK_S)
        try:
            return await self._board.numbers(list(self._waiting))
        except Transient:
            return {}

    # ---- switches ------------------------------------------------------------------------------------------

    async def switch(self, request: web.Request) -> web.Response:
        """`POST /host/v1/PROVIDER/HOST/{pause,resume,keep}`: by an operator, or the host's sponsor."""
        name = request.match_info["switch"]
        where, keeper, _ = self._auth.named(request)
        by = await self._auth.switcher(request, where, keeper)
        if name == "keep":
            minutes = _decoded(_KEEP, await self._bodies.read(request)).minutes
            if not 0 <= minutes <= KEEP_MINUTES_MAX:
                raise Refused(400, f"minutes: expected 0 (off) to {KEEP_MINUTES_MAX} (a week)")
            await self._board.switch(where, "keep_minutes", minutes)
        else:
            await self._board.switch(where, "paused", by if name == "pause" else "")
        audit.warning("%s host %s by %s", name, where, by, extra={"token": by, "peer": request.remote})
        return web.json_response({"host": where, "switch": name, "by": by}, status=202)


class _Has(msgspec.Struct):
    cpus: int
    memory_mib: int
    disk_gib: int
    arch: str
    gpus: dict[str, list[str]]
    missing: list[str]
    cooled: dict[str, str] = {}


class _Join(msgspec.Struct):
    host: str
    machine: str
    launchers: list[str]
    has: _Has


class _Lease(msgspec.Struct):
    runner_id: str
    fleet: str
    tags: dict[str, str]
    instance_type: str
    launched_ms: int
    lifetime_s: int
    started: bool
    running: bool
    proof: str


class _Report(msgspec.Struct):
    leases: list[_Lease]
    answers: dict[str, dict[str, Any]]
    has: _Has


class _Poll(msgspec.Struct):
    report: _Report
    acted: int | None = None


class _Keep(msgspec.Struct):
    minutes: int


_JOIN, _POLL, _KEEP = (msgspec.json.Decoder(each) for each in (_Join, _Poll, _Keep))


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refused(400, f"not what is expected here: {error}") from None


def routes(api: HostApi) -> list[web.RouteDef]:
    """What the daemon's application serves of this."""
    return [
        web.get("/host/v1/program", _answering(api.program), allow_head=False),
        web.post("/host/v1/join", _answering(api.join)),
        web.post("/host/v1/{provider}/{host}/poll", _answering(api.poll)),
        web.post("/host/v1/{provider}/{host}/{switch:pause|resume|keep}", _answering(api.switch)),
    ]


def _answering(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except Refused as refusal:
            return refusal.response()
        except Transient:
            return Refused(503, "the store is away; try again").response()

    return answer
