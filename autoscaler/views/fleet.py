"""What `/api/v1` says of the fleet as a whole: providers, funds, cooldowns, placements, and the summary.

Only facts with their times, never ages: a summary changes only when the world does, `at` apart.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from autoscaler.views import funds as fund_views
from autoscaler.views import observed
from autoscaler.views.jobs_and_runners import Document, View, check, job_state, limit_of, unfinished
from autoscaler.views.prices import prices
from autoscaler.views.values import UNROUTABLE, offer_words, time, usd
from scheduling.lifecycle import LIVE, RunnerState
from scheduling.model import Cooldown, Job, Runner
from scheduling.policy import ProviderPolicy
from scheduling.upkeep import floor_of
from scheduling.windows import is_open
from scheduling.world import PAUSED, World

SHOWN = 12
"""Pools, reasons and placements in a summary."""
REFUSALS = 3
"""Refusals shown for a pool; `why` has them all."""


def providers(view: View) -> Document:
    world = view.world
    states: dict[str, Counter[str]] = {}
    for runner in _live(world):
        states.setdefault(runner.offer.provider, Counter())[runner.state.value] += 1
    known = [
        _provider(view, provider, states.get(name, Counter())) for name, provider in view.policy.providers.items()
    ]
    strays = [
        {"name": name, "kind": "removed", "live": sum(counts.values()), "limit": None, "by_state": dict(counts)}
        for name, counts in states.items()
        if name not in view.policy.providers
    ]
    return {"providers": known + strays}


def _provider(view: View, provider: ProviderPolicy, states: Counter[str]) -> Document:
    world, name = view.world, provider.name
    closed = ""
    if PAUSED in world.switches:
        closed = "paused by an operator"
    elif f"provider:{name}" in world.switches or "all" in world.switches:
        closed = "drained by an operator"
    elif name in world.gates:
        closed = world.gates[name]
    elif not is_open(provider.available, view.now_ms):
        closed = f"outside {provider.available.text if provider.available else ''}"
    elif (cooldown := world.cooldowns.get(f"provider:{name}")) and view.now_ms < cooldown.until_ms:
        closed = f"cooling: {cooldown.why}"
    return {
        "name": name,
        "kind": provider.kind,
        "live": world.live_count(f"provider:{name}"),
        "limit": provider.max_runners,
        "by_state": dict(sorted(states.items())),
        "offers": len(world.offers[name]) if name in world.offers else None,
        "prices": prices(provider, world.offers.get(name, ()), view.now_ms),
        "closed": closed,
        "available": provider.available.text if provider.available else "",
        "cooldowns": sum(_of_provider(scope, name) for scope in world.cooldowns),
        "cost_usd": usd(world.totals.cost_by_provider.get(name, 0)),
    }


def _of_provider(scope: str, name: str) -> bool:
    return scope.partition(":")[2].partition("/")[0] == name and not scope.startswith("image:")


# ---- money -------------------------------------------------------------------------------------------------


# ---- cooldowns and placements ------------------------------------------------------------------------------


def cooldowns(view: View) -> Document:
    """Scopes that are not asked, soonest open first."""
    rows = sorted(view.world.cooldowns.values(), key=lambda each: (each.until_ms, each.scope))
    return {"cooldowns": [_cooldown(each, view.now_ms) for each in rows]}


def _cooldown(cooldown: Cooldown, now_ms: int) -> Document:
    """`state`: `counting` failures, `cooling` until `until`, `probing` with one launch, or `probe_due`."""
    if not cooldown.until_ms:
        state = "counting"
    elif now_ms < cooldown.until_ms:
        state = "cooling"
    else:
        state = "probing" if cooldown.probe else "probe_due"
    return {
        "scope": cooldown.scope,
        "state": state,
        "until": time(cooldown.until_ms),
        "why": cooldown.why,
        "failures": cooldown.failures,
        "probe": cooldown.probe,
    }


def placements(view: View, query: Mapping[str, str]) -> Document:
    """The latest choices of an offer and a fund, newest first. Query: `limit`."""
    check(query, "limit")
    return {"placements": _placements(view.world.runners.values(), limit_of(query))}


def _placements(runners: Iterable[Runner], limit: int) -> list[Document]:
    latest = heapq.nlargest(limit, runners, key=lambda runner: (runner.planned_ms, runner.id))
    return [_placement(runner) for runner in latest]


def _placement(runner: Runner) -> Document:
    refused = sum(bool(verdict.refusal) for verdict in runner.placement)
    return {
        "runner": runner.id,
        "at": time(runner.planned_ms),
        "runner_type": runner.runner_type,
        "job": runner.running or runner.launched_for,
        **offer_words(runner.offer),
        "price_usd_per_hour": usd(runner.price),
        "fund": runner.fund,
        "refused_before": refused,
        "state": runner.state.value,
        "reason": runner.reason.value if runner.reason else "",
        "detail": runner.detail,
    }


# ---- the summary -------------------------------------------------------------------------------------------


def summary(view: View) -> Document:
    """The whole state on one page."""
    world, policy = view.world, view.policy
    jobs = dict.fromkeys(("waiting", "queued", "blocked", UNROUTABLE, "in_progress"), 0)
    for job in unfinished(world):
        jobs[job_state(job)] += 1
    states = Counter(runner.state.value for runner in _live(world))
    totals = world.totals
    return {
        "at": time(view.now_ms),
        "fleet": world.fleet,
        "leading": view.leading,
        "policy": {"hash": policy.hash, "error": view.policy_error},
        "switches": [{"target": target, "by": by} for target, by in sorted(world.switches.items())],
        "jobs": {**jobs, "completed": totals.completed, "cancelled": totals.cancelled},
        "oldest_queued_at": time(min((_oldest(world, pool).queued_ms for pool in world.queued), default=0)),
        "runners": {
            "live": world.live_count(""),
            "limit": policy.max_runners,
            "by_state": dict(sorted(states.items())),
        },
        "totals": {
            "launched": totals.launched,
            "failed_launches": totals.failed_launches,
            "reaped_unused": totals.reaped_unused,
            "cost_usd": usd(sum(totals.cost_by_provider.values())),
        },
        **providers(view),
        **fund_views.funds(view),
        "pools": _pools(view),
        "floors": _floors(view),
        "blocked": _blocked(world),
        **cooldowns(view),
        "placements": _placements(_recent(world), SHOWN),
        "observed": observed.summary(view.observed),
        "github": [_budget(view, index) for index in range(len(view.budgets))],
    }


def _oldest(world: World, pool: str) -> Job:
    return world.jobs[next(iter(world.queued[pool]))]


def _pools(view: View) -> list[Document]:
    """Pools with queued jobs, those that lack most first."""
    world = view.world
    rows: list[Document] = []
    for key, queue in world.queued.items():
        supply, pool = len(world.supply.get(key, ())), world.pools[key]
        refusals = view.refusals.get(key, ())
        rows.append(
            {
                "pool": key,
                "runner_type": pool.runner_type,
                "target": pool.target,
                "queued": len(queue),
                "supply": supply,
                "oldest_queued_at": time(_oldest(world, key).queued_ms),
                "oldest_job": _oldest(world, key).key,
                "refusals": [
                    {"offer": verdict.offer, "fund": verdict.fund, "refusal": verdict.refusal}
                    for verdict in refusals[:REFUSALS]
                ],
                "refused": len(refusals),
            }
        )
    rows.sort(key=lambda row: (row["supply"] - row["queued"], row["oldest_queued_at"], row["pool"]))
    return rows[:SHOWN]


def _floors(view: View) -> list[Document]:
    """Ready floors: what is kept booted in advance, and why less than asked is."""
    rows = []
    for rtype in view.policy.runner_types.values():
        if rtype.ready:
            refusals = view.refusals.get(f"floor:{rtype.name}", ())
            rows.append(
                {
                    "runner_type": rtype.name,
                    "wanted": floor_of(rtype, view.now_ms),
                    "free": len(view.world.free.get(rtype.name, ())),
                    "refusal": f"{refusals[0].offer}: {refusals[0].refusal}" if refusals else "",
                }
            )
    return rows


def _blocked(world: World) -> list[Document]:
    """Jobs without a pool by reason, the most frequent first, each with one example."""
    counts = Counter(world.jobs[key].blocked for key in world.blocked)
    examples = {world.jobs[key].blocked: key for key in world.blocked}
    return [
        {"reason": reason, "jobs": count, "example": examples[reason], UNROUTABLE: reason.startswith(UNROUTABLE)}
        for reason, count in counts.most_common(SHOWN)
    ]


def _budget(view: View, index: int) -> Document:
    budget = view.budgets[index]
    return {
        "app": budget.app,
        "owner": budget.owner,
        "resource": budget.resource,
        "remaining": budget.remaining,
        "limit": budget.limit,
        "reset_at": time(budget.reset_ms),
    }


def _recent(world: World) -> Iterable[Runner]:
    """Live runners and those that ended last: enough for the latest placements without a look at all of them."""
    gone = islice(reversed(world.by_state[RunnerState.GONE]), 20 * SHOWN)
    return (*_live(world), *(world.runners[key] for key in gone))


def _live(world: World) -> Iterable[Runner]:
    return (world.runners[key] for state in LIVE for key in world.by_state[state])
