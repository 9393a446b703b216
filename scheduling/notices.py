"""Notice runners: jobs that wait past the policy's deadline are ended by a short-lived machine that says why.

Its registration has the job's own labels and nobody else's jobs; at its start hook the machine prints what `why`
says of the job and ends it before a step. It is launched like any other, only shorter: funds, caps and rules hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile

from scheduling import messages as m
from scheduling.draft import LAUNCHES_A_TICK, Draft
from scheduling.fairness import Turns
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.matching import matcher
from scheduling.model import DurationMs, Job, Pool, Verdict
from scheduling.placement import Choice, Wish
from scheduling.policy import RunnerType, matches
from scheduling.supply import choose, planned
from scheduling.upkeep import reap
from scheduling.world import NEEDS_FACTS

LIFE_MS: DurationMs = 10 * 60_000
AT_ONCE = 3
"""Notice runners that live at the same time: an explanation is worth a little money, not a fleet."""
LOOKED_AT = 50
"""Waiting jobs of one pool, and of those without one, that a round looks at."""

_UNREGISTERED = (RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING, RunnerState.READY)


def tell(draft: Draft) -> None:
    """See to the notice runners that live, and launch for jobs that have waited too long for anything else."""
    _see_to(draft)
    rule, world = draft.policy.on_deadline, draft.world
    if rule is None or rule.action != "explain":
        return
    turns = Turns(world, draft.policy.fair_share, draft.now_ms)
    for job, rtype, pool in _overdue(draft, rule.after_ms):
        if len(world.notices) >= AT_ONCE or draft.launches >= LAUNCHES_A_TICK:
            return
        short = replace(rtype, max_lifetime_ms=LIFE_MS, ready_max_age_ms=LIFE_MS)
        wish = Wish(short, job.repository, pool.providers, matcher(draft.policy).taste(job), job_ms=60_000)
        capped = turns.capped(job.repository)
        choice = (Verdict(rtype.name, refusal=capped),) if capped else choose(draft, wish)
        if isinstance(choice, Choice):
            event = planned(draft, short, choice, "", job)
            terms = replace(
                event.terms, labels=job.labels, ready_max_age_ms=LIFE_MS, max_lifetime_ms=LIFE_MS, notice=True
            )
            draft.launches += 1
            draft.decide(replace(event, terms=terms))
        else:
            draft.plan.refusals[f"notice:{job.key}"] = choice


def _overdue(draft: Draft, after_ms: DurationMs) -> Iterator[tuple[Job, RunnerType, Pool]]:
    """Jobs that were not told yet, with the type that would serve them: those that no launch could serve now, and
    those that a type's access, share or rules keep out although it is open to their repository."""
    world, rules = draft.world, matcher(draft.policy)
    overdue_ms = draft.now_ms - after_ms
    stuck = [
        key
        for name in draft.plan.refusals
        for key in takewhile(  # a queue is oldest first
            lambda key: world.jobs[key].queued_ms <= overdue_ms, islice(world.queued.get(name, ()), LOOKED_AT)
        )
    ]
    for key in (*stuck, *islice(world.blocked, LOOKED_AT)):
        job = world.jobs[key]
        if job.notice or job.blocked == NEEDS_FACTS or job.queued_ms > overdue_ms:
            continue
        for rtype in rules.types(job.labels):
            if matches(rtype.access.repositories, job.repository) and job.runner_type in ("", rtype.name):
                yield job, rtype, rules.pool(rtype, job)
                break


def _see_to(draft: Draft) -> None:
    """Register what has booted, and let go whose job waits no longer: GitHub might give it another one."""
    world = draft.world
    for runner_id in list(world.notices):
        runner = world.runners[runner_id]
        job = world.jobs.get(runner.launched_for)
        if job is None or job.state is not JobState.QUEUED:
            if runner.state in (*_UNREGISTERED, RunnerState.REGISTERING, RunnerState.IDLE):
                reap(draft, runner, GoneReason.SURPLUS)
        elif runner.state is RunnerState.READY:
            target = f"repo:{job.repository}"
            draft.decide(m.RunnerAssigned(draft.now_ms, runner.id, "", target, job.repository))
