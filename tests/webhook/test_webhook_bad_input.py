"""Bad input: a clear answer in the stated order, nothing stored, nothing held for long."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.http import webhook
from autoscaler.http.body import BodyReader
from scheduling.messages import JobReported

from .conftest import Site, payload, signature
from .test_webhook import raw_request

MALFORMED: dict[str, Any] = {
    "truncated": json.dumps(payload()).encode()[:-100],
    "empty": b"",
    "no object": b"[1, 2]",
    "null": b"null",
    "not UTF-8": b'{"action": "\xff\xfe"}',
    "lone surrogate": b'{"action": "\\ud800"}',
    "deep": b"[" * 100_000,
    "deep inside": b'{"action": "queued", "workflow_job": ' + b'{"a":' * 100_000,
    "id is a text": payload() | {"workflow_job": payload()["workflow_job"] | {"id": "1"}},
    "id is missing": payload() | {"workflow_job": {"run_id": 1}},
    "labels hold a number": payload() | {"workflow_job": payload()["workflow_job"] | {"labels": [1]}},
    "labels are a text": payload() | {"workflow_job": payload()["workflow_job"] | {"labels": "linux"}},
    "job is missing": {"action": "queued", "repository": {"full_name": "o/r"}},
    "job is a list": payload() | {"workflow_job": []},
    "repository is missing": {"action": "queued", "workflow_job": payload()["workflow_job"]},
    "action is missing": {"workflow_job": payload()["workflow_job"]},
    "action is a number": payload() | {"action": 1},
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_malformed_json_is_400_and_says_where(site: Site, case: str) -> None:
    response = await site.deliver(MALFORMED[case])
    assert response.status == 400
    assert (await response.json())["error"].startswith("not a workflow_job delivery: ")
    assert await site.events() == []


async def test_a_form_encoded_delivery_names_the_setting_to_change(site: Site) -> None:
    response = await site.client.post(webhook.PATH, data={"payload": json.dumps(payload())})
    assert response.status == 400
    assert "content type to application/json" in (await response.json())["error"]


async def test_a_missing_event_header_is_400(site: Site) -> None:
    response = await site.deliver(payload(), event=None)
    assert response.status == 400
    assert "X-GitHub-Event" in (await response.json())["error"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_26_megabytes_is_413(site: Site, chunked: bool) -> None:
    size, piece = 26 * 1024 * 1024, b"x" * 65536

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    response = await site.client.post(webhook.PATH, data=pieces() if chunked else io.BytesIO(b"x" * size))
    assert response.status == 413
    assert str(webhook.BODY_MAX) in (await response.json())["error"]
    assert await site.events() == []
    assert (await site.deliver(payload())).status == 202


async def test_a_large_body_within_the_limit_is_taken(site: Site) -> None:
    response = await site.deliver(payload() | {"padding": "x" * (24 * 1024 * 1024)})
    assert response.status == 202


async def test_the_checks_come_in_the_stated_order(site: Site) -> None:
    """Each request has every later fault as well."""
    form, bad = "application/x-www-form-urlencoded", "sha256=" + "0" * 64
    oversize = await site.deliver(
        b"{" + b"x" * webhook.BODY_MAX, event=None, Content_Type=form, X_Hub_Signature_256=bad
    )
    formed = await site.deliver(b"{", event=None, Content_Type=form, X_Hub_Signature_256=bad)
    forged = await site.deliver(b"{", event=None, X_Hub_Signature_256=bad)
    other = await site.deliver(b"{", event="ping")
    broken = await site.deliver(b"{")
    assert [r.status for r in (oversize, formed, forged, other, broken)] == [413, 400, 401, 202, 400]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_405(site: Site, method: str) -> None:
    response = await site.client.request(method, webhook.PATH)
    assert response.status == 405
    assert response.headers["Allow"] == "POST"


async def test_a_header_may_hold_any_bytes(site: Site) -> None:
    body = json.dumps(payload()).encode()
    head = raw_request(body).replace(b"Host: x", b"Host: x\r\nX-GitHub-Delivery: \xff\xfe\xed\xa0\x80")
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.port)
    writer.write(head)
    assert b" 202 " in await reader.readline()
    writer.close()
    [event] = await site.events()
    assert event.delivery  # type: ignore[union-attr]


async def test_a_trickled_body_is_cut_off(site: Site) -> None:
    site.receiver._bodies = BodyReader(webhook.BODY_MAX, 0.2, webhook.HELD_MAX)
    body = json.dumps(payload()).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.port)
    writer.write(raw_request(body[:1], length=len(body)))
    async with asyncio.timeout(5):
        answer = await reader.readline()
    assert b" 408 " in answer
    writer.close()


async def test_a_body_that_is_cut_off_is_no_delivery(site: Site) -> None:
    body = json.dumps(payload()).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", site.client.port)
    writer.write(raw_request(body[:100], length=len(body)))
    await writer.drain()
    writer.close()
    assert (await site.deliver(payload())).status == 202
    assert len(await site.events()) == 1


async def test_strangers_cannot_fill_the_memory(site: Site) -> None:
    site.receiver._bodies = BodyReader(1_000_000, 5, held_max=1_500_000)
    body = b"x" * 900_000
    half = raw_request(body[:-1], length=len(body))
    _, holding = await asyncio.open_connection("127.0.0.1", site.client.port)
    holding.write(half)
    await holding.drain()
    async with asyncio.timeout(5):
        while site.receiver._bodies._held < 899_999:  # noqa: ASYNC110  the server reads
            await asyncio.sleep(0.01)
        response = await site.deliver(body, X_Hub_Signature_256=signature(body))
    assert response.status == 503
    assert (await site.deliver(payload())).status == 202
    holding.close()


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "1969-12-31T00:00:00Z"]
)
async def test_a_time_at_an_end_of_the_calendar_is_no_time(site: Site, time: str) -> None:
    """Printing it would fail, on every page that shows the job."""
    sent = payload()
    sent["workflow_job"] |= {"created_at": time, "started_at": time, "completed_at": time}
    assert (await site.deliver(sent)).status == 202
    [event] = await site.events()
    assert isinstance(event, JobReported)
    assert (event.created_ms, event.started_ms, event.completed_ms) == (0, 0, 0)
