"""From the JSON of a `workflow_job` delivery to the `JobReported` event: only the fields we use, read leniently.

Published examples lack `run_attempt` or `created_at`, have null where a text is expected, a queued action with
status waiting, and a queued job with a runner. The action decides the state, never the status.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from autoscaler.clock import unix_ms
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported
from scheduling.model import UnixMs

LABEL_MAX = 256
"""Characters; GitHub's own limit of a runner's label. A longer one is on no runner."""
LABELS_MAX = 100
"""GitHub's own limit of labels on one runner."""
_TEXT_MAX = 256
_STATES: dict[str, JobState] = {state.value: state for state in JobState}


class Malformed(Exception):
    """Not the JSON of a `workflow_job` delivery; the text says where it differs."""


def report(body: bytes, delivery: str, now_ms: UnixMs) -> JobReported | str:
    """The event of one delivery, or the action that is none of ours. Raises `Malformed`."""
    try:
        payload = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Malformed(str(error)) from None
    state = _STATES.get(payload.action)
    if state is None:
        return payload.action[:_TEXT_MAX]
    job = payload.workflow_job
    if job is None or payload.repository is None:
        raise Malformed("Object missing required field `workflow_job` or `repository`")
    return JobReported(
        at_ms=now_ms,
        state=state,
        job_id=job.id,
        run_id=job.run_id,
        run_attempt=job.run_attempt or 1,
        repository=payload.repository.full_name,
        labels=_labels(job.labels or ()),
        name=(job.name or "")[:_TEXT_MAX],
        workflow=(job.workflow_name or "")[:_TEXT_MAX],
        branch=(job.head_branch or "")[:_TEXT_MAX],
        conclusion=(job.conclusion or "")[:_TEXT_MAX],
        runner_name=(job.runner_name or "")[:_TEXT_MAX],
        created_ms=_unix_ms(job.created_at),
        started_ms=_unix_ms(job.started_at),
        completed_ms=_unix_ms(job.completed_at),
        delivery=delivery[:_TEXT_MAX].encode(errors="replace").decode(),  # a header may hold any bytes
    )


@dataclass(frozen=True, slots=True)
class _Repository:
    full_name: str


@dataclass(frozen=True, slots=True)
class _Job:
    id: int
    run_id: int
    run_attempt: int | None = None
    labels: tuple[str, ...] | None = None
    name: str | None = None
    workflow_name: str | None = None
    head_branch: str | None = None
    conclusion: str | None = None
    runner_name: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None


@dataclass(frozen=True, slots=True)
class _Payload:
    action: str
    workflow_job: _Job | None = None
    repository: _Repository | None = None


_DECODER = msgspec.json.Decoder(_Payload)


def _labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """As sent; what no runner can have is marked, so that it matches no label and no pattern of a policy."""
    if len(labels) > LABELS_MAX:
        return (f"(too many labels: {len(labels)})",)
    if max(map(len, labels), default=0) <= LABEL_MAX:
        return labels
    return tuple(
        label if len(label) <= LABEL_MAX else f"(too long: {len(label)} characters) {label[:64]}"
        for label in labels
    )


def _unix_ms(time: str | None) -> UnixMs:
    """RFC 3339 to Unix ms; 0 where it is missing or no time that can be."""
    if not time:
        return 0
    try:
        return unix_ms(time)
    except ValueError:
        return 0
