"""`replay` against a receiver of any make, and the file of recorded deliveries that it reads."""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler.cli.main import main
from autoscaler.events import file as event_file
from autoscaler.events.file import EventFile

SECRET = b"its-a-secret"


def line(second: float, number: int, **more: Any) -> str:
    payload = {"action": "queued", "workflow_job": {"id": number}, "repository": {"full_name": "o/r"}}
    at = f"2026-11-30T12:00:{second:06.3f}Z"
    return json.dumps({"at": at, "event": "workflow_job", "delivery": f"d{number}", "payload": payload} | more)


class Receiver:
    """A receiver that checks signatures like GitHub's documentation says. `answers`: delivery -> status."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []
        self.answers: dict[str, int] = {}
        self.url = ""

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        signature = "sha256=" + hmac.new(SECRET, body, "sha256").hexdigest()
        if (
            request.headers["X-Hub-Signature-256"] != signature
            or request.headers["X-GitHub-Event"] != "workflow_job"
        ):
            return web.Response(status=401)
        delivery = request.headers["X-GitHub-Delivery"]
        job = json.loads(body)["workflow_job"]["id"]
        self.seen.append((delivery, asyncio.get_running_loop().time(), job))
        return web.Response(status=self.answers.get(delivery, 202), text="as asked")


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/hook", receiver.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\nthe-old-one\n")
    return path


async def replay(events: Path, url: str, secret: Path, *more: str) -> int:
    return await asyncio.to_thread(main, ["replay", str(events), "--to", url, "--secret-file", str(secret), *more])


async def test_signed_with_the_recorded_spacing(
    tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("\n".join([line(4, 2), line(0, 1), line(8, 3)]))
    async with receiving() as receiver:
        assert await replay(events, receiver.url, secret, "--speed", "20", "--json") == 0
        assert [delivery for delivery, _, _ in receiver.seen] == ["d1", "d2", "d3"]
        assert receiver.seen[2][1] - receiver.seen[0][1] == pytest.approx(0.4, abs=0.15)
    found = json.loads(capsys.readouterr().out)
    assert found["deliveries"] == 3
    assert found["failed"] == 0
    assert found["by_status"] == {"202": 3}
    assert found["latency_seconds"]["max"] < 1


async def test_failures_are_counted_by_status_and_end_with_1(
    tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events.jsonl.gz"
    events.write_bytes(gzip.compress("\n".join(line(0, number) for number in range(100)).encode()))
    async with receiving() as receiver:
        receiver.answers = {"d7": 503, "d8": 503, "d9": 400}
        assert await replay(events, receiver.url, secret, "--speed", "0") == 1
        assert len(receiver.seen) == 100
    out = capsys.readouterr().out
    assert "✘ 100 deliveries" in out
    assert "503" in out
    assert "as asked" in out
    assert "█" in out


async def test_nobody_there(tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(line(0, 1))
    assert await replay(events, "http://127.0.0.1:9/", secret, "--json") == 1
    assert json.loads(capsys.readouterr().out)["by_status"] == {"no connection": 1}


async def test_missing_files_are_named(tmp_path: Path, secret: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await replay(tmp_path / "nope", "http://127.0.0.1:9/", secret) == 1
    assert "nope cannot be read (No such file or directory)" in capsys.readouterr().err
    assert await replay(secret, "http://127.0.0.1:9/", tmp_path / "none") == 1
    assert "none cannot be read" in capsys.readouterr().err


# ---- the file ----------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[list[int], list[str]]:
    with EventFile(path) as events:
        jobs = [json.loads(event.payload)["workflow_job"]["id"] for event in events]
        assert len(jobs) == len(events)
        return jobs, events.warnings


def test_broken_lines_are_warnings_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    no_time = '{"at": "noon", "event": "x", "payload": {}}'
    lines = [line(3, 1), "not json", "", "[]", no_time, line(1, 2), line(2, 1), line(2, 3)]
    path.write_text("\n".join(lines) + "\n" + line(9, 4)[:40])
    jobs, warnings = read(path)
    assert jobs == [2, 3, 1]
    assert [int(warning.removeprefix(f"{path}:").partition(":")[0]) for warning in warnings] == [2, 4, 5, 7, 9]
    assert "repeats delivery d1" in warnings[3]


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "LINE_MAX", 2000)
    monkeypatch.setattr(event_file, "_CHUNK", 512)
    path = tmp_path / "events.jsonl"
    long = line(2, 2, padding="x" * 5000)
    path.write_text("\n".join([line(1, 1), long, line(3, 3), long]))
    jobs, warnings = read(path)
    assert jobs == [1, 3]
    assert [warning.removeprefix(f"{path}:").partition(":")[0] for warning in warnings] == ["2", "4"]


def test_a_truncated_gzip_is_used_up_to_the_break(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    whole = gzip.compress("\n".join(line(number % 60, number) for number in range(500)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    jobs, warnings = read(path)
    assert 100 < len(jobs) < 400
    assert "the gzip breaks off" in warnings[0]


def test_optional_fields_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(
        '{"at": "2026-11-30T12:00:00Z", "event": "ping", "payload": {}}\n'
        '{"at": "2026-11-30", "event": "workflow_job", "payload": {"a": 1}, "run": {"event": "push"}}\n'
    )
    with EventFile(path) as events:
        first, second = events
    assert (first.payload, first.run) == (b'{"a": 1}', b'{"event": "push"}')
    assert (second.event, second.delivery) == ("ping", "")
