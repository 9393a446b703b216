"""The receiver and the machines' API as an HTTP server on a real Valkey."""

from __future__ import annotations

import hmac
import io
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer

from autoscaler.clock import Clock
from autoscaler.http import runner_api, webhook
from autoscaler.secrets_file import SecretsFile
from autoscaler.store.store import Store
from scheduling.messages import Event
from tests.valkey import Valkey, running

PAYLOADS = Path(__file__).parents[1] / "data" / "payloads"
FLEET, FLEET_KEY = "test", b"a fleet key of at least 32 bytes"
SECRET = b"webhook secret"


def payload(name: str = "workflow_job.queued") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return document


def signature(body: bytes, secret: bytes = SECRET) -> str:
    return "sha256=" + hmac.digest(secret, body, "sha256").hex()


class Site:
    """What tests talk to."""

    def __init__(self, client: TestClient[web.Request, web.Application], store: Store, secret_file: Path) -> None:
        self.client = client
        self.store = store
        self.secret_file = secret_file
        self.receiver: webhook.Receiver
        self.answers: list[str]
        self.runner_api: runner_api.RunnerApi

    async def deliver(
        self, body: bytes | dict[str, Any], event: str | None = "workflow_job", **headers: str | None
    ) -> ClientResponse:
        """POST one delivery as GitHub does; a header given as None is left out."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
            "X-Hub-Signature-256": signature(raw),
        }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        present = {name: value for name, value in sent.items() if value is not None}
        return await self.client.post(webhook.PATH, data=io.BytesIO(raw), headers=present)

    async def events(self) -> list[Event]:
        return [entry.event for entry in await self.store.read("0-0", 10_000, 0)]  # type: ignore[misc]


def is_ours(labels: tuple[str, ...], repository: str) -> bool:
    """As a policy with `ignore_labels: ["macos-*"]`: everything else is ours, no labels included."""
    return not any(label.startswith("macos-") for label in labels)


@pytest.fixture(scope="session")
def shared() -> Iterator[Valkey]:
    with running() as server:
        yield server


@pytest.fixture
def server(shared: Valkey) -> Iterator[Valkey]:
    """The Valkey behind it, empty. It may be stopped (SIGSTOP), not killed."""
    shared.empty()
    yield shared
    os.kill(shared.pid, signal.SIGCONT)


@pytest.fixture
async def store(server: Valkey) -> AsyncIterator[Store]:
    store = Store(server.url, FLEET, FLEET_KEY)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def site(store: Store, tmp_path: Path) -> AsyncIterator[Site]:
    secret_file = tmp_path / "secret"
    secret_file.write_bytes(SECRET + b"\n")
    answers: list[str] = []
    receiver = webhook.Receiver(
        store.append, SecretsFile(secret_file), is_ours, Clock(), lambda outcome, _: answers.append(outcome)
    )
    machines = runner_api.RunnerApi(store, FLEET_KEY, Clock())
    application = web.Application()
    application.add_routes([*webhook.routes(receiver), *runner_api.routes(machines)])
    # The test server cancels a handler when its client leaves: the harsher of aiohttp's two ways.
    async with TestClient(TestServer(application)) as client:
        site = Site(client, store, secret_file)
        site.receiver, site.answers, site.runner_api = receiver, answers, machines
        yield site
