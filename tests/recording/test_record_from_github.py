"""`record from-github` against GitHub's stand-in over HTTP."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from autoscaler.backtest import recording
from autoscaler.events.from_github import CannotRecord, record

DAY_MS = 86_400_000
UNTIL = 1_772_500_000_000
SINCE = UNTIL - 7 * DAY_MS


class Github:
    """Runs and their jobs, a budget, and failures on demand."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.limit = self.left = 5000
        self.reset_s = 1
        self.fails_after: int | None = None
        self.tokens: set[str] = set()
        self.url = ""

    def add(self, run_id: int, at_ms: int, **more: Any) -> None:
        head = more.pop("head", 1)
        self.runs.append(
            {
                "id": run_id,
                "event": "pull_request",
                "created_at": stamp(at_ms),
                "head_branch": "topic",
                "repository": {"id": 1, "full_name": "octo/app"},
                "head_repository": {"id": head, "full_name": "somebody/app"},
                "jobs": [
                    {
                        "id": run_id * 10,
                        "run_id": run_id,
                        "status": "completed",
                        "conclusion": "success",
                        "labels": ["self-hosted", "linux"],
                        "name": "test",
                        "created_at": stamp(at_ms),
                        "started_at": stamp(at_ms + 60_000),
                        "completed_at": stamp(at_ms + 660_000),
                        "runner_name": "i-1",
                        **more,
                    }
                ],
            }
        )

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/repos/octo/app/actions/runs", self._runs)
        app.router.add_get("/repos/octo/app/actions/runs/{id}/jobs", self._jobs)
        return app

    def _headers(self, request: web.Request) -> dict[str, str]:
        self.asked.append(request.path_qs)
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.fails_after is not None and len(self.asked) > self.fails_after:
            raise web.HTTPBadGateway
        budget = {"x-ratelimit-limit": str(self.limit), "x-ratelimit-reset": str(self.reset_s)}
        if not self.left:
            raise web.HTTPForbidden(headers=budget | {"x-ratelimit-remaining": "0"})
        self.left -= 1
        return budget | {"x-ratelimit-remaining": str(self.left)}

    async def _runs(self, request: web.Request) -> web.Response:
        headers = self._headers(request)
        since, until = request.query["created"].split("..")
        found = [run for run in self.runs if since <= run["created_at"] <= until]
        page = int(request.query["page"]) - 1
        shown = [{k: v for k, v in run.items() if k != "jobs"} for run in found[:1000]][
            100 * page : 100 * page + 100
        ]
        return web.json_response({"total_count": len(found), "workflow_runs": shown}, headers=headers)

    async def _jobs(self, request: web.Request) -> web.Response:
        headers = self._headers(request)
        run = next(run for run in self.runs if run["id"] == int(request.match_info["id"]))
        return web.json_response({"total_count": len(run["jobs"]), "jobs": run["jobs"]}, headers=headers)


def stamp(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


@asynccontextmanager
async def serving(github: Github) -> AsyncIterator[Github]:
    runner = web.AppRunner(github.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    github.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield github
    await runner.cleanup()


@pytest.fixture
async def github() -> AsyncIterator[Github]:
    async with serving(Github()) as found:
        yield found


def lines(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


async def test_a_history_becomes_an_event_file(github: Github, tmp_path: Path) -> None:
    github.add(1, SINCE + 1000)
    github.add(2, SINCE + DAY_MS, head=2)
    github.add(3, SINCE + 2 * DAY_MS, conclusion="skipped")
    github.add(4, SINCE + 3 * DAY_MS, conclusion="cancelled", runner_name="", started_at=None)
    github.add(5, UNTIL + 1000)
    out = tmp_path / "events.jsonl.gz"
    assert await record("octo/app", SINCE, UNTIL, out, "secret", github.url) == 3 + 3 + 2
    found = lines(out)
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert [line["payload"]["action"] for line in found[:3]] == ["queued", "in_progress", "completed"]
    assert found[0]["run"] == {"event": "pull_request", "fork": False, "ref": "refs/heads/topic"}
    assert found[3]["run"] == {"event": "pull_request", "fork": True, "ref": ""}
    assert github.tokens == {"Bearer secret"}
    assert "secret" not in json.dumps(found)
    read = recording.read(out)
    assert (len(read), read.warnings, read.unfinished) == (3, [], 0)
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.done"))  # noqa: ASYNC240


async def test_more_than_a_thousand_runs_are_listed_in_smaller_windows(github: Github, tmp_path: Path) -> None:
    for number in range(1100):
        github.add(number + 1, SINCE + number * 500_000)
    out = tmp_path / "events.jsonl"
    github.left = 10_000
    assert await record("octo/app", SINCE, UNTIL, out, "", github.url) == 3300
    assert github.tokens == {""}


async def test_what_was_cut_short_goes_on_where_it_stopped(github: Github, tmp_path: Path) -> None:
    for number in range(10):
        github.add(number + 1, SINCE + number * 1000)
    out = tmp_path / "events.jsonl"
    github.fails_after = 6
    with pytest.raises(CannotRecord, match="goes on from here"):
        await record("octo/app", SINCE, UNTIL, out, "", github.url)
    assert not out.exists()
    github.fails_after = None
    github.asked.clear()
    assert await record("octo/app", SINCE + DAY_MS, UNTIL + DAY_MS, out, "", github.url) == 30  # the first period
    assert len(github.asked) == 1 + 10 - 5
    with pytest.raises(CannotRecord, match="private one needs a token that may read its Actions"):
        await record("octo/other", SINCE, UNTIL, out, "", github.url)


async def test_it_waits_for_the_budget(github: Github, tmp_path: Path) -> None:
    github.add(1, SINCE)
    github.left = 400
    said: list[str] = []
    out = tmp_path / "events.jsonl"
    assert await record("octo/app", SINCE, UNTIL, out, "secret", github.url, say=said.append) == 3
    (line,) = said
    assert line.startswith("GitHub's budget of requests is used up (5000 an hour): going on in 1 s, or stop, ")
