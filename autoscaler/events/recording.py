"""`serve --record DIR`: deliveries and the ends of machines as event files: redacted, packed, a new one each hour.

Redaction replaces values and never drops keys. Kept: action, states, times, ids of job and run, labels, and what
a policy decides by. Names become stand-ins, the same name the same one in all files of a directory: a repository
keeps its owner where the policy has a pattern for it, and its whole name where the policy spells it out, so that
every pattern of the policy says of the stand-in what it said of the name. All other texts become `redacted`.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import logging
import queue
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from autoscaler.events import machines
from autoscaler.events.machines import MachineLine
from autoscaler.views.values import time as rfc3339
from scheduling.messages import Event, RunFactsLearned
from scheduling.model import DurationMs, RunFacts, UnixMs
from scheduling.policy import Policy, matches
from scheduling.world import World

log = logging.getLogger(__name__)

ROTATE_MS: DurationMs = 3_600_000
FLUSH_LINES = 200
WAITING_MAX = 10_000
"""Deliveries that wait for the disk; more are left out and counted, because a recording must never hold CI up."""
RUNS_KEPT = 20_000
KEY_FILE = "names.key"
"""In the directory: makes the stand-ins. Who has it can check guesses; it is never part of a recording."""

_KEPT_TEXTS = frozenset({"action", "status", "conclusion", "created_at", "started_at", "completed_at", "event"})
_KEPT_NUMBERS = frozenset({"id", "run_id", "run_attempt", "runner_id"})
_NAMES = {"name": "job", "workflow_name": "workflow", "head_branch": "branch", "runner_name": "runner"}


class Redactor:
    """Stand-ins for names, by one key."""

    def __init__(self, key: bytes, policy: Policy) -> None:
        self._key = key
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """The patterns of this policy must go on saying the same."""
        access = [p for rtype in policy.runner_types.values() for p in rtype.access.repositories]
        funds = [p for fund in policy.funds.values() for p in fund.repositories]
        rules = [p for rule in policy.rules for p in rule.repository]
        shares = [*policy.fair_share.weights, *policy.fair_share.max_runners]
        self._repositories = tuple(dict.fromkeys([*access, *funds, *rules, *shares]))
        self._refs = tuple(p for rule in policy.rules for p in rule.ref)
        self._known: dict[str, str] = {}

    def payload(self, payload: Any) -> Any:
        """The delivery's payload with all its keys."""
        if not isinstance(payload, dict):
            return self._hidden(payload)
        found: dict[str, Any] = {}
        for key, value in payload.items():
            if key == "workflow_job" and isinstance(value, dict):
                found[key] = self._job(value)
            elif key == "repository" and isinstance(value, dict):
                found[key] = {**self._hidden(value), "full_name": self.repository(str(value.get("full_name", "")))}
            else:
                found[key] = value if key in _KEPT_TEXTS and isinstance(value, str) else self._hidden(value)
        return found

    def _job(self, job: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for key, value in job.items():
            kept = key in _KEPT_TEXTS or key in _KEPT_NUMBERS or key == "labels"
            if key in _NAMES and isinstance(value, str):
                found[key] = self.name(_NAMES[key], value)
            else:
                found[key] = value if kept else self._hidden(value)
        return found

    def _hidden(self, value: Any) -> Any:
        """The same shape without what it says."""
        if isinstance(value, dict):
            return {key: self._hidden(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._hidden(each) for each in value]
        if isinstance(value, bool) or value is None:
            return value
        return "redacted" if isinstance(value, str) else 0

    def name(self, kind: str, name: str) -> str:
        """`job-3fa96c01`; empty stays empty."""
        if not name:
            return ""
        return f"{kind}-{hmac.digest(self._key, f'{kind}/{name}'.encode(), hashlib.sha256).hex()[:10]}"

    def repository(self, name: str) -> str:
        found = self._known.get(name)
        if found is None:
            owner = name.split("/", 1)[0]
            stand_in = self.name("repository", name)
            tries = (f"{self.name('owner', owner)}/{stand_in}", f"{owner}/{stand_in}")
            found = self._known[name] = next((each for each in tries if self._same(name, each)), name)
        return found

    def _same(self, name: str, other: str) -> bool:
        pairs = ((name, other), (name.split("/", 1)[0], other.split("/", 1)[0]))
        return all(matches((p,), a) == matches((p,), b) for p in self._repositories for a, b in pairs)

    def facts(self, facts: RunFacts) -> dict[str, Any]:
        """The `run` key: a ref that no rule asks for becomes a stand-in."""
        kept = bool(self._refs) and matches(self._refs, facts.ref)
        return {
            "event": facts.event,
            "fork": facts.fork,
            "ref": facts.ref if kept or not facts.ref else f"refs/heads/{self.name('branch', facts.ref)}",
        }


@dataclass(frozen=True, slots=True)
class _Delivery:
    delivery: str
    body: bytes
    at_ms: UnixMs


@dataclass(frozen=True, slots=True)
class _Learned:
    repository: str
    run_id: int
    facts: RunFacts


@dataclass(frozen=True, slots=True)
class _Ended:
    line: MachineLine
    at_ms: UnixMs


class Recorder:
    """Writes in a thread of its own. `lost` counts deliveries that came faster than the disk, or with it full."""

    def __init__(self, directory: Path, policy: Policy) -> None:
        """Makes the directory and its key. OSError when it cannot."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.redactor = Redactor(_key(directory), policy)
        self.lost = 0
        self._facts: OrderedDict[tuple[str, int], RunFacts] = OrderedDict()
        self._waiting: queue.Queue[_Delivery | _Learned | _Ended | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()

    def take(self, delivery: str, body: bytes, now_ms: UnixMs) -> None:
        """One verified `workflow_job` delivery. Never waits, never raises."""
        try:
            self._waiting.put_nowait(_Delivery(delivery, body, now_ms))
        except queue.Full:
            self.lost += 1

    def hear(self, event: Event, world: World) -> None:
        """What GitHub said of a run, which lines from now on carry, and machines that ended; no other event."""
        if isinstance(event, RunFactsLearned) and event.facts is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(_Learned(event.repository, event.run_id, event.facts))
        elif line := machines.line_of(event, world):
            try:
                self._waiting.put_nowait(_Ended(line, event.at_ms))
            except queue.Full:
                self.lost += 1

    def close(self) -> None:
        """Everything that was taken is on disk."""
        self._waiting.put(None)
        self._thread.join()

    # ---- in the thread -------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        file: gzip.GzipFile | None = None
        ends_ms = lines = 0
        while (item := self._waiting.get()) is not None:
            if isinstance(item, _Learned):
                self._facts[item.repository, item.run_id] = item.facts
                if len(self._facts) > RUNS_KEPT:
                    self._facts.popitem(last=False)
                continue
            now_ms = item.at_ms
            try:
                if file is None or now_ms >= ends_ms:
                    if file is not None:
                        file.close()
                    file, ends_ms = self._open(now_ms), now_ms - now_ms % ROTATE_MS + ROTATE_MS
                file.write(self._line(item))
                lines += 1
                if lines % FLUSH_LINES == 0 or self._waiting.empty():
                    file.flush()
            except OSError as error:
                self.lost += 1
                log.error("recording to %s: %s", self.directory, error.strerror)
                file = None
            except (msgspec.MsgspecError, RecursionError) as error:
                self.lost += 1
                log.error("a delivery cannot be recorded: %s", error)
        if file is not None:
            file.close()

    def _open(self, now_ms: UnixMs) -> gzip.GzipFile:
        stamp = (rfc3339(now_ms) or "").replace(":", "").replace(".", "-")
        return gzip.GzipFile(self.directory / f"events-{stamp}.jsonl.gz", "ab", compresslevel=6)

    def _line(self, item: _Delivery | _Ended) -> bytes:
        if isinstance(item, _Ended):
            return (
                json.dumps(machines.recorded(item.line, rfc3339(item.at_ms)), separators=(",", ":")).encode()
                + b"\n"
            )
        payload = msgspec.json.decode(item.body)
        line = {
            "at": rfc3339(item.at_ms),
            "event": "workflow_job",
            "delivery": item.delivery,
            "payload": self.redactor.payload(payload),
        }
        if facts := self._facts.get(_run_of(payload)):
            line["run"] = self.redactor.facts(facts)
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def _run_of(payload: Any) -> tuple[str, int]:
    try:
        return payload["repository"]["full_name"], payload["workflow_job"]["run_id"]
    except (KeyError, TypeError):
        return "", 0


def _key(directory: Path) -> bytes:
    path = directory / KEY_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(secrets.token_bytes(32))
    return path.read_bytes()
