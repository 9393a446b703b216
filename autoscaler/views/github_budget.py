"""What GitHub's limits have to do with a job's wait: its place on the way to a registration, and for how long."""

from __future__ import annotations

from autoscaler.github.budget import JIT, Budget
from autoscaler.views.jobs_and_runners import Document, View
from autoscaler.views.values import time
from scheduling.lifecycle import RunnerState
from scheduling.matching import owner_of
from scheduling.model import Job, Pool, Runner
from scheduling.registering import room, unregistered

MINUTE_MS = 60_000


def waits(view: View, job_: Job, pool: Pool, runner: Runner | None) -> Document | None:
    """None unless GitHub's budget is what the job waits for.

    `runner`: the one on its way for it. `place` counts those who are registered before it, and it.
    """
    owner = owner_of(pool.target)
    budgets = [each for each in view.budgets if each.resource == JIT and each.owner.casefold() == owner]
    if not budgets:
        return None
    ahead = [each for each in unregistered(view.world) if owner_of(view.world.pools[each.pool].target) == owner]
    pace = sum(each.limit for each in budgets)
    if runner is not None:
        if runner.state is not RunnerState.REGISTERING or runner.registration_id:
            return None
        place = ahead.index(runner) + 1
    elif len(ahead) < (room(view.world, owner, {each.offer.key for each in ahead}) or len(ahead) + 1):
        return None
    else:
        place = len(ahead) + _unserved_before(view, job_, owner) + 1
    wait_ms = _wait_ms(view, budgets, place)
    if not wait_ms:
        return None
    return {
        "owner": owner,
        "apps": len(budgets),
        "registrations_per_minute": pace,
        "place": place,
        "on_their_way": len(ahead),
        "expected_seconds": round(wait_ms / 1000),
        "next_at": time(max(view.now_ms, min(each.reset_ms for each in budgets))),
    }


def words(found: Document) -> str:
    """The document as the end of a sentence that begins with `waits for`."""
    apps = "one App" if found["apps"] == 1 else f"{found['apps']} Apps"
    pace, wait = found["registrations_per_minute"], _about(found["expected_seconds"])
    return (
        f"GitHub's limit: it is number {found['place']} to be registered at {found['owner']}, "
        f"which takes {pace} a minute through {apps}; expected in {wait}"
    )


def _about(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def _wait_ms(view: View, budgets: list[Budget], place: int) -> int:
    """Until the registration of that place begins: the next slot of any App, then all of them at their pace."""
    next_ms = max(0, min(each.reset_ms for each in budgets) - view.now_ms)
    at_once = sum(each.remaining for each in budgets if each.reset_ms <= view.now_ms)
    behind = max(0, place - max(1, at_once))
    return next_ms + behind * MINUTE_MS // sum(each.limit for each in budgets)


def _unserved_before(view: View, job_: Job, owner: str) -> int:
    """Jobs of that owner without a runner that came earlier."""
    world, count = view.world, 0
    for pool, queue in world.queued.items():
        if owner_of(world.pools[pool].target) != owner:
            continue
        for key in list(queue)[len(world.supply.get(pool, ())) :]:
            job = world.jobs[key]
            if (job.queued_ms, job.job_id) >= (job_.queued_ms, job_.job_id):
                break
            count += 1
    return count
