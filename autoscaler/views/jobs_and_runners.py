"""What `/api/v1` says of a world: plain functions from a `View` to documents that JSON can say.

Here are jobs and runners; `fleet_views` has the rest. Amounts are decimal strings of dollars with six places,
times are RFC 3339 or null. Lists are bounded and say how to go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from autoscaler.github.budget import Budget
from autoscaler.observed import Observed
from autoscaler.views.newest import Mark, mark_of, newest_first
from autoscaler.views.values import UNROUTABLE, hold_of, offer_words, seconds, time, usd
from scheduling import ledger
from scheduling.lifecycle import LIVE, JobState, RunnerState
from scheduling.model import Job, Runner, UnixMs, Verdict
from scheduling.policy import Policy
from scheduling.world import World, job_key

Document = dict[str, Any]
T = TypeVar("T")

LIMIT = 100
LIMIT_MAX = 1000
ATTEMPTS_MAX = 60
"""GitHub ends the re-runs of a run at 50."""
JOB_STATES = ("waiting", "queued", "blocked", "unroutable", "in_progress", "completed")
"""`blocked` and `unroutable` jobs are queued ones without a pool; `waiting` is GitHub's own (an approval)."""


@dataclass(frozen=True, slots=True)
class View:
    """What one answer is made from. `refusals` as in `Plan`; a replica that does not lead may know no offers.

    `policy_error`: why the policy file as it is now does not rule; empty when it does. `observed`: what this
    replica compared under `--observe`, while it leads.
    """

    world: World
    policy: Policy
    refusals: Mapping[str, tuple[Verdict, ...]]
    leading: bool
    policy_error: str
    now_ms: UnixMs
    budgets: tuple[Budget, ...] = ()
    observed: Observed | None = None


class NoSuchThing(Exception):
    """Nothing has that name; the text says what to do."""


class BadQuery(Exception):
    """A query parameter cannot be used; the text names it and what was expected."""


# ---- jobs --------------------------------------------------------------------------------------------------


def job_state(job: Job) -> str:
    """One of `JOB_STATES`."""
    if job.state is JobState.QUEUED and job.blocked:
        return UNROUTABLE if job.blocked.startswith(UNROUTABLE) else "blocked"
    return job.state.value


def job(view: View, job_: Job) -> Document:
    attempt = job_.key.rpartition(".")[2]
    waited_ms = job_.started_ms - job_.queued_ms if job_.started_ms and job_.queued_ms else None
    return {
        "id": job_.key,
        "job_id": job_.job_id,
        "run_id": job_.run_id,
        "run_attempt": int(attempt),
        "repository": job_.repository,
        "workflow": job_.workflow,
        "name": job_.name,
        "branch": job_.branch,
        "labels": list(job_.labels),
        "state": job_state(job_),
        "blocked": job_.blocked,
        "conclusion": job_.conclusion,
        "runner_type": job_.runner_type,
        "pool": job_.pool,
        "runner": job_.runner,
        "runner_name": job_.runner_name,
        "provider": view.world.runners[job_.runner].offer.provider if job_.runner in view.world.runners else "",
        "queued_at": time(job_.queued_ms),
        "started_at": time(job_.started_ms),
        "completed_at": time(job_.completed_ms),
        "queue_seconds": None if waited_ms is None else seconds(max(0, waited_ms)),
    }


def jobs(view: View, query: Mapping[str, str]) -> Document:
    """Newest first. Query: `state` (of JOB_STATES), `repository`, `limit`, `after` (the last page's `next`)."""
    check(query, "state", "repository", "limit", "after")
    state, repository = one_of(query, "state", JOB_STATES), query.get("repository", "").casefold()
    mark = _mark(query)
    found = (
        job_
        for job_ in _jobs_in(view.world, state, mark)
        if (not state or job_state(job_) == state)
        and (not repository or job_.repository.casefold() == repository)
        and (mark is None or mark_of(job_) < mark)
    )
    page, further = _page(found, query, mark_of)
    return {"jobs": [job(view, job_) for job_ in page], "next": further}


def _jobs_in(world: World, state: str, mark: Mark | None) -> Iterable[Job]:
    """The jobs that may be in that state, newest first: the unfinished ones are few enough to be sorted."""
    if state in ("", "completed"):
        return newest_first(world, mark)
    return sorted(unfinished(world), key=mark_of, reverse=True)


def unfinished(world: World) -> Iterator[Job]:
    return (world.jobs[key] for keys in world.runs.values() for key in keys)


def find_job(view: View, name: str) -> Job:
    """By `JOB_ID` (its latest attempt) or `JOB_ID.ATTEMPT`. Raises `NoSuchThing`."""
    world = view.world
    job_id, _, attempt = name.partition(".")
    if not re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,9})?", name):
        raise NoSuchThing(
            f"{name[:60]!r} is no job id; it is the number in the job's address at GitHub, or ID.ATTEMPT"
        )
    if attempt:
        found = world.jobs.get(name)
    else:
        attempts = (world.jobs.get(job_key(int(job_id), number)) for number in range(ATTEMPTS_MAX, 0, -1))
        found = next((job_ for job_ in attempts if job_), None)
    if found is not None:
        return found
    if ended := world.tombstones.get(name if attempt else f"{job_id}.1"):
        raise NoSuchThing(f"job {name} ended at {time(ended)}; its record is not kept any longer")
    raise NoSuchThing(f"no job {name} is known; GitHub may not have announced it, or its labels are not ours")


# ---- runners -----------------------------------------------------------------------------------------------


def runner(view: View, runner_: Runner) -> Document:
    gone = runner_.state is RunnerState.GONE
    start_ms, end_ms = ledger.lifetime(runner_)
    cost = runner_.cost if gone else ledger.price_of(runner_.price, (runner_.stop_ms or view.now_ms) - start_ms)
    return {
        "id": runner_.id,
        "name": f"{view.world.fleet}-{runner_.id}",
        "state": runner_.state.value,
        "reason": runner_.reason.value if runner_.reason else "",
        "detail": runner_.detail,
        "boot": boot(view, runner_),
        "log": list(runner_.log),
        "image": runner_.terms.image,
        "runner_type": runner_.runner_type,
        "pool": runner_.pool,
        "target": runner_.target,
        **offer_words(runner_.offer),
        "price_usd_per_hour": usd(runner_.price),
        "fund": runner_.fund,
        "hold_usd": usd(0 if gone else hold_of(runner_)),
        "cost_usd": usd(cost if gone or runner_.ref else 0),
        "launched_for": runner_.launched_for,
        "running": runner_.running,
        "machine": runner_.ref,
        "adopted": runner_.adopted,
        "policy": runner_.terms.policy_hash,
        "planned_at": time(runner_.planned_ms),
        "created_at": time(runner_.created_ms),
        "booted_at": time(runner_.booted_ms),
        "jit_at": time(runner_.jit_ms),
        "registered_at": time(runner_.registered_ms),
        "started_at": time(runner_.started_ms),
        "interrupted_at": time(runner_.interrupted_ms),
        "taken_at": time(runner_.taken_ms),
        "ended_at": time(runner_.ended_ms),
        "stopped_at": time(end_ms if runner_.stop_ms or runner_.absent_ms else 0),
        "gone_at": time(runner_.gone_ms),
    }


def boot(view: View, runner_: Runner) -> Document:
    """What its machine said last that it does while it boots, for how long, and when it was heard of."""
    since_ms, heard_ms = runner_.boot_since_ms, runner_.heard_ms
    return {
        "doing": runner_.boot,
        "seconds": seconds(max(0, view.now_ms - since_ms)) if since_ms else None,
        "heard_at": time(heard_ms),
        "heard_seconds": seconds(max(0, view.now_ms - heard_ms)) if heard_ms else None,
    }


def runners(view: View, query: Mapping[str, str]) -> Document:
    """Newest first. Query: `state` (one, or `live`, the default), `provider`, `runner_type`, `limit`, `after`."""
    check(query, "state", "provider", "runner_type", "limit", "after")
    world = view.world
    state = one_of(query, "state", ("live", *(state.value for state in RunnerState))) or "live"
    states = LIVE if state == "live" else (RunnerState(state),)
    provider, rtype = query.get("provider"), query.get("runner_type")
    mark = _mark(query)
    of_state = (world.runners[key] for state_ in states for key in world.by_state[state_])
    found = [
        each
        for each in of_state
        if (not provider or each.offer.provider == provider)
        and (not rtype or each.runner_type == rtype)
        and (mark is None or _runner_mark(each) < mark)
    ]
    page, further = _page(sorted(found, key=_runner_mark, reverse=True), query, _runner_mark)
    return {"runners": [runner(view, each) for each in page], "next": further}


def _runner_mark(runner_: Runner) -> Mark:
    return runner_.planned_ms, runner_.id


# ---- pages -------------------------------------------------------------------------------------------------


def _page(found: Iterable[T], query: Mapping[str, str], mark: Callable[[T], Mark]) -> tuple[list[T], str | None]:
    """The first `limit` of what is in order, and the mark `MS~KEY` with which the next page begins, if any."""
    limit = limit_of(query)
    items = list(islice(found, limit + 1))
    if len(items) <= limit:
        return items, None
    at_ms, key = mark(items[limit - 1])
    return items[:limit], f"{at_ms}~{key}"


def _mark(query: Mapping[str, str]) -> Mark | None:
    text = query.get("after", "")
    at_ms, _, key = text.partition("~")
    if text and not re.fullmatch("[0-9]{1,20}", at_ms):
        raise BadQuery("after: expected what `next` of the page before said")
    return (int(at_ms), key) if text else None


def limit_of(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(LIMIT))
    if not (text.isdecimal() and len(text) < 8 and 1 <= int(text) <= LIMIT_MAX):
        raise BadQuery(f"limit: {text[:20]!r} is not a number from 1 to {LIMIT_MAX}")
    return int(text)


def one_of(query: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = query.get(name, "")
    if value and value not in known:
        raise BadQuery(f"{name}: {value[:40]!r} is none of {', '.join(known)}")
    return value


def check(query: Mapping[str, str], *known: str) -> None:
    """Refuse a parameter that would be ignored."""
    for name in query:
        if name not in known:
            raise BadQuery(f"{name[:40]!r} is no parameter here; known: {', '.join(known) or 'none'}")
