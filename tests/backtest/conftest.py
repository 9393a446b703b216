"""Event files and policies as a user would write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
POLICY = """\
version: 1
ignore_labels: ["ubuntu-*"]
funds:
  grant: {credit: 1000 USD, until: 2026-12-31, pays: [big], spent: {amount: 100 USD, as_of: 2026-01-01}}
  cash: {cash: 50 USD/month, pays: [big, small]}
providers:
  big: {kind: sim, settings: {instance_types: {m: {cpus: 4, memory_gib: 8, on_demand: 0.40 USD/h}}}}
  small: {kind: sim, settings: {instance_types: {s: {cpus: 2, memory_gib: 4, on_demand: 0.10 USD/h}}}}
defaults: {access: {repositories: ["octo/*"], forks: allow}}
runner_types:
  linux: {labels: [self-hosted, linux], hardware: {os: linux, cpus: 2}, offers: [{provider: PROVIDER}]}
"""


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(START.timestamp() + seconds, UTC).isoformat().replace("+00:00", "Z")


def delivery(
    job: int, action: str, at: float, *, labels: Iterable[str] = ("self-hosted", "linux"), **more: Any
) -> dict[str, Any]:
    """One line. `at` counts seconds from `START`; `more` are keys of `workflow_job`."""
    known = {
        "id": job,
        "run_id": job // 10,
        "run_attempt": 1,
        "labels": list(labels),
        "name": f"job {job}",
        "created_at": rfc3339(at) if action == "queued" else None,
        "runner_name": "" if action == "queued" else "other-runner",
    }
    payload = {"action": action, "workflow_job": known | more, "repository": {"full_name": "octo/app"}}
    return {"at": rfc3339(at), "event": "workflow_job", "delivery": f"{job}-{action}", "payload": payload}


def story(job: int, at: float, waits: float = 60, lasts: float = 600, **more: Any) -> list[dict[str, Any]]:
    """The three deliveries of a job that ran."""
    started, completed = rfc3339(at + waits), rfc3339(at + waits + lasts)
    ran = {"started_at": started, **more}
    return [
        delivery(job, "queued", at, **more),
        delivery(job, "in_progress", at + waits, **ran),
        delivery(
            job, "completed", at + waits + lasts, **{"conclusion": "success", "completed_at": completed, **ran}
        ),
    ]


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines (dicts, or bytes as they are) to an event file."""

    def write(lines: Iterable[dict[str, Any] | bytes], name: str = "events.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(
            b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines)
        )
        return path

    return write


@pytest.fixture
def policy(tmp_path: Path) -> Callable[..., Path]:
    """Writes the policy with its jobs at that provider."""

    def policy(provider: str = "small", name: str = "", text: str = POLICY) -> Path:
        path = tmp_path / f"{name or provider}.yaml"
        path.write_text(text.replace("PROVIDER", provider), encoding="utf-8")
        return path

    return policy
