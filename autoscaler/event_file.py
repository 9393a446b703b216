"""Recorded deliveries: JSON Lines, plain or gzip, one a line, read leniently and given back in the order of `at`.

A line is `{"at": RFC 3339, "event": "workflow_job", "delivery": GUID, "payload": {...}, "run": {...}?}`. Broken
lines, lines over 25 MB and repeated deliveries are left out, a truncated gzip is used up to the break; each is a
warning that names its line. Only an index is kept in memory: months of events may be larger than it.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self

import msgspec

from scheduling.model import UnixMs

LINE_MAX = 25 * 1024 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Delivery:
    """`payload` and `run` are JSON as recorded; `run` is empty where the line has none."""

    at_ms: UnixMs
    event: str
    delivery: str
    payload: bytes
    run: bytes = b""


class _Line(msgspec.Struct):
    at: str
    event: str
    payload: msgspec.Raw
    delivery: str = ""
    run: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(_Line)


class EventFile:
    """One open file. `warnings` say what was left out, `len()` is the number of deliveries."""

    def __init__(self, path: Path) -> None:
        """Reads the file once. OSError when it cannot be opened."""
        self.warnings: list[str] = []
        self._path = path
        self._index: list[tuple[UnixMs, int, int]] = []  # (at, offset, length), by time
        self._file = self._open(path)
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[Delivery]:
        """All deliveries, oldest first; those of the same instant in the order of the file."""
        for at_ms, offset, length in self._index:
            self._file.seek(offset)
            line = _DECODER.decode(self._file.read(length))
            yield Delivery(at_ms, line.event, line.delivery, bytes(line.payload), bytes(line.run))

    def _open(self, path: Path) -> IO[bytes]:
        """The file itself, or an unpacked copy of a gzip: lines are read again in the order of time."""
        file = path.open("rb")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if not packed:
            return file
        plain = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        try:
            with file, gzip.open(file) as unpacked:
                while chunk := unpacked.read1(_CHUNK):
                    plain.write(chunk)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.warnings.append(f"{path}: the gzip breaks off ({error}); used up to there")
        plain.seek(0)
        return plain

    def _read(self) -> None:
        seen: set[str] = set()
        number = offset = 0
        while line := self._file.readline(LINE_MAX + 1):
            number += 1
            whole = len(line)
            if whole > LINE_MAX:
                whole += self._pass_over() if not line.endswith(b"\n") else 0
                self._warn(number, f"is over {LINE_MAX // 1024 // 1024} MB; left out")
            elif line.strip():
                self._index_line(number, offset, line, seen)
            offset += whole
        self._index.sort(key=lambda entry: entry[0])

    def _pass_over(self) -> int:
        """Skip to the end of the line; how many bytes that was."""
        skipped = 0
        while rest := self._file.readline(_CHUNK):
            skipped += len(rest)
            if rest.endswith(b"\n"):
                break
        return skipped

    def _index_line(self, number: int, offset: int, line: bytes, seen: set[str]) -> None:
        try:
            found = _DECODER.decode(line)
            at_ms = _unix_ms(found.at)
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            self._warn(number, f"is no recorded delivery ({error}); left out")
            return
        if found.delivery and found.delivery in seen:
            self._warn(number, f"repeats delivery {found.delivery[:60]}; counted once")
            return
        seen.add(found.delivery)
        self._index.append((at_ms, offset, len(line)))

    def _warn(self, number: int, text: str) -> None:
        self.warnings.append(f"{self._path}:{number}: {text}")


def _unix_ms(text: str) -> UnixMs:
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
