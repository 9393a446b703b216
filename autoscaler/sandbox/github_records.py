"""Records of the GitHub stand-in: runs, jobs, registrations, groups, and how long GitHub waits for what."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduling.model import DurationMs, UnixMs

MINUTE_MS: DurationMs = 60_000
DAY_MS: DurationMs = 86_400_000
DEFAULT_GROUP = 1


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to put in a run. `duration_ms`: how long a machine works on it, in the stand-in's clock."""

    name: str
    labels: tuple[str, ...]
    duration_ms: DurationMs = 60_000


@dataclass(slots=True)
class Run:
    """A workflow run. `closed` says that GitHub calls it completed, whatever its jobs say (case K27)."""

    id: int
    repository: str
    event: str
    fork: bool
    ref: str
    workflow: str
    created_ms: UnixMs
    attempt: int = 1
    jobs: list[int] = field(default_factory=list)
    closed: bool = False

    @property
    def branch(self) -> str:
        """GitHub's `head_branch`: the ref without its prefix; a tag looks like a branch of the same name."""
        return self.ref.removeprefix("refs/").removeprefix("heads/").removeprefix("tags/")


@dataclass(slots=True)
class Job:
    """A job and its true story. `starts` counts how often a runner began it; `state` is GitHub's `status`."""

    id: int
    run_id: int
    attempt: int
    repository: str
    name: str
    labels: tuple[str, ...]
    duration_ms: DurationMs
    queued_ms: UnixMs
    state: str = "queued"
    conclusion: str = ""
    runner_id: int = 0
    runner_name: str = ""
    started_ms: UnixMs = 0
    completed_ms: UnixMs = 0
    starts: int = 0
    given_to: int = 0  # the registration that it waits for or runs on
    wanted: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.wanted = frozenset(label.casefold() for label in self.labels)


@dataclass(slots=True)
class Registration:
    """A runner as GitHub lists it, with what only GitHub knows of it.

    `target` as in `github.client`. `assigned` is the job that waits for the runner to fetch it, `job` the one
    that runs; `heard_ms` is when the runner was last there (while it polls it is).
    """

    id: int
    name: str
    target: str
    labels: tuple[str, ...]
    config: str = field(repr=False)
    created_ms: UnixMs
    group_id: int = DEFAULT_GROUP
    session: str = ""
    online: bool = False
    polling: bool = False
    heard_ms: UnixMs = 0
    assigned: int = 0
    assigned_ms: UnixMs = 0
    job: int = 0
    offered: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.offered = frozenset(label.casefold() for label in self.labels)

    @property
    def idle(self) -> bool:
        return self.online and not self.assigned and not self.job


@dataclass(slots=True)
class Group:
    """A runner group of an organisation; `repositories` None: all of them may use it."""

    id: int
    owner: str
    name: str
    repositories: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long GitHub waits before it gives something up, in the stand-in's clock."""

    fetch_ms: DurationMs = MINUTE_MS  # a job that its runner does not fetch goes back to the queue
    silence_ms: DurationMs = MINUTE_MS  # an idle runner that does not poll is offline
    lost_ms: DurationMs = 10 * MINUTE_MS  # a job whose runner is gone fails
    unused_ms: DurationMs = 10 * MINUTE_MS  # an unused JIT registration is removed (reports: 2 to 60 min)
    offline_ms: DurationMs = DAY_MS  # an ephemeral registration that was used and is offline is removed
    queued_ms: DurationMs = DAY_MS  # a job that nobody takes fails


class NameExists(Exception):
    """A runner of that name is registered there already."""


class StillRunning(Exception):
    """The runner runs a job and cannot be removed."""


def scope(target: str) -> str:
    """Where a registration lives: its repository, or its organisation (groups share its names and its list)."""
    kind, _, place = target.casefold().partition(":")
    return place if kind == "repo" else place.partition("/")[0]
