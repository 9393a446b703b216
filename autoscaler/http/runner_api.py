"""What machines call: report a stage, and wait for the JIT config.

The token is HMAC(fleet key, runner id): it needs no record, so a machine is heard even when the store has lost
everything. Job code can read it: a callback is a hint, never a reason to kill a machine or to settle a hold.

A cloud may make two machines of one launch, with the same token. Each draws a nonce as it boots: the first that
calls speaks for the runner from then on, any other is told to shut down and never gets a config.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.http.body import BodyReader, Refused
from autoscaler.logs import HIDDEN, REDACTOR
from autoscaler.store.store import Store, StoreAway
from scheduling.lifecycle import RunnerState
from scheduling.messages import Stage, StageReported

log = logging.getLogger(__name__)

WAIT_MAX_SECONDS = 30.0
LOOK_SECONDS = 0.2
"""One look at all waiting runners, while any waits. Real time."""
BODY_MAX = 64 * 1024
BODY_SECONDS = 10.0
HELD_MAX = 512 * BODY_MAX
DETAIL_MAX = 2048
"""Bytes of a stage's detail that are kept."""
LINES_MAX, LINE_MAX = 12, 200
"""Of a failed boot's log."""
AGE_MAX_MS = 3_600_000
NONCE_HEADER = "X-Machine-Nonce"
_RUNNER_ID = re.compile(r"r[a-z0-9]{20}")
_NONCE = re.compile(r"[0-9a-f]{16,64}")
_ANONYMOUS = "anonymous"  # the machine of an image that is older than nonces
_REGISTERED = frozenset({RunnerState.IDLE, RunnerState.BUSY})
_BOOTING = frozenset({RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING})
_ENDED = frozenset({RunnerState.LEAVING, RunnerState.STOPPING, RunnerState.GONE})
_Look = dict[str, tuple[RunnerState | None, str | None]]


def callback_token(fleet_key: bytes, runner_id: str) -> str:
    """The bearer token of one runner's machine: hex HMAC-SHA256 of its id."""
    return hmac.digest(fleet_key, runner_id.encode(), "sha256").hex()


class RunnerApi:
    """Stages into the inbox, JIT configs out of the store."""

    def __init__(self, store: Store, fleet_key: bytes, clock: Clock) -> None:
        self._store = store
        self._fleet_key = fleet_key
        self._clock = clock
        self._bodies = BodyReader(BODY_MAX, BODY_SECONDS, HELD_MAX)
        self._waiting: Counter[str] = Counter()
        self._round: asyncio.Task[_Look] | None = None
        self._closing = False
        self.explain: Callable[[str, int], Awaitable[str]] | None = (
            None  # (runner id, run id) -> why its job waited
        )

    async def notice(self, request: web.Request) -> web.Response:
        """`GET /runner/v1/{id}/notice?run=ID`: what a notice runner prints into the log of the job that it got."""
        runner_id = self._authorized(request)
        run = request.query.get("run", "")
        text = ""
        if self.explain and re.fullmatch("[0-9]{1,20}", run):
            with suppress(StoreAway):
                text = await self.explain(runner_id, int(run))
        return web.Response(text=text) if text else web.Response(status=204)

    async def stages(self, request: web.Request) -> web.Response:
        """`POST /runner/v1/{id}/stages` with `{"stage", "detail"}`: 202 once it is stored."""
        runner_id = self._authorized(request)
        body = await self._bodies.read(request)
        try:
            report = _REPORT.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Refused(400, f"not a stage report: {error}") from None
        await self._only_machine(request, runner_id)
        token = callback_token(self._fleet_key, runner_id)
        detail = _bounded(report.detail or "", token, DETAIL_MAX)
        lines = tuple(_bounded(line, token, LINE_MAX) for line in report.log[-LINES_MAX:])
        at_ms = self._clock.now_ms() - min(max(0, report.age_ms), AGE_MAX_MS)
        event = StageReported(at_ms, runner_id, report.stage, detail, lines)
        try:
            await self._store.append([event])
        except StoreAway:
            raise Refused(503, "the store is away; send it again") from None
        return web.json_response({"stored": True}, status=202)

    async def jit(self, request: web.Request) -> web.Response:
        """`GET /runner/v1/{id}/jit?wait=SECONDS`: 200 with the config, 204 ask again, 410 shut down.

        A runner without a record may be one that the store has lost: it is told to ask again.
        """
        runner_id = self._authorized(request)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _wait_seconds(request)
        await self._only_machine(request, runner_id)
        self._waiting[runner_id] += 1
        try:
            look = await self._look([runner_id])
            if look.get(runner_id, (None, None))[0] in _BOOTING:
                await self._heard_of(runner_id)
            while True:
                state, config = look.get(runner_id, (None, None))
                if state in _ENDED:
                    raise Refused(410, "this runner has ended; shut down")
                if config is not None and state not in _REGISTERED:
                    answer = {"jit": config, **await self._waited(runner_id)}
                    return web.json_response(answer, headers={"Cache-Control": "no-store"})
                if self._closing or loop.time() + LOOK_SECONDS > end_s:
                    return web.Response(status=204)
                look = await self._next_look()
        finally:
            self._waiting[runner_id] -= 1
            if not self._waiting[runner_id]:
                del self._waiting[runner_id]

    async def _heard_of(self, runner_id: str) -> None:
        """Who asks has booted, even if its report was lost or its record was."""
        with suppress(StoreAway):
            await self._store.append([StageReported(self._clock.now_ms(), runner_id, Stage.BOOTED)])

    async def _waited(self, runner_id: str) -> dict[str, int]:
        """How long the job has waited by now that this machine is for, where that is known."""
        with suppress(StoreAway):
            if queued_ms := await self._store.waiting_since(runner_id):
                return {"waited_ms": max(0, self._clock.now_ms() - queued_ms)}
        return {}

    async def _only_machine(self, request: web.Request, runner_id: str) -> None:
        """410 where another machine has called for this runner before."""
        nonce = request.headers.get(NONCE_HEADER, "")
        if nonce and not _NONCE.fullmatch(nonce):
            raise Refused(400, f"{NONCE_HEADER} is not 16 to 64 hex digits")
        try:
            if await self._store.claim(runner_id, nonce or _ANONYMOUS):
                return
        except StoreAway:
            raise Refused(503, "the store is away; ask again") from None
        log.warning("a second machine calls for one runner and is told to go", extra={"runner": runner_id})
        raise Refused(410, "another machine has this runner id; shut down")

    def close(self) -> None:
        """Let everybody who waits be told 204 at the next look. For the start of a shut-down."""
        self._closing = True

    def _authorized(self, request: web.Request) -> str:
        runner_id = request.match_info["runner_id"]
        if not _RUNNER_ID.fullmatch(runner_id):
            raise Refused(404, "not a runner id; expected r and 20 characters of a-z, 0-9")
        token = callback_token(self._fleet_key, runner_id)
        stated = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(f"Bearer {token}".encode(), stated):
            raise Refused(401, "the bearer token is missing or not this runner's")
        return runner_id

    def _next_look(self) -> Awaitable[_Look]:
        """The look that all who wait share: begun by the first of them, not ended by any of them."""
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._look_later())
        return asyncio.shield(self._round)

    async def _look_later(self) -> _Look:
        await asyncio.sleep(LOOK_SECONDS)
        return await self._look(list(self._waiting))

    async def _look(self, runner_ids: list[str]) -> _Look:
        try:
            return await self._store.look(runner_ids)
        except StoreAway:
            return {}  # they ask again, here or in the next request


def routes(api: RunnerApi) -> list[web.RouteDef]:
    """What the daemon's application serves of this."""
    return [
        web.post("/runner/v1/{runner_id}/stages", _answering(api.stages)),
        web.get("/runner/v1/{runner_id}/notice", _answering(api.notice), allow_head=False),
        web.get("/runner/v1/{runner_id}/jit", _answering(api.jit), allow_head=False),
    ]


def _answering(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except Refused as refusal:
            return refusal.response()

    return answer


def _wait_seconds(request: web.Request) -> float:
    try:
        wait_s = float(request.query.get("wait", "0"))
    except ValueError:
        wait_s = math.nan
    if not wait_s >= 0:
        raise Refused(400, "wait is not a number of seconds")
    return min(wait_s, WAIT_MAX_SECONDS)


def _bounded(text: str, token: str, limit: int) -> str:
    """What a machine says, for records and pages: printable, without secrets, at most `limit` bytes."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    return REDACTOR.clean(shown.replace(token, HIDDEN)).encode()[:limit].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class _Report:
    stage: Stage
    detail: str | None = None
    log: tuple[str, ...] = ()
    age_ms: int = 0  # how long ago that was


_REPORT = msgspec.json.Decoder(_Report)
