"""GitHub's webhooks: signed deliveries to the real receiver, lost, doubled, late and forged ones among them."""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from autoscaler.sandbox.github_payloads import instant
from autoscaler.sandbox.github_records import Job
from tests.simulation.loop import WORLD
from tests.simulation.request import Request
from tests.simulation.weather import Weather
from tests.simulation.wire import Wire

Post = Callable[[Request], Awaitable[int]]
"""Brings a request to some replica; its status, 0 when nobody answered."""


class Hooks:
    """Sends `workflow_job` deliveries. One that was not answered with 2xx is kept until somebody redelivers it."""

    def __init__(self, wire: Wire, weather: Weather, secret: bytes, post: Post) -> None:
        self._wire, self._weather, self._secret, self._post = wire, weather, secret, post
        self.failed: deque[tuple[str, bytes]] = deque()
        self._sent = 0

    def on_job(self, action: str, job: Job) -> None:
        """`GitHubState.on_job`."""
        body = msgspec.json.encode(_payload(action, job))
        strikes, dice = self._weather.strikes, self._weather.dice
        self._sent += 1
        guid = f"guid-{self._sent}"
        if strikes("webhook_lost"):
            self.failed.append((guid, body))
            return
        for _ in range(2 if strikes("webhook_doubled") else 1):
            late_s = dice.uniform(5, 120) if strikes("webhook_late") else 0.05 + 0.5 * dice.random()
            self._later(late_s, guid, body)
        if strikes("webhook_forged"):
            self._later(0.1, f"forged-{self._sent}", body, signature="sha256=" + "0" * 64)
        if strikes("webhook_malformed"):
            self._later(0.1, f"malformed-{self._sent}", body[: len(body) // 2])
        if strikes("webhook_oversize"):
            self._later(0.1, f"oversize-{self._sent}", body, length=26 * 1024 * 1024)
        if strikes("webhook_other"):
            self._later(0.1, f"other-{self._sent}", body, event="check_run")

    def redeliver(self) -> int:
        """Send every failed delivery once more."""
        failed, self.failed = list(self.failed), deque()
        for guid, body in failed:
            self._later(0.1, guid, body)
        return len(failed)

    def _later(self, delay_s: float, guid: str, body: bytes, **changes: Any) -> None:
        self._wire.loop.call_later(delay_s, self._send, guid, body, changes, context=WORLD)

    def _send(self, guid: str, body: bytes, changes: dict[str, Any]) -> None:
        self._wire.loop.create_task(self._deliver(guid, body, **changes))

    async def _deliver(
        self, guid: str, body: bytes, signature: str = "", event: str = "workflow_job", length: int = 0
    ) -> None:
        signed = signature or f"sha256={hmac.new(self._secret, body, hashlib.sha256).hexdigest()}"
        headers = {"X-GitHub-Delivery": guid, "X-GitHub-Event": event, "X-Hub-Signature-256": signed}
        status = await self._post(Request(body, headers, length=length))
        if not 200 <= status < 300 and guid.startswith("guid"):
            self.failed.append((guid, body))


def _payload(action: str, job: Job) -> dict[str, Any]:
    waiting = job.state == "queued"
    return {
        "action": action,
        "workflow_job": {
            "id": job.id,
            "run_id": job.run_id,
            "run_attempt": job.attempt,
            "status": job.state,
            "conclusion": job.conclusion or None,
            "labels": job.labels,
            "name": job.name,
            "workflow_name": "CI",
            "head_branch": "main",
            "runner_name": None if waiting else job.runner_name,
            "created_at": instant(job.queued_ms),
            "started_at": instant(job.started_ms or job.queued_ms),
            "completed_at": instant(job.completed_ms),
        },
        "repository": {"full_name": job.repository},
    }
