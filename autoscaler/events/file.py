"""Recorded deliveries: JSON Lines, plain or gzip, one a line, read leniently and given back in the order of `at`.

A line is `{"at": RFC 3339, "event": "workflow_job", "delivery": GUID, "payload": {...}, "run": {...}?}`. Broken
lines, lines over 25 MB and repeated deliveries are left out, a truncated gzip is used up to the break; each is a
warning that names its line. Only an index is kept in memory: months of events may be larger than it.
"""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import msgspec

from autoscaler.clock import unix_ms
from scheduling.model import UnixMs

LINE_MAX = 25 * 1024 * 1024
_CHUNK = 1024 * 1024
_TOO_LONG = f"is over {LINE_MAX // 1024 // 1024} MB; left out"


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


_BROKEN = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_DECODER = msgspec.json.Decoder(_Line)


Warn = Callable[[int, str], None]
"""Told the line number and what is wrong with it."""


def stream(path: Path, warn: Warn) -> Iterator[tuple[int, Delivery]]:
    """Line number and delivery of every good line, in the order of the file; repeated ones too.

    For readers to whom order and repetition do not matter: nothing is kept. OSError when it cannot be opened.
    """
    with path.open("rb") as file:
        for number, _, line in lines(_unpacked(file, warn), warn):
            try:
                found = _DECODER.decode(line)
                at_ms = unix_ms(found.at)
            except _BROKEN as error:
                warn(number, f"is no recorded delivery ({error}); left out")
                continue
            yield number, Delivery(at_ms, found.event, found.delivery, bytes(found.payload), bytes(found.run))


def lines(chunks: Iterable[bytes], warn: Warn) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and text of every line that is not empty and not over `LINE_MAX`."""
    number, offset = 1, 0
    rest, passing = b"", False
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if passing or len(line) > LINE_MAX:
                warn(number, _TOO_LONG)
                offset, passing = offset + len(line) + 1, False
            else:
                if line and not line.isspace():
                    yield number, offset, line
                offset += len(line) + 1
            number += 1
        if len(rest) > LINE_MAX:
            offset, rest, passing = offset + len(rest), b"", True
    if passing:
        warn(number, _TOO_LONG)
    elif rest and not rest.isspace():
        yield number, offset, rest


def _unpacked(file: IO[bytes], warn: Warn) -> Iterator[bytes]:
    """The plain text of a file, gzip or not, up to where it breaks."""
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    read = gzip.GzipFile(fileobj=file).read1 if packed else file.read
    number = 1
    try:
        while chunk := read(_CHUNK):
            number += chunk.count(b"\n")
            yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        warn(number, f"the gzip breaks off in this line ({error}); used up to there")


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
        if file.read(2) != b"\x1f\x8b":
            return file
        plain = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        with file:
            file.seek(0)
            for chunk in _unpacked(file, self._warn):
                plain.write(chunk)
        return plain

    def _read(self) -> None:
        seen: set[str] = set()
        self._file.seek(0)
        for number, offset, line in lines(iter(lambda: self._file.read(_CHUNK), b""), self._warn):
            self._index_line(number, offset, line, seen)
        self._index.sort(key=lambda entry: entry[0])

    def _index_line(self, number: int, offset: int, line: bytes, seen: set[str]) -> None:
        try:
            found = _DECODER.decode(line)
            at_ms = unix_ms(found.at)
        except _BROKEN as error:
            self._warn(number, f"is no recorded delivery ({error}); left out")
            return
        if found.delivery and found.delivery in seen:
            self._warn(number, f"repeats delivery {found.delivery[:60]}; counted once")
            return
        seen.add(found.delivery)
        self._index.append((at_ms, offset, len(line)))

    def _warn(self, number: int, text: str) -> None:
        self.warnings.append(told(self._path, number, text))


def told(path: Path, number: int, text: str) -> str:
    """A warning as people read it."""
    return f"{path}:{number}: {text}"
