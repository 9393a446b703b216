"""A job that is over, or under way, as the deliveries that GitHub must have sent of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from autoscaler.github.wire import JobShape
from autoscaler.views.values import time as rfc3339
from scheduling.model import RunFacts


def deliveries(repository: str, job: JobShape, facts: RunFacts | None) -> Iterator[bytes]:
    """Lines of an event file, each beginning with its time, so that they sort by it. A skipped job has none."""
    if job.conclusion == "skipped" or job.created_at is None:
        return
    ran = bool(job.runner_name) and job.started_at is not None
    yield _line(repository, facts, job, "queued", job.created_at, ran)
    if ran and job.started_at is not None and job.status in ("in_progress", "completed"):
        yield _line(repository, facts, job, "in_progress", job.started_at, ran)
    if job.completed_at is not None and job.status == "completed":
        yield _line(repository, facts, job, "completed", job.completed_at, ran)


def _line(repository: str, facts: RunFacts | None, job: JobShape, action: str, at: datetime, ran: bool) -> bytes:
    over, begun = action == "completed", ran and action != "queued"
    attempt = job.run_attempt or 1
    run = {"run": {"event": facts.event, "fork": facts.fork, "ref": facts.ref}} if facts else {}
    return json.dumps(
        {
            "at": _rfc3339(at),
            "event": "workflow_job",
            "delivery": f"{job.id}-{attempt}-{action}",
            "payload": {
                "action": action,
                "workflow_job": {
                    "id": job.id,
                    "run_id": job.run_id,
                    "run_attempt": attempt,
                    "labels": job.labels,
                    "name": job.name,
                    "workflow_name": job.workflow_name,
                    "head_branch": job.head_branch,
                    "status": action,
                    "conclusion": job.conclusion if over else None,
                    "created_at": _rfc3339(job.created_at),
                    "started_at": _rfc3339(job.started_at) if begun else None,
                    "completed_at": _rfc3339(job.completed_at) if over else None,
                    "runner_name": (job.runner_name or "") if begun or over else None,
                },
                "repository": {"full_name": repository},
            },
            **run,
        },
        separators=(",", ":"),
    ).encode()


def _rfc3339(at: datetime | None) -> str | None:
    return rfc3339(int(at.timestamp() * 1000)) if at else None
