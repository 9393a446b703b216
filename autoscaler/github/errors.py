"""What can come of asking GitHub: errors named for what the caller does next, without any secret in their text."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec
from githubkit.response import Response

from scheduling.messages import Trouble
from scheduling.model import DurationMs, UnixMs

DEFAULT_RETRY_MS: DurationMs = 60_000  # GitHub's advice for a limit that names no time
MESSAGE_LENGTH = 300

_SECRET = re.compile(r"\b(gh[a-z]_|github_pat_|eyJ)[\w.~+/=-]{6,}")
_PERMISSIONS = {
    "repos": "repository permission 'Administration: write' for runners, 'Actions: read' for runs and jobs",
    "orgs": "organisation permission 'Self-hosted runners: write'",
}


class GitHubError(Exception):
    """`trouble` says what to do next, `detail` tells a person; `retry_after_ms` 0: the caller's own back-off."""

    final: ClassVar[bool] = False  # it speaks of the request itself: no other App would get another answer

    def __init__(self, trouble: Trouble, detail: str, retry_after_ms: DurationMs = 0) -> None:
        super().__init__(detail)
        self.trouble, self.detail, self.retry_after_ms = trouble, detail, retry_after_ms


class NameTaken(GitHubError):
    """409: a registration of that name exists, perhaps by an earlier call whose answer was lost."""

    final = True


class RunnerBusy(GitHubError):
    """422 to a DELETE: a job runs on it."""

    final = True


class JitUnknown(GitHubError):
    """The POST was sent and not answered: there may be a registration, whose config nobody has."""

    final = True


class BadRequest(GitHubError):
    """What we asked for makes no sense to GitHub (422 and the like); `detail` has its words."""

    final = True


class RateLimited(GitHubError):
    """A primary or secondary limit; `secondary` ones show in no header."""

    def __init__(self, detail: str, retry_after_ms: DurationMs, secondary: bool = False) -> None:
        super().__init__(Trouble.TRANSIENT, detail, retry_after_ms)
        self.secondary = secondary


class NotFound(GitHubError):
    """404: it does not exist, or this App may not see it."""


def scrub(text: str) -> str:
    """The text without anything that looks like a token, a JWT or a JIT config."""
    return _SECRET.sub("***", text)


def transient(detail: str, retry_after_ms: DurationMs = 0) -> GitHubError:
    return GitHubError(Trouble.TRANSIENT, detail, retry_after_ms)


def refused(response: Response[Any], app: str, server_ms: UnixMs) -> GitHubError:
    """The error that a 4xx or 5xx answer stands for.

    `server_ms`: GitHub's time now, which its reset times are meant in. Source: "Rate limits for the REST API",
    sections "Exceeding the rate limit" and "About secondary rate limits": 403 or 429, with or without retry-after.
    """
    request, status = response.raw_request, response.status_code
    said = message_of(response)
    what = f"GitHub answered {status} to {request.method} {request.url.path} for App {app}: {scrub(said)}"
    if status in (403, 429):
        if limit := _limit(response, status, said, what, server_ms):
            return limit
        return GitHubError(Trouble.UNAUTHORIZED, f"{what}. {_needs(response)}", DEFAULT_RETRY_MS)
    if status == 401:
        return GitHubError(Trouble.UNAUTHORIZED, f"{what}. Check the App's private key.", DEFAULT_RETRY_MS)
    if status == 404:
        return NotFound(Trouble.REFUSED, f"{what}. {_needs(response)}")
    if status == 409:
        return NameTaken(Trouble.TRANSIENT, what)
    if status == 422 and request.method == "DELETE":
        return RunnerBusy(Trouble.TRANSIENT, what)
    if status >= 500 or status == 408:
        return transient(what, retry_after(response, server_ms))
    return BadRequest(Trouble.REFUSED, what)


def message_of(response: Response[Any]) -> str:
    """GitHub's own words, `message` and `errors` of the body; empty when there are none."""
    try:
        body = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return ""
    if not isinstance(body, dict):
        return ""
    words = [str(body.get("message", ""))] + [str(error) for error in body.get("errors") or []]
    return "; ".join(words)[:MESSAGE_LENGTH]


def retry_after(response: Response[Any], server_ms: UnixMs) -> DurationMs:
    """When the answer says to come back: `retry-after` in seconds, else the reset of a used-up budget."""
    headers = response.headers
    if (seconds := headers.get("retry-after", "")).isdecimal():
        return int(seconds) * 1000
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(1000, int(reset) * 1000 - server_ms + 1000)
    return 0


def _limit(response: Response[Any], status: int, said: str, what: str, server_ms: UnixMs) -> RateLimited | None:
    words = said.casefold()
    secondary = "secondary rate" in words or "abuse detection" in words
    used_up = response.headers.get("x-ratelimit-remaining") == "0"
    named = "retry-after" in response.headers
    if not (secondary or used_up or named or status == 429 or "rate limit" in words):
        return None
    wait = retry_after(response, server_ms) or DEFAULT_RETRY_MS
    return RateLimited(what, wait, secondary=secondary or not used_up)


def _needs(response: Response[Any]) -> str:
    """Which permission to grant: GitHub's own header says it, else what the path needs."""
    if accepted := response.headers.get("x-accepted-github-permissions"):
        return f"The App needs: {accepted}"
    path = response.raw_request.url.path
    kind = next((kind for kind in _PERMISSIONS if f"/{kind}/" in path), "")
    if not kind:
        return "Check that the App exists and is installed."
    return f"Check that the App is installed there and has {_PERMISSIONS[kind]}."
