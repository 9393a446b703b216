"""`plan`: what shall be done now, decided from the whole world (level), never from one event (edge).

Each decision is an Event and is evolved at once, so that the next one sees its effect on caps, holds and supply.
The same world, policy and time always give the same decisions.
"""

from __future__ import annotations

from scheduling import notices, reruns
from scheduling.draft import LAUNCHES_A_TICK, Draft, Plan
from scheduling.model import UnixMs
from scheduling.policy import Policy
from scheduling.supply import hand_over, keep_floors, route, serve
from scheduling.upkeep import forget, open_funds, wake, with_floor
from scheduling.world import World

__all__ = ["Plan", "plan"]


def plan(world: World, policy: Policy, now_ms: UnixMs) -> Plan:
    """Decide everything that the world calls for at `now_ms`. The world has evolved when it returns."""
    draft = Draft(world, policy, now_ms)
    open_funds(draft)
    wake(draft)
    route(draft)
    hand_over(draft)
    serve(draft)
    keep_floors(draft)
    world.refused = draft.plan.refusals
    reruns.decide(draft)
    notices.tell(draft)
    forget(draft)
    draft.plan.next_wake_ms = _next_wake(draft)
    return draft.plan


def _next_wake(draft: Draft) -> UnixMs:
    """The next deadline of a record; soon when a bound was reached; each minute while windows or refusals wait."""
    now_ms, wakes = draft.now_ms, draft.world.wakes
    if draft.launches >= LAUNCHES_A_TICK:
        return now_ms
    told = draft.policy.on_deadline is not None and bool(draft.world.blocked)
    waiting = told or bool(draft.plan.refusals) or bool(with_floor(draft.policy))
    times = [wakes[0][0]] if wakes else []
    if waiting:
        times.append(now_ms - now_ms % 60_000 + 60_000)
    return min(times, default=0)
