"""A recording as columns: one row a job that was queued in it, by the time at which it was queued.

Neither the order of the file nor repeated deliveries matter. Columns instead of objects: a month of a large
project is 1.6 million jobs. What a job did after it was queued is kept as its duration, to be replayed on another
runner.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from autoscaler.backtest.live import Live
from autoscaler.events import file as event_file
from autoscaler.events import machines
from autoscaler.http.workflow_job import Malformed, report
from scheduling.job_facts import LONGEST_QUEUE_MS
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported
from scheduling.model import RunFacts, UnixMs

UNKNOWN = -1
LONGEST_MS = 5 * 24 * 3_600_000
"""GitHub ends a job of a self-hosted runner after five days."""

NO_FACTS = 0
"""Row of `facts` of a job whose lines carry no `run`."""


class Table:
    """Values that repeat, by number. 0 is the empty one."""

    def __init__(self, empty: object) -> None:
        self.values: list[Any] = [empty]
        self._numbers = {empty: 0}

    def number(self, value: object) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


@dataclass(slots=True)
class Recording:
    """Columns of equal length. Times are Unix ms, 0: did not happen; durations are ms, `UNKNOWN`: not recorded.

    `announced`: when its queued delivery came; `queued`: since when it waited, as the core counts. `cancelled`:
    when it was cancelled while it was queued.
    """

    job_id: array[int] = field(default_factory=lambda: array("q"))
    run_id: array[int] = field(default_factory=lambda: array("q"))
    attempt: array[int] = field(default_factory=lambda: array("I"))
    repository: array[int] = field(default_factory=lambda: array("I"))
    labels: array[int] = field(default_factory=lambda: array("I"))
    name: array[int] = field(default_factory=lambda: array("I"))
    workflow: array[int] = field(default_factory=lambda: array("I"))
    branch: array[int] = field(default_factory=lambda: array("I"))
    facts: array[int] = field(default_factory=lambda: array("I"))
    conclusion: array[int] = field(default_factory=lambda: array("I"))
    announced: array[int] = field(default_factory=lambda: array("q"))
    queued: array[int] = field(default_factory=lambda: array("q"))
    started: array[int] = field(default_factory=lambda: array("q"))
    completed: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("i"))
    cancelled: array[int] = field(default_factory=lambda: array("q"))
    tables: dict[str, list[Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    deliveries: int = 0
    began_before: int = 0  # jobs whose queued delivery is not in the recording
    unfinished: int = 0  # jobs that the recording does not see end
    first_ms: UnixMs = 0
    last_ms: UnixMs = 0
    live: Live = field(default_factory=Live)

    def __len__(self) -> int:
        return len(self.job_id)

    def waited(self, row: int) -> int:
        """Recorded ms from queued to in progress; `UNKNOWN` where it did not start."""
        return self.started[row] - self.queued[row] if self.started[row] else UNKNOWN


COLUMNS = tuple(name for name, kind in Recording.__annotations__.items() if kind.startswith("array"))
TABLES = ("repository", "labels", "name", "workflow", "branch", "facts", "conclusion")


class _Run(msgspec.Struct):
    event: str = ""
    fork: bool = True
    ref: str = ""


_RUN = msgspec.json.Decoder(_Run)


def read(path: Path, told: Callable[[int], None] = lambda deliveries: None) -> Recording:
    """The jobs of an event file. Whatever was left out is a warning. OSError when it cannot be opened.

    `told` hears now and then how many deliveries were read.
    """
    reader = Reader(path)
    for number, delivery in event_file.stream(path, reader.warn):
        reader.take(number, delivery)
        if not number % 20_000:
            told(number)
    return reader.finish()


class Reader:
    """Makes a recording of deliveries in any order."""

    def __init__(self, path: Path) -> None:
        self.found = Recording()
        self._path = path
        self._tables = {name: Table(()) if name == "labels" else Table("") for name in TABLES}
        self._tables["facts"] = Table(None)
        self._facts: dict[bytes, int] = {b"": NO_FACTS}
        self._rows: dict[tuple[int, int], int] = {}
        # hash of the delivery that reported each state, to know a repeated one
        self._deliveries: dict[JobState, array[int]] = {state: array("q") for state in _TAKE}

    def warn(self, number: int, text: str) -> None:
        self.found.warnings.append(event_file.told(self._path, number, text))

    def take(self, number: int, delivery: event_file.Delivery) -> None:
        """Take over one delivery; what is no job is passed over in silence, as the receiver does it."""
        found = self.found
        found.deliveries += 1
        if delivery.event == machines.EVENT:
            self._machine(number, delivery)
        if delivery.event != "workflow_job":
            return
        try:
            job = report(delivery.payload, delivery.delivery, delivery.at_ms)
        except Malformed as error:
            self.warn(number, f"is not a workflow_job delivery ({error}); left out")
            return
        if isinstance(job, str) or job.state is JobState.WAITING:
            return
        row = self._rows.get((job.job_id, job.run_attempt))
        if row is None:
            row = self._new_row(job)
        if self._repeated(row, job):
            self.warn(number, f"repeats delivery {job.delivery[:60]}; counted once")
            return
        found.first_ms = min(found.first_ms or job.at_ms, job.at_ms)
        found.last_ms = max(found.last_ms, job.at_ms)
        if delivery.run and not found.facts[row]:
            found.facts[row] = self._facts_number(number, delivery.run)
        _TAKE[job.state](self, row, job)

    def _machine(self, number: int, delivery: event_file.Delivery) -> None:
        try:
            self.found.live.take(machines.DECODER.decode(delivery.payload))
        except msgspec.MsgspecError as error:
            self.warn(number, f"is no line of a machine ({error}); left out")

    def _new_row(self, job: JobReported) -> int:
        row = self._rows[job.job_id, job.run_attempt] = len(self.found)
        for name in COLUMNS:
            getattr(self.found, name).append(UNKNOWN if name == "duration" else 0)
        for hashes in self._deliveries.values():
            hashes.append(0)
        found = self.found
        found.job_id[row], found.run_id[row], found.attempt[row] = job.job_id, job.run_id, job.run_attempt
        for name in ("repository", "name", "workflow", "branch"):
            getattr(found, name)[row] = self._tables[name].number(getattr(job, name))
        return row

    def _repeated(self, row: int, job: JobReported) -> bool:
        if not job.delivery:
            return False
        hashes, mark = self._deliveries[job.state], hash(job.delivery) or 1
        if hashes[row] == mark:
            return True
        hashes[row] = mark
        return False

    def _facts_number(self, number: int, raw: bytes) -> int:
        known = self._facts.get(raw)
        if known is None:
            try:
                run = _RUN.decode(raw)
                known = self._tables["facts"].number(RunFacts(run.event, run.fork, run.ref))
            except msgspec.MsgspecError as error:
                self.warn(number, f"its `run` cannot be read ({error}); taken as if it were not there")
                known = NO_FACTS
            self._facts[raw] = known
        return known

    def queued(self, row: int, job: JobReported) -> None:
        found = self.found
        if found.announced[row]:
            return  # two Apps, or an approval: the first one counts
        found.announced[row] = job.at_ms
        created_ms = job.created_ms or job.at_ms
        found.queued[row] = min(job.at_ms, max(created_ms, job.at_ms - LONGEST_QUEUE_MS))
        found.labels[row] = self._tables["labels"].number(job.labels)

    def in_progress(self, row: int, job: JobReported) -> None:
        self.found.started[row] = self.found.started[row] or min(job.started_ms or job.at_ms, job.at_ms)

    def completed(self, row: int, job: JobReported) -> None:
        found = self.found
        found.completed[row] = min(job.completed_ms or job.at_ms, job.at_ms)
        found.conclusion[row] = self._tables["conclusion"].number(job.conclusion)
        if job.runner_name and not found.started[row]:
            found.started[row] = min(job.started_ms or job.at_ms, job.at_ms)

    # ---- the whole -----------------------------------------------------------------------------------------

    def finish(self) -> Recording:
        """Durations, and the rows of queued jobs in the order of time."""
        found = self.found
        self._rows.clear()
        self._deliveries.clear()
        found.tables = {name: table.values for name, table in self._tables.items()}
        skipped = self._tables["conclusion"].number("skipped")
        rows = [row for row in range(len(found)) if found.announced[row]]
        found.began_before = sum(
            not found.announced[row] and found.conclusion[row] != skipped and bool(found.started[row])
            for row in range(len(found))
        )
        order = [found.announced[row] for row in rows]
        if any(later < earlier for earlier, later in pairwise(order)):
            rows.sort(key=lambda row: (found.announced[row], found.job_id[row]))
        if rows != list(range(len(found))):
            for name in COLUMNS:
                column = getattr(found, name)
                setattr(found, name, array(column.typecode, (column[row] for row in rows)))
        self._lasts()
        return found

    def _lasts(self) -> None:
        """How long each job runs, where the recording says so; else as far as it can be guessed."""
        found, known = self.found, dict[int, list[int]]()
        cancelled = self._tables["conclusion"].number("cancelled")
        unfinished = []
        for row in range(len(found)):
            started, completed = found.started[row], found.completed[row]
            if completed and started:
                found.duration[row] = min(max(0, completed - started), LONGEST_MS)
                samples = known.setdefault(found.labels[row], [])
                if len(samples) < 1000:
                    samples.append(found.duration[row])
            elif completed:
                if found.conclusion[row] == cancelled:
                    found.cancelled[row] = max(completed, found.announced[row])
                else:  # it failed without having run: nobody knows how long it would have
                    unfinished.append(row)
            else:
                found.unfinished += 1
                unfinished.append(row)
        usual = {labels: int(median(samples)) for labels, samples in known.items()}
        for row in unfinished:
            seen_ms = found.last_ms - found.started[row] if found.started[row] else 0
            found.duration[row] = min(max(seen_ms, usual.get(found.labels[row], 0)), LONGEST_MS)


_TAKE: dict[JobState, Callable[[Reader, int, JobReported], None]] = {
    JobState.QUEUED: Reader.queued,
    JobState.IN_PROGRESS: Reader.in_progress,
    JobState.COMPLETED: Reader.completed,
}
