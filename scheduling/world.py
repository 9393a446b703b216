"""The world: all records, and the indices that keep a tick cheap. `scheduling.evolve` is its only writer.

Records (kinds `job`, `tombstone`, `runner`, `pool`, `cooldown`, `fund`, `switch`, `usage`,
`spend`, `estimate`, `demand`, `bid`, `rerun`, `totals`) are persisted by the
store. Offers and gates are volatile: each leader learns them anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from scheduling.lifecycle import LIVE, SUPPLY, JobState, RerunState, RunnerState
from scheduling.model import (
    Bid,
    Cooldown,
    Demand,
    Estimate,
    FundAccount,
    Job,
    Offer,
    Pool,
    Rerun,
    Runner,
    Spend,
    Totals,
    UnixMs,
    Usage,
    Verdict,
)
from scheduling.reaping import deadline

Key = tuple[str, str]
"""(kind, name) of one record."""

PAUSED = "fleet"
"""The switch that `pause` sets: no launches."""

LIVE_NAMES = "live names"
"""In the cache: the policy that is known to name the type and provider of every live runner."""

NEEDS_FACTS = "waiting for GitHub to say where its run comes from"
"""Why a job is blocked whose access or rules depend on what only `GET runs/{id}` tells."""


class World:
    """All that one fleet knows. Read its attributes freely; change it through `evolve` alone."""

    def __init__(self, fleet: str) -> None:
        self.fleet = fleet
        self._prefix = f"{fleet}-"  # of the names of our runners at GitHub
        self.jobs: dict[str, Job] = {}
        self.tombstones: dict[str, UnixMs] = {}
        self.runners: dict[str, Runner] = {}
        self.pools: dict[str, Pool] = {}
        self.cooldowns: dict[str, Cooldown] = {}
        self.funds: dict[str, FundAccount] = {}
        self.switches: dict[str, str] = {}
        self.usage: dict[str, Usage] = {}
        self.spends: dict[str, Spend] = {}
        self.learned: dict[str, Estimate] = {}
        self.demand: dict[str, Demand] = {}
        self.reruns: dict[str, Rerun] = {}
        self.bids: dict[str, Bid] = {}
        self.totals = Totals()
        # volatile: learned by each leader
        self.epoch = ""
        self.offers: dict[str, tuple[Offer, ...]] = {}
        self.gates: dict[str, str] = {}
        self.github_pace: dict[str, int] = {}  # owner -> registrations a minute that GitHub takes
        self.taken_ms: UnixMs = 0  # when this leader took over
        self.listed: dict[str, UnixMs] = {}  # provider -> begin of the inventory that opened its gate, 0: none yet
        self.proof_ms: UnixMs = 0  # no inventory that began before opens a gate
        self.registrations_ms: UnixMs = 0  # begin of the last whole list of our registrations
        self.cache: dict[Any, Any] = {}  # derived data, owned by placement
        # indices
        self.queued: dict[str, dict[str, None]] = {}  # pool -> its queued jobs, oldest first
        self.flexible: dict[str, int] = {}  # pool -> queued jobs that another runner type could serve
        self.unrouted: dict[str, None] = {}  # queued jobs that plan must route
        self.blocked: dict[str, None] = {}  # queued jobs without a pool, with a stated reason
        self.facts_wanted: dict[tuple[str, int], None] = {}  # runs whose facts block a job
        self.runs: dict[tuple[str, int], dict[str, None]] = {}  # unfinished jobs by run
        self.finished: dict[str, None] = {}  # completed jobs, in order of completion
        self.supply: dict[str, dict[str, None]] = {}  # pool -> runners that can still take one of its jobs
        self.unmet: dict[str, dict[str, None]] = {}  # runner type -> pools with more demand than supply
        self.surplus: dict[str, None] = {}  # pools with more supply than demand
        self.free: dict[str, dict[str, None]] = {}  # runner type -> runners on their way to no pool, or ready
        # "", `type:`, `provider:`, `offer:`, `repository:` -> runners not proven gone
        self.live: dict[str, int] = {"": 0}
        self.by_state: dict[RunnerState, dict[str, None]] = {state: {} for state in RunnerState}
        self.taken: dict[str, None] = {}  # runners that their provider took, whose jobs plan has not judged
        self.refused: dict[
            str, tuple[Verdict, ...]
        ] = {}  # pool -> why the last round of planning did not serve it
        self.notices: dict[str, None] = {}  # notice runners that are not proven gone
        self.reruns_due: dict[str, None] = {}
        self.reaps = (0, 0)  # (minute, kills decided in it)
        self.next_forget_ms: UnixMs = 0
        self.due: dict[str, UnixMs] = {}  # runner -> its next deadline among the wakes
        self.wakes: list[tuple[UnixMs, str, str]] = []  # heap of (time, `runner` or `job`, key)

    # ---- records --------------------------------------------------------------------------------------------

    def record(self, key: Key) -> object | None:
        """The record of that key as the store shall hold it; None when it is gone."""
        kind, name = key
        if kind == "totals":
            return self.totals
        table: dict[str, Any] = getattr(self, TABLES[kind])
        return table.get(name)

    def restore(self, records: Iterable[tuple[str, str, Any]]) -> None:
        """Fill an empty world with (kind, name, record) from the store, in any order. Indices are oldest first."""
        jobs: list[Job] = []
        runners: list[Runner] = []
        for kind, name, record in records:
            if kind == "totals":
                self.totals = record
            elif kind == "job":
                jobs.append(record)
            elif kind == "runner":
                runners.append(record)
            else:
                getattr(self, TABLES[kind])[name] = record
        self.tombstones = dict(sorted(self.tombstones.items(), key=lambda item: item[1]))
        for runner in sorted(runners, key=lambda runner: (runner.gone_ms, runner.planned_ms)):
            self.runners[runner.id] = runner
            self.index_runner(runner)
        for job in sorted(jobs, key=lambda job: (job.completed_ms, job.queued_ms, job.job_id)):
            self.jobs[job.key] = job
            if job.blocked != NEEDS_FACTS:
                job.blocked = ""  # routed anew: when to try again was not kept
            self.index_job(job)
        for runner in self.runners.values():
            self.index_taken(runner)
        for rerun in self.reruns.values():
            self.index_rerun(rerun)

    # ---- indices --------------------------------------------------------------------------------------------

    def index_job(self, job: Job) -> None:
        if job.state is JobState.COMPLETED:
            self.finished[job.key] = None
            return
        self.runs.setdefault((job.repository, job.run_id), {})[job.key] = None
        if job.state is JobState.QUEUED:
            if job.pool:
                self.queued.setdefault(job.pool, {})[job.key] = None
                if job.flexible:
                    self.flexible[job.pool] = self.flexible.get(job.pool, 0) + 1
                self.weigh(job.pool)
            elif job.blocked:
                self.blocked[job.key] = None
                if job.blocked == NEEDS_FACTS:
                    self.facts_wanted[(job.repository, job.run_id)] = None
            else:
                self.unrouted[job.key] = None

    def unindex_job(self, job: Job) -> None:
        if job.state is JobState.COMPLETED:
            self.finished.pop(job.key, None)
            return
        run = (job.repository, job.run_id)
        keys = self.runs.get(run)
        if keys is not None:
            keys.pop(job.key, None)
            if not keys:
                del self.runs[run]
                self.facts_wanted.pop(run, None)
        if job.key in self.queued.get(job.pool, ()):
            del self.queued[job.pool][job.key]
            if job.flexible:
                _count_down(self.flexible, job.pool)
            if not self.queued[job.pool]:
                del self.queued[job.pool]
            self.weigh(job.pool)
        self.blocked.pop(job.key, None)
        self.unrouted.pop(job.key, None)

    def index_runner(self, runner: Runner) -> None:
        if runner.state in LIVE:
            if runner.terms.notice:
                self.notices[runner.id] = None
            for scope in live_scopes(runner):
                count = self.live[scope] = self.live.get(scope, 0) + 1
                if count == 1:
                    self.cache.pop(LIVE_NAMES, None)
        self.weigh(self.place_runner(runner))

    def unindex_runner(self, runner: Runner) -> None:
        self.weigh(self.displace_runner(runner))
        if runner.state in LIVE:
            self.notices.pop(runner.id, None)
            for scope in live_scopes(runner):
                _count_down(self.live, scope)

    def index_taken(self, runner: Runner) -> None:
        if runner.taken_ms and runner.running not in self.reruns:
            self.taken[runner.id] = None

    def index_rerun(self, rerun: Rerun) -> None:
        if rerun.state is RerunState.DUE:
            self.reruns_due[rerun.job_key] = None
        else:
            self.reruns_due.pop(rerun.job_key, None)

    def move_to_repository(self, runner: Runner, repository: str) -> None:
        """A live runner is for another repository from now on."""
        _count_down(self.live, f"repository:{runner.repository}")
        runner.repository = repository
        scope = f"repository:{repository}"
        self.live[scope] = self.live.get(scope, 0) + 1

    def place_runner(self, runner: Runner) -> str:
        """The part of its indices that changes with every move: state, supply, deadline. The pool it supplies."""
        self.by_state[runner.state][runner.id] = None
        self.watch_runner(runner)
        if not is_supply(runner):
            return ""
        if runner.pool:
            self.supply.setdefault(runner.pool, {})[runner.id] = None
        else:
            self.free.setdefault(runner.runner_type, {})[runner.id] = None
        return runner.pool

    def displace_runner(self, runner: Runner) -> str:
        """Takes out what `place_runner` put in. The pool it supplied."""
        self.by_state[runner.state].pop(runner.id, None)
        index, name = (self.supply, runner.pool) if runner.pool else (self.free, runner.runner_type)
        members = index.get(name, {})
        if runner.id not in members:
            return ""
        del members[runner.id]
        if not members:
            del index[name]
        return runner.pool

    def weigh(self, pool: str) -> None:
        """Demand or supply of this pool (empty: of none) has changed."""
        if not pool:
            return
        demand, supply = len(self.queued.get(pool, ())), len(self.supply.get(pool, ()))
        name = self.pools[pool].runner_type
        if demand > supply:
            self.unmet.setdefault(name, {})[pool] = None
        elif name in self.unmet:
            self.unmet[name].pop(pool, None)
            if not self.unmet[name]:
                del self.unmet[name]
        if supply > demand:
            self.surplus[pool] = None
        else:
            self.surplus.pop(pool, None)

    def watch_runner(self, runner: Runner, after_ms: UnixMs = 0) -> None:
        """See to it that it is looked at by its deadline; an earlier look sees to the next one."""
        at_ms = deadline(runner)
        if at_ms > after_ms and self.due.get(runner.id, at_ms + 1) > at_ms:
            self.due[runner.id] = at_ms
            heapq.heappush(self.wakes, (at_ms, "runner", runner.id))

    def wake_at(self, at_ms: UnixMs, kind: str, key: str) -> None:
        """Look at this record again at that time (0: never)."""
        if at_ms:
            heapq.heappush(self.wakes, (at_ms, kind, key))

    def live_count(self, scope: str) -> int:
        return self.live.get(scope, 0)

    def runner_of(self, runner_name: str) -> Runner | None:
        """Our runner behind a GitHub runner name; None for other people's."""
        if not runner_name.startswith(self._prefix):
            return None
        return self.runners.get(runner_name[len(self._prefix) :])


def _count_down(counts: dict[str, int], name: str) -> None:
    """One less; what is at 0 is left out, save the count of all."""
    counts[name] -= 1
    if not counts[name] and name:
        del counts[name]


def job_key(job_id: int, run_attempt: int) -> str:
    """`{job id}.{run attempt}`; GitHub's published examples lack the attempt, then it is the first."""
    return f"{job_id}.{run_attempt or 1}"


Handlers = dict[type, Callable[[World, Any, UnixMs, set[Key]], None]]
"""Event class -> what writes it into the world and adds the keys of the records it changed."""

TABLES = {
    "job": "jobs",
    "tombstone": "tombstones",
    "runner": "runners",
    "pool": "pools",
    "cooldown": "cooldowns",
    "fund": "funds",
    "switch": "switches",
    "usage": "usage",
    "spend": "spends",
    "estimate": "learned",
    "demand": "demand",
    "bid": "bids",
    "rerun": "reruns",
}


_FREE = (RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING, RunnerState.READY)


def is_supply(runner: Runner) -> bool:
    """Whether the demand of its pool need not be launched for again.

    A busy runner counts until GitHub has said which job it runs: that job still stands in the queue.
    """
    if runner.adopted and runner.state in (RunnerState.STARTING, RunnerState.READY):
        return False  # its registration may have been made in the life that was lost: it gets no other
    if runner.terms.notice or (runner.interrupted_ms and runner.state is not RunnerState.BUSY):
        return False
    if not runner.pool and runner.state not in _FREE:
        return False  # it is registered somewhere, and only GitHub can say where
    return runner.state in SUPPLY or (runner.state is RunnerState.BUSY and not runner.running)


def live_scopes(runner: Runner) -> tuple[str, ...]:
    """Everything that a live runner counts against."""
    offer, _, provider = runner.offer.scopes
    return "", f"type:{runner.runner_type}", provider, offer, f"repository:{runner.repository}"
