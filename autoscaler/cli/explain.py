"""`policy explain`: what a policy would do with one job, from the file alone. No I/O besides reading it.

The job goes through the same events, matching and planning as in the daemon, in a world that holds only what every
kind of provider sells by its bundled catalogue. What the file cannot tell is assumed, and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoscaler.cli.terminal import dollars
from autoscaler.policy.file import Loaded, provider_config
from autoscaler.views.jobs_and_runners import View
from autoscaler.views.offers import offer_rows, wish_for
from autoscaler.views.values import hold_of, time, usd
from providers import registry
from scheduling import ledger
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState
from scheduling.matching import matcher
from scheduling.model import Job, RunFacts, Runner, UnixMs
from scheduling.plan import plan
from scheduling.world import World

JOB_ID = 100  # in the part of jobs that any `share` takes at once

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One job, as GitHub would announce it, and what `GET runs/ID` would say of its run."""

    labels: tuple[str, ...]
    repository: str
    event: str = "push"
    fork: bool = False
    ref: str = ""


def explain(loaded: Loaded, question: Question, now_ms: UnixMs) -> Document:
    """The job's runner types, each with every offer in rank order; then what a planning round does with it."""
    policy = loaded.policy
    world, assumed = _world(loaded, now_ms)
    job = _announce(world, question, now_ms)
    route = matcher(policy).route(job, now_ms)
    view = View(world, policy, {}, True, "", now_ms)
    types: list[Document] = []
    for pool in route.pools:
        rtype = policy.runner_types[pool.runner_type]
        rows = offer_rows(view, wish_for(view, job, rtype, pool))
        types.append({"runner_type": rtype.name, "pool": pool.key, "chosen": False, "offers": rows})
        if rtype.share.percent < 100:
            assumed.append(f"the job is among the {rtype.share.percent} % that {rtype.name} takes at once")
    plan(world, policy, now_ms)
    for each in types:
        each["chosen"] = each["pool"] == job.pool
    launched = next((runner for runner in world.runners.values() if runner.launched_for == job.key), None)
    return {
        "policy": policy.hash,
        "at": time(now_ms),
        "labels": list(job.labels),
        "repository": job.repository,
        "run": {"event": question.event, "fork": question.fork, "ref": question.ref},
        "assumed": assumed,
        "ours": matcher(policy).is_ours(job.labels),
        "refused": route.blocked,
        "types": types,
        "launch": None if launched is None else _launch(launched),
    }


def _launch(runner: Runner) -> Document:
    return {
        "runner_type": runner.runner_type,
        "offer": runner.offer.key,
        "fund": runner.fund,
        "price_usd_per_hour": usd(runner.price),
        "hold_usd": usd(hold_of(runner)),
    }


def _world(loaded: Loaded, now_ms: UnixMs) -> tuple[World, list[str]]:
    """A world with every provider's catalogue and open funds, and what had to be assumed for it."""
    policy = loaded.policy
    world = World("explain")
    assumed = ["offers and list prices are those bundled with each kind of provider"]
    evolve(world, m.LeadershipTaken(now_ms, (), "explain"), now_ms)
    for name, provider in policy.providers.items():
        config = provider_config(policy, name, loaded.settings[name], "explain")
        offers = tuple(registry.kind(provider.kind).catalogue(config))
        evolve(world, m.OffersListed(now_ms, name, offers), now_ms)
    for fund in policy.funds.values():
        spent, period = fund.spent or 0, ledger.period(fund, now_ms)
        evolve(world, m.FundSpentStated(now_ms, fund.name, period, spent, now_ms, "policy explain"), now_ms)
        assumed.append(
            f"{dollars(usd(spent))} of {fund.name} {'was spent this month' if fund.cash else 'is spent'}"
        )
    return world, assumed


def _announce(world: World, question: Question, now_ms: UnixMs) -> Job:
    reported = m.JobReported(
        now_ms, JobState.QUEUED, JOB_ID, JOB_ID, 1, question.repository, question.labels, created_ms=now_ms
    )
    facts = RunFacts(question.event, question.fork, question.ref)
    evolve(world, reported, now_ms)
    evolve(world, m.RunFactsLearned(now_ms, question.repository, JOB_ID, facts), now_ms)
    return next(iter(world.jobs.values()))
