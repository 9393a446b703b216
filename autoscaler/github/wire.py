"""The parts of GitHub's REST answers that we use, decoded leniently, and the facts that they become.

Shapes: docs.github.com/en/rest/actions (self-hosted-runners, workflow-runs, workflow-jobs), /rest/apps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from githubkit.response import Response

from autoscaler.github.errors import transient
from scheduling.lifecycle import JobState
from scheduling.messages import JobReported
from scheduling.model import RunFacts, UnixMs

Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class Registration:
    """A self-hosted runner as GitHub lists it. `busy` False is no proof of idleness: it lags by minutes."""

    id: int
    name: str
    online: bool
    busy: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Jit:
    """A registration and the config that its runner starts with; GitHub tells the config this once."""

    registration_id: int
    config: str = field(repr=False)


class Labelled(msgspec.Struct):
    name: str


class RunnerShape(msgspec.Struct):
    id: int
    name: str
    status: str = "offline"
    busy: bool = False
    labels: list[Labelled] = []

    def registration(self) -> Registration:
        labels = tuple(label.name for label in self.labels)
        return Registration(self.id, self.name, self.status == "online", self.busy, labels)


class JitShape(msgspec.Struct):
    runner: RunnerShape
    encoded_jit_config: str


class RepositoryShape(msgspec.Struct):
    id: int
    full_name: str
    archived: bool = False
    disabled: bool = False


class RunShape(msgspec.Struct):
    id: int
    event: str
    status: str | None = None
    repository: RepositoryShape | None = None
    head_repository: RepositoryShape | None = None
    head_branch: str | None = None
    run_attempt: int = 1

    def facts(self) -> RunFacts:
        """A run whose head repository is another one, or is gone, counts as a fork; then no ref is trusted.

        GitHub has no ref here: a tag shows as `head_branch` too, and only a release is known to run on a tag.
        """
        head, base = self.head_repository, self.repository
        fork = head is None or base is None or head.id != base.id
        if fork or not self.head_branch:
            return RunFacts(self.event, fork)
        kind = "tags" if self.event == "release" else "heads"
        return RunFacts(self.event, fork, f"refs/{kind}/{self.head_branch}")


class JobShape(msgspec.Struct):
    id: int
    run_id: int
    status: str
    run_attempt: int | None = None
    name: str = ""
    workflow_name: str | None = None
    head_branch: str | None = None
    labels: list[str] = []
    conclusion: str | None = None
    runner_name: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def reported(self, repository: str, at_ms: UnixMs) -> JobReported:
        state = JobState(self.status) if self.status in set(JobState) else JobState.WAITING
        begun = state in (JobState.IN_PROGRESS, JobState.COMPLETED)  # before, `started_at` is its creation
        return JobReported(
            at_ms=at_ms,
            state=state,
            job_id=self.id,
            run_id=self.run_id,
            run_attempt=self.run_attempt or 1,
            repository=repository,
            labels=tuple(self.labels),
            name=self.name,
            workflow=self.workflow_name or "",
            branch=self.head_branch or "",
            conclusion=self.conclusion or "",
            runner_name=self.runner_name or "",
            created_ms=unix_ms(self.created_at),
            started_ms=unix_ms(self.started_at) if begun else 0,
            completed_ms=unix_ms(self.completed_at),
        )


class Account(msgspec.Struct):
    login: str = ""  # an enterprise has none


class InstallationShape(msgspec.Struct):
    id: int
    account: Account | None = None
    suspended_at: datetime | None = None


class TokenShape(msgspec.Struct):
    token: str
    expires_at: datetime


class GroupShape(msgspec.Struct):
    id: int
    name: str


class DeliveryShape(msgspec.Struct):
    id: int
    event: str
    status_code: int
    delivered_at: datetime


class PageShape(msgspec.Struct):
    total_count: int


class RunnersPage(PageShape):
    runners: list[RunnerShape]


class RunsPage(PageShape):
    workflow_runs: list[RunShape]


class JobsPage(PageShape):
    jobs: list[JobShape]


class RepositoriesPage(PageShape):
    repositories: list[RepositoryShape]


class GroupsPage(PageShape):
    runner_groups: list[GroupShape]


def decode(response: Response[Any], shape: type[Shape]) -> Shape:
    """The answer's body; a malformed one is a transient error that names the field."""
    try:
        return msgspec.json.decode(response.content, type=shape)
    except msgspec.DecodeError as error:
        reason = str(error)
    raise transient(f"GitHub's answer to {response.raw_request.url.path} is not as documented: {reason}")


def unix_ms(moment: datetime | None) -> UnixMs:
    return int(moment.timestamp() * 1000) if moment else 0
