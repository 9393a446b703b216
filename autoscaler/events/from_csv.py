"""`record from-csv`: an event file made of tables of jobs, one row a job.

Comma, semicolon or tab; plain or gzip. A row that cannot be used is a warning with its line, and is left out.
"""

from __future__ import annotations

import csv
import gzip
import heapq
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import IO, TextIO

from autoscaler.events.csv_columns import Columns, Unfit, columns
from autoscaler.events.file import LINE_MAX, told
from autoscaler.events.jobs import deliveries

AT_ONCE = 200_000
"""Lines that are sorted in memory; more of them are sorted in parts."""
WARNINGS_SHOWN = 20


@dataclass(slots=True)
class Found:
    """What came of the tables. `warnings`: the first, as people read them; `hidden`: how many more."""

    jobs: int = 0
    skipped: int = 0
    left_out: int = 0
    deliveries: int = 0
    warnings: list[str] = field(default_factory=list)
    hidden: int = 0

    def warn(self, path: Path, number: int, text: str) -> None:
        self.left_out += 1
        if len(self.warnings) < WARNINGS_SHOWN:
            self.warnings.append(told(path, number, f"{text}; row left out"))
        else:
            self.hidden += 1


def record(paths: Sequence[Path], out: Path, repository: str, zone: tzinfo) -> Found:
    """Write the event file. Raises OSError, and Unfit where a table lacks a column; then nothing is written."""
    found = Found()
    temporary = out.with_name(out.name + ".new")
    try:
        with gzip.open(temporary, "wb") if out.suffix == ".gz" else temporary.open("wb") as file:
            for line in in_order(_lines(paths, repository, zone, found)):
                file.write(line)
                found.deliveries += 1
        if found.deliveries:
            temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return found


def in_order(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that begin with their time, sorted, with a newline each; more of them than memory holds."""
    with ExitStack() as stack:
        parts: list[IO[bytes]] = []
        some: list[bytes] = []
        for line in lines:
            some.append(line + b"\n")
            if len(some) >= AT_ONCE:
                part = stack.enter_context(tempfile.TemporaryFile())
                part.writelines(sorted(some))
                part.seek(0)
                parts.append(part)
                some.clear()
        yield from heapq.merge(*parts, sorted(some))


def _lines(paths: Sequence[Path], repository: str, zone: tzinfo, found: Found) -> Iterator[bytes]:
    seen: set[tuple[str, int, int]] = set()
    count = 0
    for path in paths:
        with _open(path) as file:
            for number, row, known in _rows(path, file, repository, zone, found):
                count += 1
                try:
                    name, job, facts = known.job(row, count)
                except Unfit as problem:
                    found.warn(path, number, str(problem))
                    continue
                key = (name, job.id, job.run_attempt or 1)
                if key in seen:
                    found.warn(path, number, f"job {job.id}, attempt {key[2]}, was in an earlier row")
                    continue
                seen.add(key)
                lines = list(deliveries(name, job, facts))
                found.jobs, found.skipped = found.jobs + bool(lines), found.skipped + (not lines)
                yield from lines


def _rows(
    path: Path, file: TextIO, repository: str, zone: tzinfo, found: Found
) -> Iterator[tuple[int, list[str], Columns]]:
    """Number of its first line, cells, and the columns of every row of the width of the header."""
    csv.field_size_limit(LINE_MAX)
    first = file.readline()
    if not first.strip():
        raise Unfit(told(path, 1, "expected a line with the names of the columns, got an empty one"))
    delimiter = max(",;\t", key=first.count)
    header = next(csv.reader([first], delimiter=delimiter))
    try:
        known = columns(header, repository, zone)
    except Unfit as problem:
        raise Unfit(told(path, 1, str(problem))) from None
    reader = csv.reader(file, delimiter=delimiter)
    while True:
        number = reader.line_num + 2  # the header was read before
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            found.warn(path, number, f"is no row of a table ({error})")
            continue
        except (EOFError, OSError) as error:
            if not isinstance(error, EOFError | gzip.BadGzipFile):
                raise
            found.warnings.append(
                told(path, number, f"the gzip breaks off in this line ({error}); used up to there")
            )
            return
        if len(row) == len(header):
            yield number, row, known
        elif row:
            found.warn(path, number, f"has {len(row)} cells, the header has {len(header)}")


def _open(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


def run(paths: Sequence[Path], out: Path, repository: str, zone: tzinfo, as_json: bool = False) -> int:
    """`record from-csv`: 0, or 1 with the reason on stderr."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        found = record(paths, out, repository, zone)
    except Unfit as problem:
        say(f"autoscaler: {problem}")
        return 1
    except OSError as error:
        say(f"autoscaler: {error.filename}: {error.strerror}")
        return 1
    for line in found.warnings:
        say(f"warning: {line}")
    if found.hidden:
        say(f"warning: and {found.hidden:,} more rows left out")
    if not found.deliveries:
        say("autoscaler: no row can be used: nothing was written")
        return 1
    skipped = f" ({found.skipped:,} more were skipped by their workflow)" if found.skipped else ""
    say(f"{found.jobs:,} jobs{skipped}, {found.deliveries:,} deliveries written to {out}; times without an offset "
        f"were taken as {zone}")  # fmt: skip
    if as_json:
        keys = ("jobs", "skipped", "left_out", "deliveries", "warnings")
        print(json.dumps({key: getattr(found, key) for key in keys} | {"out": str(out)}))
    return 0
