"""Webhook deliveries of the GitHub stand-in: signed, many at a time, never repeated by themselves.

Facts: docs.github.com/en/webhooks/using-webhooks/best-practices-for-using-webhooks (10 s to answer),
.../handling-failed-webhook-deliveries (no automatic redelivery), .../validating-webhook-deliveries (signature).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import logging
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import msgspec

from autoscaler.clock import Clock
from autoscaler.sandbox.github_faults import Faults
from scheduling.model import UnixMs

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10  # real
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Hook:
    """Where an App's webhooks go."""

    app_id: str
    url: str
    secret: bytes = field(repr=False)


@dataclass(slots=True)
class Delivery:
    """One attempt. `status_code` 0: nobody answered; the body is kept for a repetition only if it failed."""

    id: int
    guid: str
    hook: Hook
    action: str
    repository_id: int
    installation_id: int
    body: bytes = field(repr=False)
    redelivery: bool = False
    at_ms: UnixMs = 0
    status_code: int = 0

    @property
    def failed(self) -> bool:
        return not 200 <= self.status_code < 300


class HookSender:
    """Sends deliveries with bounded concurrency and remembers how the last ones went."""

    def __init__(self, clock: Clock, faults: Faults, concurrency: int = 32) -> None:
        self.clock = clock
        self.faults = faults
        self.deliveries: deque[Delivery] = deque(maxlen=REMEMBERED)
        self._concurrency = concurrency
        self._ids = itertools.count(40_000_000_001)
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._held = 0

    def start(self) -> None:
        for _ in range(self._concurrency):
            self._spawn(self._work())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Returns when everything that was to be sent was sent."""
        while self._held or self._queue.qsize():
            await self._queue.join()
            await asyncio.sleep(0.005)
        await self._queue.join()

    def send(self, hook: Hook, payload: dict[str, Any]) -> None:
        """Queues a new delivery of a `workflow_job` payload."""
        delivery = Delivery(
            id=next(self._ids),
            guid=str(uuid.UUID(int=self.faults.random.getrandbits(128), version=4)),
            hook=hook,
            action=payload["action"],
            repository_id=payload["repository"]["id"],
            installation_id=payload["installation"]["id"],
            body=msgspec.json.encode(payload),
        )
        chances = self.faults.webhooks
        if self.faults.chance(chances.lose):
            self._record(delivery, 0)
            return
        self._put(delivery)
        if self.faults.chance(chances.double):
            self._put(replace(delivery, id=next(self._ids)))

    def redeliver(self, delivery_id: int, app_id: str) -> bool:
        """Sends a failed delivery of that App once more, with the same GUID."""
        for old in self.deliveries:
            if old.id == delivery_id and old.hook.app_id == app_id and old.failed:
                again = replace(old, id=next(self._ids), redelivery=True)
                self._queue.put_nowait(again)
                return True
        return False

    def _put(self, delivery: Delivery) -> None:
        delay_ms = int(self.faults.random.random() * self.faults.webhooks.delay_ms)
        if delay_ms:
            self._held += 1
            self._spawn(self._later(delivery, delay_ms))
        else:
            self._queue.put_nowait(delivery)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _later(self, delivery: Delivery, delay_ms: int) -> None:
        try:
            await self.clock.sleep(delay_ms)
            self._queue.put_nowait(delivery)
        finally:
            self._held -= 1

    async def _work(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                delivery = await self._queue.get()
                try:
                    self._record(delivery, await self._post(session, delivery))
                finally:
                    self._queue.task_done()

    async def _post(self, session: aiohttp.ClientSession, delivery: Delivery) -> int:
        digest = hmac.new(delivery.hook.secret, delivery.body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/0000000",
            "X-GitHub-Delivery": delivery.guid,
            "X-GitHub-Event": "workflow_job",
            "X-GitHub-Hook-ID": "1",
            "X-GitHub-Hook-Installation-Target-ID": delivery.hook.app_id,
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature-256": f"sha256={digest}",
        }
        try:
            async with session.post(delivery.hook.url, data=delivery.body, headers=headers) as response:
                await response.read()
                return response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("webhook %s was not delivered: %s", delivery.guid, type(error).__name__)
            return 0

    def _record(self, delivery: Delivery, status_code: int) -> None:
        delivery.at_ms, delivery.status_code = self.clock.now_ms(), status_code
        if not delivery.failed:
            delivery.body = b""
        self.deliveries.append(delivery)
