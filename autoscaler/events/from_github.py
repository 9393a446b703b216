"""`record from-github`: an event file made of a repository's history, over REST, within the budget, resumable.

GitHub keeps runs and jobs long after it sent their webhooks; each job becomes the deliveries that it must have
had. Runs are listed in windows of time, because a filtered list ends after 1,000 (docs.github.com/en/rest/actions/
workflow-runs). What was fetched lies in `OUT.part` and `OUT.done` until the file is whole; the same command goes
on from there.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from githubkit.exception import GitHubException, RequestFailed

from autoscaler.cli.terminal import span
from autoscaler.clock import Clock
from autoscaler.events.jobs import deliveries
from autoscaler.github.connection import API_VERSION, Connection
from autoscaler.github.wire import JobShape, RunShape
from scheduling.model import DurationMs, UnixMs

GITHUB_URL = "https://api.github.com"
PAGE = 100
LISTED_MAX = 1_000
SMALLEST_MS: DurationMs = 60_000
KEPT_SHARE = 0.1
"""Of the budget, which is left to others that use the same token."""
NEEDS_TOKEN = (
    "a private one needs a token that may read its Actions, in a file that AUTOSCALER_GITHUB_TOKEN_FILE names"
)
Shape = TypeVar("Shape")
Say = Callable[[str], None]


class _Run(RunShape):
    created_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)


class _Runs(msgspec.Struct):
    total_count: int
    workflow_runs: list[_Run]


class _Jobs(msgspec.Struct):
    total_count: int
    jobs: list[JobShape]


class CannotRecord(Exception):
    """GitHub does not let us; the text says why and what to do."""


@dataclass(slots=True)
class History:
    """Reads one repository. `token` empty: what is public, 60 requests an hour."""

    repository: str
    token: str
    clock: Clock
    connection: Connection
    say: Say
    _answered: Any = None
    """Headers of the last answer."""

    def __repr__(self) -> str:
        return f"History({self.repository!r})"

    async def runs(self, since_ms: UnixMs, until_ms: UnixMs) -> AsyncIterator[_Run]:
        """All runs created from `since_ms` to `until_ms` (exclusive), window by window."""
        windows = [(since_ms, until_ms)]
        while windows:
            start, end = windows.pop()
            params: dict[str, str | int] = {
                "created": f"{_second(start)}..{_second(end - 1)}", "per_page": PAGE, "page": 1,
            }  # fmt: skip
            page = await self._get("actions/runs", _Runs, params)
            if page.total_count > LISTED_MAX and end - start > SMALLEST_MS:
                middle = start + (end - start) // 2
                windows += [(middle, end), (start, middle)]
                continue
            while page.workflow_runs:
                for run in page.workflow_runs:
                    if start <= _ms(run.created_at) < end:
                        yield run
                if len(page.workflow_runs) < PAGE:
                    break
                params["page"] = int(params["page"]) + 1
                page = await self._get("actions/runs", _Runs, params)

    async def jobs(self, run_id: int) -> list[JobShape]:
        """The jobs of all attempts of a run."""
        found: list[JobShape] = []
        for number in range(1, 100):
            params: dict[str, str | int] = {"filter": "all", "per_page": PAGE, "page": number}
            page = await self._get(f"actions/runs/{run_id}/jobs", _Jobs, params)
            found += page.jobs
            if len(page.jobs) < PAGE:
                break
        return found

    async def _get(self, path: str, shape: type[Shape], params: dict[str, str | int]) -> Shape:
        """One answer, when the budget allows it. Raises `CannotRecord`."""
        headers = {"X-GitHub-Api-Version": API_VERSION}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        await self._pace()
        while True:
            try:
                answer = await self.connection.arequest(
                    "GET", f"/repos/{self.repository}/{path}", params=params, headers=headers
                )
            except RequestFailed as error:
                answer = error.response
            except GitHubException as error:
                problem = f"GitHub does not answer ({type(error).__name__}); the same command goes on from here"
                raise CannotRecord(problem) from None
            if answer.status_code == 200:
                self._answered = answer.headers
                try:
                    return msgspec.json.decode(answer.content, type=shape)
                except msgspec.DecodeError as error:
                    raise CannotRecord(f"GitHub's answer to {path} is not as documented: {error}") from None
            await self._wait_or_give_up(answer.status_code, answer.headers)

    async def _pace(self) -> None:
        """Wait for the next hour before the budget of a token is used up."""
        headers = self._answered or {}
        left, limit = headers.get("x-ratelimit-remaining"), headers.get("x-ratelimit-limit")
        if left is None or limit is None or int(left) > int(limit) * (KEPT_SHARE if self.token else 0):
            return
        await self._until_reset(headers)
        self._answered = None

    async def _until_reset(self, headers: Any) -> None:
        now_ms = self.connection.server_ms()
        reset_ms = int(headers.get("x-ratelimit-reset", 0)) * 1000
        pause_ms = max(int(headers.get("retry-after", 0)) * 1000, reset_ms - now_ms, 0) + 1_000
        more = "" if self.token else "; with a token GitHub allows 5,000 an hour"
        limit = headers.get("x-ratelimit-limit", "what it allows")
        self.say(
            f"GitHub's budget of requests is used up ({limit} an hour{more}): going on in "
            f"{span(pause_ms / 1000)}, or stop, and run the same command later"
        )
        await self.clock.sleep(pause_ms)

    async def _wait_or_give_up(self, status: int, headers: Any) -> None:
        limited = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers
        if status in (403, 429) and limited:
            await self._until_reset(headers)
            return
        if status == 401:
            raise CannotRecord(
                "GitHub refuses the token (401): the file that AUTOSCALER_GITHUB_TOKEN_FILE names has it"
            )
        if status in (403, 404):
            hint = "the token must be allowed to read its Actions" if self.token else NEEDS_TOKEN
            raise CannotRecord(
                f"GitHub shows no runs of {self.repository} ({status}). Is that its name? If so, {hint}"
            )
        raise CannotRecord(f"GitHub answers {status}; the same command goes on from here later")


async def record(
    repository: str,
    since_ms: UnixMs,
    until_ms: UnixMs,
    out: Path,
    token: str = "",
    url: str = GITHUB_URL,
    clock: Clock | None = None,
    say: Say = lambda line: None,
) -> int:
    """Write the event file; how many deliveries. Raises `CannotRecord` and OSError, and can be repeated then."""
    clock = clock or Clock()
    connection = Connection(url, clock)
    try:
        history = History(repository, token, clock, connection, say)
        with Unfinished(out, repository, since_ms, until_ms) as unfinished:
            count = 0
            async for run in history.runs(unfinished.since_ms, unfinished.until_ms):
                count += 1
                if run.id not in unfinished.done:
                    jobs = await history.jobs(run.id)
                    unfinished.add(
                        run.id, [line for job in jobs for line in deliveries(repository, job, run.facts())]
                    )
                if not count % 50:
                    say(f"{count} runs, back to {run.created_at:%Y-%m-%d %H:%M}")
            return unfinished.finish()
    finally:
        await connection.close()


class Unfinished:
    """What was fetched so far: lines in `OUT.part`, the period and the runs that are whole in `OUT.done`."""

    def __init__(self, out: Path, repository: str, since_ms: UnixMs, until_ms: UnixMs) -> None:
        self._out = out
        self._part, self._marks = (out.with_name(out.name + ending) for ending in (".part", ".done"))
        self.done: set[int] = set()
        self.since_ms, self.until_ms = since_ms, until_ms
        if self._marks.exists():
            first, *ids = self._marks.read_text(encoding="utf-8").splitlines()
            asked, since, until = first.split(" ")
            if asked != repository:
                raise CannotRecord(f"{self._marks} is of {asked}: remove it, or write to another file")
            self.since_ms, self.until_ms = int(since), int(until)
            self.done = {int(line) for line in ids if line.isdecimal()}
        else:
            self._part.unlink(missing_ok=True)
            self._marks.write_text(f"{repository} {since_ms} {until_ms}\n", encoding="utf-8")

    def __enter__(self) -> Unfinished:
        self._lines, self._ids = self._part.open("ab"), self._marks.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._ids.close()

    def add(self, run_id: int, lines: list[bytes]) -> None:
        """A whole run. Cut short in here, it is fetched again; its deliveries then count once all the same."""
        self._lines.write(b"".join(line + b"\n" for line in lines))
        self._lines.flush()
        self._ids.write(f"{run_id}\n")
        self._ids.flush()
        self.done.add(run_id)

    def finish(self) -> int:
        """Everything in the order of time, each delivery once, in the file itself."""
        self._lines.close()
        whole = [line for line in self._part.read_bytes().splitlines() if line.endswith(b"}")]
        lines = sorted(dict.fromkeys(whole))  # a line begins with its time
        temporary = self._out.with_name(self._out.name + ".new")
        packed = self._out.suffix == ".gz"
        with gzip.open(temporary, "wb") if packed else temporary.open("wb") as file:
            for line in lines:
                file.write(line + b"\n")
        temporary.replace(self._out)
        self._part.unlink()
        self._marks.unlink()
        return len(lines)


def run(
    repository: str, since_ms: UnixMs, until_ms: UnixMs, out: Path, token: str, url: str, as_json: bool = False
) -> int:
    """`record from-github`: 0, or 1 with the reason on stderr."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        count = asyncio.run(record(repository, since_ms, until_ms, out, token, url, say=say))
    except CannotRecord as error:
        say(f"autoscaler: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        raise
    except OSError as error:
        say(f"autoscaler: {error.filename}: {error.strerror}")
        return 1
    say(f"{count:,} deliveries written to {out}")
    if as_json:
        print(json.dumps({"repository": repository, "deliveries": count, "out": str(out)}))
    return 0


def _ms(at: datetime) -> UnixMs:
    return int(at.timestamp() * 1000)


def _second(at_ms: UnixMs) -> str:
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
