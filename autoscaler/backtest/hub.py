"""GitHub's rule: a runner takes the oldest queued job at its target whose labels are a subset of its own.

Only what is offered and asked is kept here, never why. Rows are jobs of the recording, older ones have smaller
numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from scheduling.model import UnixMs

Labels = frozenset[str]


@dataclass(slots=True, eq=False)
class Registration:
    """One ephemeral runner at GitHub. `labels` are case-folded."""

    runner_id: str
    target: str
    labels: Labels
    online_ms: UnixMs


@dataclass(slots=True)
class Hub:
    """Queued jobs by repository and labels, idle runners by target and labels. Both oldest first."""

    _queued: dict[str, dict[Labels, deque[int]]] = field(default_factory=dict)
    _gone: set[int] = field(default_factory=set)  # queued rows that were cancelled; removed when met
    _idle: dict[str, dict[Labels, dict[str, Registration]]] = field(default_factory=dict)
    _groups: dict[str, set[str]] = field(default_factory=dict)  # owner -> targets of its runner groups

    def queue(self, row: int, repository: str, labels: Labels) -> Registration | None:
        """The runner that takes the job at once; else it waits for one."""
        owner = repository.split("/", 1)[0]
        best: Registration | None = None
        for target in (f"repo:{repository}", f"org:{owner}", *self._groups.get(owner, ())):
            for has, members in self._idle.get(target, {}).items():
                if members and labels and labels <= has:
                    first = next(iter(members.values()))
                    if best is None or first.online_ms < best.online_ms:
                        best = first
        if best is not None:
            self.leave(best)
        else:
            self._queued.setdefault(repository, {}).setdefault(labels, deque()).append(row)
        return best

    def cancel(self, row: int) -> None:
        """The queued job of this row waits no longer."""
        self._gone.add(row)

    def register(self, runner: Registration) -> int | None:
        """The row of the job that the runner takes at once; None: it is idle from now on."""
        best: deque[int] | None = None
        for repository in self._repositories(runner.target):
            for labels, rows in self._queued[repository].items():
                while rows and rows[0] in self._gone:
                    self._gone.discard(rows.popleft())
                if rows and labels and labels <= runner.labels and (best is None or rows[0] < best[0]):
                    best = rows
        if best is not None:
            return best.popleft()
        if runner.target.startswith("group:"):
            owner = runner.target.removeprefix("group:").split("/", 1)[0]
            self._groups.setdefault(owner, set()).add(runner.target)
        self._idle.setdefault(runner.target, {}).setdefault(runner.labels, {})[runner.runner_id] = runner
        return None

    def leave(self, runner: Registration) -> None:
        """An idle runner took a job, was deleted, or lost its machine."""
        self._idle.get(runner.target, {}).get(runner.labels, {}).pop(runner.runner_id, None)

    def _repositories(self, target: str) -> list[str]:
        kind, _, name = target.partition(":")
        if kind == "repo":
            return [name] if name in self._queued else []
        owner = name.split("/", 1)[0]
        return [repository for repository in self._queued if repository.split("/", 1)[0] == owner]
