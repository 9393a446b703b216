"""`POST /webhooks/github`: verify, decode the few fields we use, store, answer. The request does nothing else.

Checked in this order: size, form encoding, signature, event, JSON. GitHub never repeats a delivery by itself, so
202 is said only once the event is stored; 503 makes the delivery show as failed, and the scan redelivers it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.github.target import parse_target
from autoscaler.http.body import BodyReader, Refused
from autoscaler.http.workflow_job import Malformed, report
from autoscaler.secrets_file import SecretsFile
from autoscaler.store.store import InboxFull, StoreAway
from scheduling.messages import Event
from scheduling.model import UnixMs

PATH = "/webhooks/github"
BODY_MAX = 25 * 1024 * 1024
"""Bytes: GitHub's own limit of a payload."""
BODY_SECONDS = 10.0
"""A body must be here by then; GitHub itself gives up after 10 s."""
HELD_MAX = 8 * BODY_MAX
"""Bytes of bodies in memory at once. Anybody may send them: the signature is known only at their end."""

IsOurs = Callable[[tuple[str, ...], str], bool]
"""Whether jobs with these labels, of this repository, are ours (unroutable ones are). Cached by its maker."""


class Append(Protocol):
    """`Store.append`."""

    def __call__(self, events: Sequence[Event], *, bulk: bool = False) -> Awaitable[None]: ...


Answered = Callable[[str, float], object]
"""Told of every answer: `stored`, `ignored` or `refused_STATUS`, and the real seconds that it took."""


class Receiver:
    """Takes GitHub's deliveries."""

    def __init__(
        self,
        append: Append,
        secrets: SecretsFile,
        is_ours: IsOurs,
        clock: Clock,
        answered: Answered = lambda outcome, seconds: None,
    ) -> None:
        self._append = append
        self._secrets = secrets
        self._is_ours = is_ours
        self._clock = clock
        self._bodies = BodyReader(BODY_MAX, BODY_SECONDS, HELD_MAX)
        self._answered = answered
        self.record: Callable[[str, bytes, UnixMs], None] = lambda delivery, body, now_ms: None

    async def receive(self, request: web.Request) -> web.Response:
        """Answer one delivery: 202 stored or ignored, 400, 401, 408, 413 or 503 with what to do about it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            ignored = await self._receive(request)
        except Refused as refusal:
            self._answered(f"refused_{refusal.status}", loop.time() - began)
            return refusal.response()
        self._answered("ignored" if ignored else "stored", loop.time() - began)
        body = json.dumps({"ignored": ignored}).encode() if ignored else _STORED
        return web.Response(body=body, status=202, content_type="application/json")

    async def _receive(self, request: web.Request) -> str | None:
        """None once the event is stored, else why it is none of ours."""
        headers = request.headers
        body = await self._bodies.read(request)
        if request.content_type == "application/x-www-form-urlencoded":
            raise Refused(400, "form-encoded: set the webhook's content type to application/json")
        if not self._signed(body, headers.get("X-Hub-Signature-256", "")):
            raise Refused(401, "X-Hub-Signature-256 is missing or was made with another secret")
        event = headers.get("X-GitHub-Event", "")
        if not event:
            raise Refused(400, "the X-GitHub-Event header is missing")
        if event != "workflow_job":
            return f"event {event[:100]}"
        try:
            job = report(body, headers.get("X-GitHub-Delivery", ""), self._clock.now_ms())
        except Malformed as error:
            raise Refused(400, f"not a workflow_job delivery: {error}") from None
        if isinstance(job, str):
            return f"action {job}"
        try:
            parse_target(f"repo:{job.repository}")
        except ValueError:
            raise Refused(400, "not a workflow_job delivery: repository.full_name is not OWNER/NAME") from None
        if not self._is_ours(job.labels, job.repository):
            return "no runner type is for these labels, and they are on the list of labels to ignore"
        await self._store(job)
        self.record(job.delivery, body, job.at_ms)
        return None

    async def _store(self, job: Event) -> None:
        try:
            await self._append((job,), bulk=True)
        except StoreAway:
            raise Refused(503, "the store is away; redeliver later") from None
        except InboxFull:
            raise Refused(503, "the inbox is full; redeliver later") from None

    def _signed(self, body: bytes, signature: str) -> bool:
        """Whether any active secret made this signature. All are compared, each in constant time."""
        stated = signature.encode(errors="replace")
        good = False
        for secret in self._secrets.active():
            made = b"sha256=" + hmac.digest(secret, body, "sha256").hex().encode()
            good |= hmac.compare_digest(made, stated)
        return good


def routes(receiver: Receiver) -> list[web.RouteDef]:
    """What the daemon's application serves of this; other methods are answered 405."""
    return [web.post(PATH, receiver.receive)]


_STORED = b'{"stored": true}'
