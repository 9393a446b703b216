"""Logs on stderr: one JSON object a line, or plain lines where a person watches.

Rooms log with `logging.getLogger(__name__)` and put ids into `extra` (`job`, `runner`, `provider`, ...). No secret
is ever logged on purpose; what is registered here, or looks like a credential, is struck out all the same.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

INFO, WARNING = logging.INFO, logging.WARNING
HIDDEN = "[hidden]"
SHORTEST_SECRET = 6
"""Characters; striking out shorter text would make logs unreadable and protect nothing."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LOOKS_SECRET = re.compile(
    r"""(?ix)
    (?<=bearer\ )[\w.~+/=-]{8,}                         # bearer tokens
    | \bgh[a-z]_\w{16,} | \bgithub_pat_\w{16,}          # GitHub's tokens
    | \be[wy][\w+/=-]{30,}(?:\.[\w-]+){0,2}          # JSON in base64: JWTs and JIT configs
    | -----BEGIN[^-]*PRIVATE\ KEY-----.*?(?:-----END[^-]*PRIVATE\ KEY-----|$)
    | (?<=sha256=)[0-9a-f]{64}                          # webhook signatures
    | (?<=://)[^/\s:@]*:[^/\s@]+(?=@)                   # passwords in URLs
    """,
    re.DOTALL,
)


class Redactor:
    """Strikes secrets out of finished lines: those that were registered, and what looks like one."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def hide(self, secrets: Iterable[str | bytes]) -> None:
        """From now on these texts are struck out, line by line and also as JSON writes them."""
        for secret in secrets:
            text = secret if isinstance(secret, str) else secret.decode(errors="replace")
            lines = {text.strip(), *(line.strip() for line in text.splitlines() if "-----" not in line)}
            self._known |= {form for line in lines for form in (line, json.dumps(line)[1:-1])}
        known = sorted((text for text in self._known if len(text) >= SHORTEST_SECRET), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def clean(self, line: str) -> str:
        if self._pattern is not None:
            line = self._pattern.sub(HIDDEN, line)
        return _LOOKS_SECRET.sub(HIDDEN, line)


REDACTOR = Redactor()
"""The process's own: `REDACTOR.hide([...])` wherever a secret is read."""


def extras(record: logging.LogRecord) -> Mapping[str, Any]:
    """What the call put into `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """`{"at", "level", "log", "text", ...extra, "error"}`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "log": record.name,
            "text": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return REDACTOR.clean(json.dumps(line, default=str))


class PlainFormatter(logging.Formatter):
    """`13:45:01 warning  text  runner=r...`, for a terminal. Control characters are shown, not obeyed."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        ids = "".join(f"  {name}={value}" for name, value in extras(record).items())
        line = f"{at} {record.levelname.lower():8} {record.getMessage()}{ids}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return REDACTOR.clean("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in line))


def _is_noise(record: logging.LogRecord) -> bool:
    """A stranger sent what is no HTTP: it was answered with 400, and its bytes belong in no log."""
    error = record.exc_info[1] if record.exc_info else None
    return any(base.__name__ == "HttpProcessingError" for base in type(error).__mro__)


def set_up(stream: TextIO | None = None, level: int = INFO) -> None:
    """Send all logs of this process to `stream` (None: stderr). Chatty libraries speak from warnings on."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: not _is_noise(record))
    handler.setFormatter(PlainFormatter() if stream.isatty() else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in (
        "aiohttp",
        "asyncio",
        "asyncssh",
        "azure",
        "botocore",
        "google",
        "kubernetes_asyncio",
        "githubkit",
        "hishel",
        "httpcore",
        "httpx",
        "urllib3",
    ):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
