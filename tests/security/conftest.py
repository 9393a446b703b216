"""A whole replica to attack, on real sockets and real Valkey."""

from __future__ import annotations

import hmac
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio

from tests.daemon.place import Place

PAYLOADS = Path(__file__).parents[1] / "data" / "payloads"


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        found = Place(Path(name))
        await found.open()
        yield found
        await found.close()


def payload() -> dict[str, Any]:
    """A published `queued` delivery."""
    document: dict[str, Any] = json.loads((PAYLOADS / "workflow_job.queued.json").read_text())
    return document


def webhook_secret(place: Place) -> bytes:
    return Path(place.env["AUTOSCALER_WEBHOOK_SECRET_FILE"]).read_bytes().strip()


async def deliver(place: Place, document: object, secret: bytes | None = None) -> tuple[int, str]:
    """POST a signed delivery to the replica, as GitHub does: status and text of the answer."""
    body = json.dumps(document).encode()
    key = secret or webhook_secret(place)
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "workflow_job",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-Hub-Signature-256": "sha256=" + hmac.digest(key, body, "sha256").hex(),
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{place.url}/webhooks/github", data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()
