"""What the columns of a table of jobs mean, by their names, and what their cells say.

Names are those of GitHub's API, of exports from ClickHouse (PyTorch's `default.workflow_job`: times without a zone
and 1970 where there is none, labels as `['a','b']`, no repository but in `url`), and what people write themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from autoscaler.github.wire import JobShape
from autoscaler.units import show
from scheduling.model import RunFacts

MEANINGS = {
    "id": ("id", "job_id"),
    "run_id": ("run_id", "workflow_run_id"),
    "attempt": ("run_attempt", "attempt"),
    "repository": ("repository", "repository_full_name", "repo", "full_name", "url", "html_url", "run_url"),
    "labels": ("labels", "label", "runner_labels", "runner_label", "runs_on", "runner_type", "machine_type"),
    "queued": ("queued_at", "created_at", "enqueued_at", "queued", "created"),
    "started": ("started_at", "started", "start_time", "start"),
    "completed": ("completed_at", "completed", "finished_at", "finished", "ended_at", "end_time", "end"),
    "waited": ("queue", "queue_time", "queued_for", "wait", "wait_time", "waited"),
    "lasted": ("duration", "run_time", "runtime", "lasted"),
    "conclusion": ("conclusion", "result", "outcome"),
    "name": ("name", "job_name", "job"),
    "workflow": ("workflow_name", "workflow"),
    "branch": ("head_branch", "branch"),
    "event": ("event", "workflow_event", "trigger"),
    "fork": ("fork", "is_fork", "from_fork"),
    "runner": ("runner_name", "runner"),
}
"""Meaning -> names of a column, the most telling first. Durations carry their unit at the end: `duration_ms`."""
DURATIONS = ("waited", "lasted")
UNITS_S = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("ms", "msec", "millis", "milliseconds"), 0.001),
}
NEVER_RAN = ("cancelled", "skipped")
EPOCH = datetime(1970, 1, 2, tzinfo=UTC)
"""Up to here a time is an empty one: databases without NULL write 1970-01-01."""
EARLIER_MAX = timedelta(minutes=1)
"""GitHub's clocks differ: a start that much before the queueing is taken as at once."""
_SLUG = r"[A-Za-z0-9][\w.-]*/[\w.-]+"
_REPOSITORY = re.compile(rf"(?:https?://[^/]+/(?:api/v3/)?(?:repos/)?)?(?P<slug>{_SLUG})(?:/.*)?")
_UNIX_DIGITS = {10: 1, 13: 1_000, 16: 1_000_000, 19: 1_000_000_000}
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


class Unfit(Exception):
    """The text says which column, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`places`: meaning -> (name in the file, index of the cell, seconds a unit of a duration)."""

    places: dict[str, tuple[str, int, float]]
    repository: str
    zone: tzinfo

    def cell(self, row: Sequence[str], meaning: str) -> str:
        """Empty where there is no such column, or its cell says NULL."""
        place = self.places.get(meaning)
        text = row[place[1]].strip() if place else ""
        return "" if text.upper() in ("NULL", r"\N", "NONE", "NAN") else text

    def job(self, row: Sequence[str], number: int) -> tuple[str, JobShape, RunFacts | None]:
        """Repository, job and what is known of its run. `number` stands in for an id. Raises Unfit."""
        queued, started, completed = self._times(row)
        conclusion = self.cell(row, "conclusion").casefold() or None
        if completed and not started and conclusion not in NEVER_RAN:
            raise Unfit("it completed and never started, and its conclusion is neither cancelled nor skipped")
        ran = started is not None and (bool(self.cell(row, "runner")) or conclusion not in NEVER_RAN)
        job_id = self._whole(row, "id", number)
        job = JobShape(
            id=job_id,
            run_id=self._whole(row, "run_id", job_id),
            status="completed" if completed else "in_progress" if started else "queued",
            run_attempt=self._whole(row, "attempt", 1),
            name=self.cell(row, "name"),
            workflow_name=self.cell(row, "workflow") or None,
            head_branch=self.cell(row, "branch") or None,
            labels=self._labels(row),
            conclusion=(conclusion or "success") if completed else None,
            runner_name=(self.cell(row, "runner") or "runner") if ran else None,
            created_at=queued,
            started_at=started,
            completed_at=completed,
        )
        return self._repository(row), job, self._facts(row)

    def _times(self, row: Sequence[str]) -> tuple[datetime, datetime | None, datetime | None]:
        queued, started, completed = (self._time(row, meaning) for meaning in ("queued", "started", "completed"))
        if queued is None:
            raise self._unfit("queued", "a time", "")
        if started is None and (waited := self._duration(row, "waited")) is not None:
            started = queued + waited
        if completed is None and started and (lasted := self._duration(row, "lasted")) is not None:
            completed = started + lasted
        if started and started < queued:
            if queued - started > EARLIER_MAX:
                raise Unfit(
                    f"it started at {started:%Y-%m-%d %H:%M:%S} UTC, before it was queued ({queued:%H:%M:%S})"
                )
            started = queued
        if completed and completed < (started or queued):
            raise Unfit(f"it completed at {completed:%Y-%m-%d %H:%M:%S} UTC, before it was queued or started")
        return queued, started, completed

    def _time(self, row: Sequence[str], meaning: str) -> datetime | None:
        text = self.cell(row, meaning)
        if not text:
            return None
        try:
            at = time(text, self.zone)
        except (ValueError, ArithmeticError, OSError):
            raise self._unfit(meaning, "a time such as `2026-03-02T12:00:00Z`", text) from None
        return at if at > EPOCH else None

    def _duration(self, row: Sequence[str], meaning: str) -> timedelta | None:
        text = self.cell(row, meaning)
        try:
            length = timedelta(seconds=float(text) * self.places[meaning][2]) if text else None
        except (ValueError, OverflowError):
            length = timedelta(-1)
        if length is not None and length < timedelta(0):
            raise self._unfit(meaning, "a number, 0 or more", text)
        return length

    def _whole(self, row: Sequence[str], meaning: str, otherwise: int) -> int:
        text = self.cell(row, meaning)
        if not text:
            return otherwise
        if not text.isdecimal() or len(text) > 19 or not 0 < int(text) < 2**63:
            raise self._unfit(meaning, "a whole number", text)
        return int(text)

    def _repository(self, row: Sequence[str]) -> str:
        text = self.cell(row, "repository")
        if not text and self.repository:
            return self.repository
        if not (found := _REPOSITORY.fullmatch(text)):
            raise self._unfit("repository", "OWNER/REPO", text)
        return found["slug"]

    def _labels(self, row: Sequence[str]) -> list[str]:
        found = labels(self.cell(row, "labels"))
        if not found:
            raise self._unfit("labels", "labels such as `self-hosted, linux`", self.cell(row, "labels"))
        return found

    def _facts(self, row: Sequence[str]) -> RunFacts | None:
        event, fork, branch = (self.cell(row, meaning) for meaning in ("event", "fork", "branch"))
        if fork.casefold() not in _TRUTH:
            raise self._unfit("fork", "true or false", fork)
        if not event and not fork:
            return None
        from_fork = _TRUTH[fork.casefold()]
        return RunFacts(event or "push", from_fork, f"refs/heads/{branch}" if branch and not from_fork else "")

    def _unfit(self, meaning: str, expected: str, text: str) -> Unfit:
        column = self.places.get(meaning, (MEANINGS[meaning][0], 0, 0))[0]
        return Unfit(f"column {column}: expected {expected}, got {show(text or None)}")


def columns(header: Sequence[str], repository: str, zone: tzinfo) -> Columns:
    """Raises Unfit where what is needed has no column."""
    names = [_plain(name) for name in header]
    places = {}
    for meaning, known in MEANINGS.items():
        if found := _find(names, known, meaning in DURATIONS):
            index, unit_s = found
            places[meaning] = (header[index].strip(), index, unit_s)
    for meaning, what in (("queued", "when a job was queued"), ("labels", "which labels a job has")):
        if meaning not in places:
            raise Unfit(_lacks(what, MEANINGS[meaning], header))
    if "repository" not in places and not repository:
        raise Unfit(
            f"{_lacks('of which repository a job is', MEANINGS['repository'], header)}; or name it: --repository"
        )
    for name in (name for name in names if any(name in MEANINGS[meaning] for meaning in DURATIONS)):
        raise Unfit(f"column {name}: expected its unit at the end, such as {name}_seconds or {name}_ms")
    return Columns(places, repository, zone)


def _find(names: Sequence[str], known: Sequence[str], duration: bool) -> tuple[int, float] | None:
    for each in known:
        for index, name in enumerate(names):
            if not duration and name == each:
                return index, 0.0
            stem, _, unit = name.rpartition("_")
            if duration and stem == each and unit in UNITS_S:
                return index, UNITS_S[unit]
    return None


def _plain(name: str) -> str:
    """`Queued At`, `workflow_job.queued_at` and `queuedAt` are the same."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", parted.casefold()).strip("_").removeprefix("workflow_job_")


def _lacks(what: str, known: Sequence[str], header: Sequence[str]) -> str:
    there = ", ".join(name.strip() for name in header)
    return f"no column says {what}: expected one named {', '.join(known[:4])}; there are {there[:300]}"


def time(text: str, zone: tzinfo) -> datetime:
    """ISO 8601, with a blank for the T, any number of decimals; or Unix time in s, ms, us or ns by its length."""
    if text.replace(".", "", 1).isdecimal():
        digits = text.partition(".")[0]
        return datetime.fromtimestamp(float(text) / _UNIX_DIGITS.get(len(digits), 0), UTC)
    text = re.sub(r"\s*UTC$", "Z", text)
    text = re.sub(r"(\.\d{6})\d+", r"\1", text)
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def labels(text: str) -> list[str]:
    """`["a", "b"]`, `['a','b']`, `{a,b}`, `a,b`, `a;b` or `a b`."""
    if text.startswith("["):
        try:
            found = json.loads(text)
            return [str(each).strip() for each in found if str(each).strip()]
        except ValueError:
            pass
    inner = text.strip("[]{}()")
    parts = re.split(r"[,;|]", inner) if re.search("[,;|]", inner) else inner.split()
    return [each for part in parts if (each := part.strip(" '\""))]
