"""What GitHub is answered, and what is in the inbox afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from autoscaler.clock import Clock
from autoscaler.http import webhook
from autoscaler.secrets_file import SecretsFile
from autoscaler.store import link as redis_link
from autoscaler.store.store import Store, StoreAway
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported, Stage, StageReported
from tests.valkey import Valkey

from .conftest import FLEET, FLEET_KEY, PAYLOADS, SECRET, Site, is_ours, payload, signature


async def reported(site: Site) -> JobReported:
    [event] = await site.events()
    assert isinstance(event, JobReported)
    return event


async def test_a_queued_job_is_stored_with_the_fields_we_use(site: Site) -> None:
    before = Clock().now_ms()
    response = await site.deliver(payload())
    assert response.status == 202
    assert await response.json() == {"stored": True}
    event = await reported(site)
    assert before <= event.at_ms <= Clock().now_ms()
    assert event == JobReported(
        at_ms=event.at_ms,
        state=JobState.QUEUED,
        job_id=289782451,
        run_id=2202229078,
        run_attempt=1,
        repository="Codertocat/Hello-World",
        labels=("ubuntu-latest",),
        name="update",
        workflow="CodeQL",
        branch="main",
        runner_name="GitHub Actions 5",
        created_ms=1631499673000,
        started_ms=1631499673000,
        delivery="72d3162e-cc78-11e3-81ab-4c9367dc0958",
    )


@pytest.mark.parametrize("path", sorted(PAYLOADS.glob("*.json")), ids=lambda path: path.stem)
async def test_every_published_payload_is_answered_202(site: Site, path: Path) -> None:
    name, action = path.stem.split(".")[:2]
    response = await site.deliver(payload(path.stem), event=name)
    assert response.status == 202
    if name == "workflow_job":
        assert await response.json() == {"stored": True}
        assert (await reported(site)).state is JobState(action)
    else:
        assert await response.json() == {"ignored": f"event {name}"}
        assert await site.events() == []


async def test_a_completed_job_says_how_and_when_it_ended(site: Site) -> None:
    await site.deliver(payload("workflow_job.completed.success.with-organization"))
    event = await reported(site)
    assert (event.conclusion, event.runner_name) == ("success", "GitHub Actions 5")
    assert event.completed_ms - event.started_ms == 198_000


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"status": "waiting"}, {"state": JobState.QUEUED}),
        ({"run_attempt": None}, {"run_attempt": 1}),
        ({"run_attempt": 3}, {"run_attempt": 3}),
        ({"created_at": None, "started_at": None}, {"created_ms": 0, "started_ms": 0}),
        ({"created_at": "yesterday"}, {"created_ms": 0}),
        ({"created_at": "2021-09-13T04:21:13.5+02:00"}, {"created_ms": 1631499673500}),
        ({"created_at": "2021-09-13T02:21:13"}, {"created_ms": 1631499673000}),
        ({"labels": []}, {"labels": ()}),
        ({"labels": None}, {"labels": ()}),
        ({"runner_id": None, "runner_name": None}, {"runner_name": ""}),
        ({"runner_id": 0, "runner_name": ""}, {"runner_name": ""}),
        ({"head_branch": None, "workflow_name": None, "name": None}, {"branch": "", "workflow": "", "name": ""}),
        ({"labels": ["Linux", "self-hosted", "Linux"]}, {"labels": ("Linux", "self-hosted", "Linux")}),
        (
            {"name": "$(reboot) `id` ; rm -rf / | \"'\\ \u2028 <b>"},
            {"name": "$(reboot) `id` ; rm -rf / | \"'\\ \u2028 <b>"},
        ),
        ({"labels": ["$(reboot)", "; rm -rf /"]}, {"labels": ("$(reboot)", "; rm -rf /")}),
        ({"name": "x" * 10_000}, {"name": "x" * 256}),
        ({"new_field": {"a": [1, None]}}, {}),
    ],
    ids=lambda value: json.dumps(value, default=str)[:60],
)
async def test_a_payload_is_read_leniently(site: Site, change: dict[str, Any], expected: dict[str, Any]) -> None:
    delivery = payload()
    delivery["workflow_job"] |= change
    response = await site.deliver(delivery)
    assert await response.json() == {"stored": True}
    event = await reported(site)
    assert {name: getattr(event, name) for name in expected} == expected


async def test_missing_keys_are_as_good_as_null(site: Site) -> None:
    await site.deliver(
        {
            "action": "queued",
            "workflow_job": {"id": 1, "run_id": 2, "labels": ["linux"]},
            "repository": {"full_name": "o/r"},
        }
    )
    event = await reported(site)
    assert (event.job_id, event.run_id, event.run_attempt, event.labels) == (1, 2, 1, ("linux",))


@pytest.mark.parametrize("action", ["rerequested", "", "Queued"])
async def test_an_unknown_action_is_ignored(site: Site, action: str) -> None:
    response = await site.deliver(payload() | {"action": action})
    assert response.status == 202
    assert await response.json() == {"ignored": f"action {action}"}
    assert await site.events() == []


async def test_a_job_that_is_not_ours_is_ignored(site: Site) -> None:
    delivery = payload()
    delivery["workflow_job"]["labels"] = ["macos-latest"]
    response = await site.deliver(delivery)
    assert response.status == 202
    assert "labels" in (await response.json())["ignored"]
    assert await site.events() == []


@pytest.mark.parametrize("label", ["x" * 10_000, "macos-" + "x" * 300])
async def test_a_label_that_no_runner_can_have_is_stored_and_stays_unroutable(site: Site, label: str) -> None:
    delivery = payload()
    delivery["workflow_job"]["labels"] = ["linux", label]
    response = await site.deliver(delivery)
    assert response.status == 202
    assert await response.json() == {"stored": True}
    event = await reported(site)
    assert event.labels[0] == "linux"
    assert event.labels[1].startswith(f"(too long: {len(label)} characters) ")
    assert len(event.labels[1]) < 256


async def test_a_label_of_256_characters_is_a_label(site: Site) -> None:
    delivery = payload()
    delivery["workflow_job"]["labels"] = ["x" * 256]
    await site.deliver(delivery)
    assert (await reported(site)).labels == ("x" * 256,)


async def test_more_labels_than_a_runner_can_have(site: Site) -> None:
    delivery = payload()
    delivery["workflow_job"]["labels"] = [f"label-{number}" for number in range(101)]
    await site.deliver(delivery)
    assert (await reported(site)).labels == ("(too many labels: 101)",)


# ---- signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        "sha1=" + "0" * 40,
        "sha256=" + "0" * 64,
        signature(b"another body"),
        signature(json.dumps(payload()).encode(), b"another secret"),
        signature(json.dumps(payload()).encode()).upper(),
        "sha256=\xe4\xff",
    ],
)
async def test_a_bad_or_missing_signature_is_401(site: Site, header: str | None) -> None:
    response = await site.deliver(payload(), X_Hub_Signature_256=header)
    assert response.status == 401
    assert "X-Hub-Signature-256" in (await response.json())["error"]
    assert await site.events() == []
    assert site.answers == ["refused_401"]


async def test_k19_a_rotated_secret_is_good_while_it_is_in_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscaler.secrets_file.CHECK_SECONDS", 0.0)
    body = json.dumps(payload()).encode()

    async def statuses() -> list[int]:
        return [
            (await site.deliver(body, X_Hub_Signature_256=signature(body, secret))).status
            for secret in (SECRET, b"new secret")
        ]

    assert await statuses() == [202, 401]
    site.secret_file.write_bytes(b"\n  new secret \r\n\n" + SECRET + b"\n")
    assert await statuses() == [202, 202]
    site.secret_file.write_bytes(b"new secret")
    assert await statuses() == [401, 202]


# ---- Redis -------------------------------------------------------------------------------------------------


async def test_redis_away_is_503_and_a_redelivery_is_stored(
    site: Site, server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.1)
    os.kill(server.pid, signal.SIGSTOP)
    response = await site.deliver(payload())
    os.kill(server.pid, signal.SIGCONT)
    assert response.status == 503
    assert int(response.headers["Retry-After"]) > 0
    assert "error" in await response.json()
    assert (await site.deliver(payload())).status == 202
    assert await site.events() != []


async def test_a_full_inbox_is_503_and_callbacks_still_get_in(site: Site) -> None:
    site.store._inbox_limit = 2
    assert [(await site.deliver(payload())).status for _ in range(3)] == [202, 202, 503]
    await site.store.append([StageReported(1, "r" + "a" * 20, Stage.BOOTED)])
    assert len(await site.events()) == 3


async def test_a_client_that_hangs_up_loses_nothing(site: Site, server: Valkey) -> None:
    """Its handler is cancelled while the server stalls; the event is stored all the same."""
    await site.store.ping()
    body = json.dumps(payload()).encode()
    os.kill(server.pid, signal.SIGSTOP)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.port)
    writer.write(raw_request(body))
    await writer.drain()
    await asyncio.sleep(0.2)
    writer.close()
    await asyncio.sleep(0.2)
    os.kill(server.pid, signal.SIGCONT)
    entries = await site.store.read("0-0", 10, 5)
    assert [type(entry.event) for entry in entries] == [JobReported]
    assert await reader.read() == b""


def raw_request(body: bytes, length: int | None = None) -> bytes:
    return (
        f"POST {webhook.PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"X-GitHub-Event: workflow_job\r\nX-Hub-Signature-256: {signature(body)}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body


async def test_many_at_once_are_each_stored(site: Site) -> None:
    deliveries = []
    for number in range(200):
        delivery = payload()
        delivery["workflow_job"]["id"] = number
        deliveries.append(site.deliver(delivery))
    assert {response.status for response in await asyncio.gather(*deliveries)} == {202}
    stored = [event.job_id for event in await site.events() if isinstance(event, JobReported)]
    assert sorted(stored) == list(range(200))


async def test_redis_away_at_start_is_503_until_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.1)
    secret_file = tmp_path / "secret"
    secret_file.write_bytes(SECRET)
    store = Store(f"unix://{tmp_path}/redis/valkey.sock", FLEET, FLEET_KEY)
    await store.open()
    receiver = webhook.Receiver(store.append, SecretsFile(secret_file), is_ours, Clock())
    application = web.Application()
    application.add_routes(webhook.routes(receiver))
    async with TestClient(TestServer(application)) as client:
        site = Site(client, store, secret_file)
        assert (await site.deliver(payload())).status == 503
        with pytest.raises(StoreAway):
            await store.ping()
        server = Store(f"embedded:{tmp_path}/redis", FLEET, FLEET_KEY)
        await server.open()
        assert (await site.deliver(payload())).status == 202
        assert len(await site.events()) == 1
        await store.close()
        await server.close()
