"""`serve --record`: what lies in the files, and what must not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.backtest import recording
from autoscaler.events.recording import Recorder
from autoscaler.policy.file import load
from scheduling.lifecycle import RunnerState
from scheduling.messages import RunFactsLearned, Trouble
from scheduling.model import RunFacts
from scheduling.policy import Policy, matches
from scheduling.world import World
from tests.core.fleet import Fleet
from tests.core.fleet import policy as rules

PAYLOADS = Path(__file__).parent.parent / "data" / "payloads"
NOW = 1_772_500_000_000
POLICY = """\
version: 1
providers: {lab: {kind: sim}}
defaults: {access: {repositories: ["octo/*", "solo/exact"], forks: allow}}
runner_types: {linux: {labels: [self-hosted, linux]}}
rules: [{match: {ref: "refs/heads/release/*"}, prefer: [lab]}]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return load(path, NOW).policy


def body(repository: str = "octo/secret-project", **more: Any) -> bytes:
    job = {
        "id": 7, "run_id": 3, "run_attempt": 1, "labels": ["self-hosted", "linux"], "name": "build the thing",
        "workflow_name": "nightly", "head_branch": "alice/topic", "status": "queued", "conclusion": None,
        "created_at": "2026-03-02T12:00:00Z", "runner_name": "", "steps": [{"name": "step one", "number": 1}],
    }  # fmt: skip
    return json.dumps(
        {
            "action": "queued",
            "workflow_job": job | more,
            "repository": {"full_name": repository, "id": 99, "private": True, "owner": {"login": "octo"}},
            "sender": {"login": "alice", "id": 42},
        }
    ).encode()


def written(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("events-*.jsonl.gz"))
    return [json.loads(line) for path in files for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_values_are_replaced_and_keys_are_kept(policy: Policy, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", policy)
    recorder.take("guid-1", body(), NOW)
    recorder.hear(
        RunFactsLearned(0, "octo/secret-project", 3, RunFacts("push", False, "refs/heads/release/2")),
        World("acme"),
    )
    recorder.take("guid-2", body(status="in_progress"), NOW + 1000)
    recorder.hear(
        RunFactsLearned(0, "octo/secret-project", 3, RunFacts("push", True, "refs/heads/alice/topic")),
        World("acme"),
    )
    recorder.take("guid-3", body("solo/exact"), NOW + 3_600_000)
    recorder.close()
    first, second, third = written(tmp_path / "rec")
    assert len(list((tmp_path / "rec").glob("events-*"))) == 2
    text = json.dumps([first, second, third])
    for secret in ("secret-project", "build the thing", "nightly", "alice", "step one"):
        assert secret not in text
    sent = json.loads(body())
    assert first["payload"].keys() == sent.keys()
    assert first["payload"]["workflow_job"].keys() == sent["workflow_job"].keys()
    assert first["payload"]["workflow_job"]["labels"] == ["self-hosted", "linux"]
    assert first["payload"]["workflow_job"]["id"] == 7
    assert first["payload"]["repository"]["full_name"] == second["payload"]["repository"]["full_name"]
    assert matches(("octo/*",), first["payload"]["repository"]["full_name"])
    assert third["payload"]["repository"]["full_name"] == "solo/exact"
    assert "run" not in first
    assert second["run"] == {"event": "push", "fork": False, "ref": "refs/heads/release/2"}


def test_a_recording_can_be_read_back(policy: Policy, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", policy)
    recorder.take("guid-1", body(), NOW)
    recorder.take("guid-2", b"no json", NOW)
    recorder.close()
    assert recorder.lost == 1
    found = recording.read(next((tmp_path / "rec").glob("events-*")))
    assert (len(found), found.warnings) == (1, [])


def test_published_deliveries_keep_what_a_backtest_needs(policy: Policy, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", policy)
    bodies = [path.read_bytes() for path in sorted(PAYLOADS.rglob("*.json"))]
    for number, each in enumerate(bodies):
        recorder.take(f"guid-{number}", each, NOW)
    recorder.close()
    assert recorder.lost == 0
    for line, sent in zip(written(tmp_path / "rec"), map(json.loads, bodies), strict=True):
        assert line["payload"].keys() == sent.keys()
        job, original = line["payload"].get("workflow_job"), sent.get("workflow_job")
        if original:
            kept = ("id", "run_id", "labels", "status", "conclusion", "started_at", "completed_at")
            assert {key: job.get(key) for key in kept} == {key: original.get(key) for key in kept}


def test_machines_that_ended_are_lines_that_a_backtest_reads(policy: Policy, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rec", policy)
    fleet = Fleet(rules())
    fleet.cloud.refuse["east/r1-a/big/on_demand"] = Trouble.NO_CAPACITY
    fleet.job(1)
    for _ in range(40):
        seen = len(fleet.world.runners)
        told = fleet.step(30_000).decisions
        for event in told:
            recorder.hear(event, fleet.world)
        if len(fleet.world.runners) == seen == 2:
            fleet.boot()
            fleet.register()
        for runner in fleet.runners(RunnerState.IDLE):
            fleet.start(1, runner)
        for runner in fleet.runners(RunnerState.BUSY):
            fleet.finish(1, runner)
        fleet.inventory()
    recorder.close()
    (line,) = written(tmp_path / "rec")
    assert line["event"] == "runner"
    assert line["payload"]["offer"] == "west/r1-a/big/on_demand"
    assert line["payload"]["job"] == "1.1"
    (path,) = (tmp_path / "rec").glob("events-*")
    live = recording.read(path).live
    assert live.machines == 1
    assert live.total == fleet.world.totals.cost_by_provider["west"] > 0
