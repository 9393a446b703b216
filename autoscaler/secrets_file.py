"""Files that hold secrets: read once for keys and tokens, followed while they change for webhook secrets."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

CHECK_SECONDS = 1.0
log = logging.getLogger(__name__)


class SettingsError(ValueError):
    """A setting cannot be used; the text names it, says what was expected and what to do."""


def read_bytes(path: Path) -> bytes:
    """The file's content; `SettingsError` when it cannot be read."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no possible name
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"{path} cannot be read ({reason}); create it or name another file") from None


def secret_lines(path: Path) -> tuple[bytes, ...]:
    """One secret a line; white space around them and blank lines are ignored. Raises `SettingsError`."""
    secrets = tuple(line.strip() for line in read_bytes(path).splitlines() if line.strip())
    if not secrets:
        raise SettingsError(f"{path} holds no secret; expected one a line")
    return secrets


class SecretsFile:
    """The active secrets of one file, read again within a second of a change.

    A file that is gone, unreadable or empty at that moment (half-way through a rotation) leaves the last good
    secrets active and is logged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self._secrets = secret_lines(path)
        self._checked_s = float("-inf")

    def __repr__(self) -> str:
        return f"SecretsFile({str(self._path)!r})"

    def active(self) -> tuple[bytes, ...]:
        """All secrets that a signature may be made with. Called in the event loop."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._checked_s >= CHECK_SECONDS:
            self._checked_s = now_s
            self._follow()
        return self._secrets

    def _follow(self) -> None:
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._secrets = secret_lines(self._path)
            log.info("read %d webhook secrets from %s", len(self._secrets), self._path)
        except SettingsError as error:
            log.error("the last webhook secrets stay active: %s", error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size
