"""Why a job waits, and why it ran where it did at that price: one document from one view. Pure.

`sentence` answers first; the rest is the evidence. Refusals are shown as the planner words them.
"""

from __future__ import annotations

from autoscaler.views import github_budget, observed
from autoscaler.views.jobs_and_runners import Document, View, job, job_state, runner
from autoscaler.views.offers import offer_rows, open_row, wish_for
from autoscaler.views.runner_why import deadline_words, failed_boot, hold_rows, rerun_of, timeline, waited, why_won
from autoscaler.views.values import UNROUTABLE, seconds, time, usd
from scheduling import learning
from scheduling.lifecycle import JobState, RunnerState
from scheduling.matching import matcher
from scheduling.model import BOOT_FAILED, Job, Pool, Runner
from scheduling.policy import RunnerType
from scheduling.world import NEEDS_FACTS, PAUSED

NEAREST = 3

_ON_ITS_WAY = {
    RunnerState.BUSY: "has begun a job, and GitHub has not said yet which one",
    RunnerState.IDLE: "is registered and idle, so GitHub gives it a job next",
    RunnerState.REGISTERING: "registers at GitHub",
    RunnerState.READY: "has booted and registers next",
    RunnerState.STARTING: "boots",
    RunnerState.PLANNED: "is being created",
    RunnerState.UNKNOWN: "was asked for, and its provider has not answered yet",
}
"""Readiest first."""


def job_document(view: View, job_: Job) -> Document:
    """What `GET /api/v1/jobs/ID` and `why JOB --json` say."""
    return {**job(view, job_), "at": time(view.now_ms), "leading": view.leading, "why": of_job(view, job_)}


def of_job(view: View, job_: Job) -> Document:
    """One key for each part of the story, null or empty where it has nothing to say; `sentence` always has."""
    found: Document = {
        "sentence": "",
        "types": _types(view, job_),
        "nearest": [],
        "pool": None,
        "offers": [],
        "offers_total": 0,
        "github": None,
        "runner": None,
        "waited": [],
        "rerun": rerun_of(view, job_),
        "observed": None,
        "failed_boot": failed_boot(view, job_),
        "timeline": timeline(view, job_),
    }
    if job_.state is JobState.QUEUED:
        _queued(view, job_, found)
    elif job_.state is JobState.WAITING:
        found["sentence"] = (
            "GitHub holds it back: it waits for an approval or for another run of its concurrency group."
        )
    else:
        _ran(view, job_, found)
    if job_.state is JobState.QUEUED:
        found["sentence"] += deadline_words(view, job_)
    if found["rerun"]:
        found["sentence"] += f" {found['rerun']['sentence']}"
    return found


# ---- a job that waits --------------------------------------------------------------------------------------


def _queued(view: View, job_: Job, found: Document) -> None:
    pool = view.world.pools.get(job_.pool)
    if job_state(job_) == UNROUTABLE:
        found["nearest"] = _nearest(view, job_)
        found["sentence"] = _unroutable(job_, found["nearest"])
    elif job_.blocked == NEEDS_FACTS:
        found["sentence"] = (
            "Waits for GitHub to say where its run comes from (event, fork, ref): access or a rule depends on it."
        )
    elif job_.blocked:
        found["sentence"] = f"No runner type that has its labels lets it in: {job_.blocked}."
    elif pool is None:
        found["sentence"] = "It has just come in; the next round of planning gives it a pool."
    else:
        _in_pool(view, job_, pool, found)


def _in_pool(view: View, job_: Job, pool: Pool, found: Document) -> None:
    world = view.world
    queue = list(world.queued.get(pool.key, ()))
    place = queue.index(job_.key) + 1 if job_.key in queue else 0  # 0: a notice runner has it
    supply = _supply(view, pool.key)
    rtype = view.policy.runner_types.get(pool.runner_type)
    limits = _limits(view, pool.runner_type)
    found["pool"] = {
        "pool": pool.key,
        "runner_type": pool.runner_type,
        "target": pool.target,
        "providers": None if pool.providers is None else sorted(pool.providers),
        "queued": len(queue),
        "place": place,
        "supply": len(supply),
        "expected_seconds": seconds(learning.job_ms(world, job_)),
        "on_their_way": [
            {
                "runner": each.id,
                "state": each.state.value,
                "offer": each.offer.key,
                "planned_at": time(each.planned_ms),
            }
            for each in supply[:5]
        ],
        "limits": limits,
        "switches": sorted({PAUSED, "all", f"type:{pool.runner_type}"} & world.switches.keys()),
    }
    if rtype is None:
        found["sentence"] = (
            f"Its runner type {pool.runner_type} was removed from the policy; the next round routes it anew."
        )
        return
    rows = offer_rows(view, wish_for(view, job_, rtype, pool))
    found["offers"], found["offers_total"] = rows[:200], len(rows)
    each = supply[place - 1] if 0 < place <= len(supply) else None
    found["github"] = github = github_budget.waits(view, job_, pool, each)
    if each is not None:
        found["sentence"] = _coming(view, each, place, len(queue), len(supply), github)
    elif github and PAUSED not in world.switches:
        found["sentence"] = f"Waits for {github_budget.words(github)}. Another App would raise the limit."
    else:
        found["sentence"] = _stuck(view, pool, rows, limits)


def _supply(view: View, pool: str) -> list[Runner]:
    """Runners that can still take a job of the pool, the readiest first."""
    order = list(_ON_ITS_WAY)
    members = [view.world.runners[key] for key in view.world.supply.get(pool, ())]
    return sorted(members, key=lambda each: (order.index(each.state), each.planned_ms))


def _coming(view: View, each: Runner, place: int, queued: int, supply: int, github: Document | None) -> str:
    many = (
        ""
        if queued == 1
        else f" The job is number {place} of {queued} in its pool, and {supply} runners are on their way."
    )
    trouble = ""
    if each.failures and each.detail:
        trouble = f" Its last attempt failed: {each.detail}; the next one is at {time(each.retry_ms)}."
    offer = each.offer
    where = f"{offer.instance_type} at {offer.provider} ({offer.zone})"
    does = f"waits for {github_budget.words(github)}" if github else _ON_ITS_WAY[each.state]
    if each.state is RunnerState.STARTING and each.boot == BOOT_FAILED:
        does = f"gave its boot up ({each.detail}) and is replaced once it is gone"
    elif each.state is RunnerState.STARTING and each.boot:
        since, heard = ((view.now_ms - at_ms) // 1000 for at_ms in (each.boot_since_ms, each.heard_ms))
        does = f"boots: {each.boot} for {since} s, heard of {heard} s ago"
    return f"A runner is on its way: {each.id}, {where}, {does}.{trouble}{many}"


def _stuck(view: View, pool: Pool, rows: list[Document], limits: list[Document]) -> str:
    """Why nothing is on its way for this job."""
    if PAUSED in view.world.switches:
        return f"Launches are paused by {view.world.switches[PAUSED]}; `autoscaler resume` lets them go on."
    full = next((limit for limit in limits if limit["full"]), None)
    if full:
        return f"Waits for a free place: {full['scope']} runs its limit of {full['limit']} runners."
    if not view.leading and not view.world.offers:
        return "Waits; only the leading replica knows offers and refusals, and this one does not lead. Ask again."
    if not rows:
        return f"No provider sells what {pool.runner_type} names: check its `offers` and the providers' `regions`."
    best = open_row(rows)
    if best:
        return f"It is next: {best['offer']} is open, and the next round of planning launches there."
    first = rows[0]
    until = f" (until {first['until'][:16].replace('T', ' ')} UTC)" if first["until"] else ""
    rest = len(rows) - 1
    more = f" {rest} more {'is' if rest == 1 else 'are'} refused too." if rest else ""
    if first["rank"] is None:
        return f"No offer can serve it as the policy stands: {first['offer']} {first['refusal']}.{more}"
    return f"No offer can serve it now. The best, {first['offer']}: {first['refusal']}{until}.{more}"


def _limits(view: View, rtype_name: str) -> list[Document]:
    """The caps that its pool counts against, save those of providers, which show as refusals of their offers."""
    rtype = view.policy.runner_types.get(rtype_name)
    caps = [("the fleet", "", view.policy.max_runners)]
    caps.append((rtype_name, f"type:{rtype_name}", rtype.max_runners if rtype else None))
    rows = []
    for words, scope, limit in caps:
        live = view.world.live_count(scope)
        rows.append({"scope": words, "live": live, "limit": limit, "full": limit is not None and live >= limit})
    return rows


# ---- labels and runner types -------------------------------------------------------------------------------


def _types(view: View, job_: Job) -> list[Document]:
    """Every runner type that has all its labels; of several each with its best offer, or why it has none."""
    types = matcher(view.policy).types(job_.labels)
    compare = len(types) > 1 and job_.state is JobState.QUEUED
    pools = (
        {pool.runner_type: pool for pool in matcher(view.policy).route(job_, view.now_ms).pools} if compare else {}
    )
    return [
        {
            "runner_type": rtype.name,
            "chosen": rtype.name == job_.runner_type,
            "best": _best(view, job_, rtype, pools.get(rtype.name)) if compare else None,
        }
        for rtype in types
    ]


def _best(view: View, job_: Job, rtype: RunnerType, pool: Pool | None) -> Document:
    """The first row of its offers that is open; else the first one with its refusal."""
    if pool is None:
        return {"offer": "", "refusal": "its access or its share does not let the job in"}
    rows = offer_rows(view, wish_for(view, job_, rtype, pool))
    return open_row(rows) or (rows[0] if rows else {"offer": "", "refusal": "no provider sells what it names"})


def _nearest(view: View, job_: Job) -> list[Document]:
    """Runner types that share a label with the job, those that lack fewest first."""
    wanted = set(job_.labels)
    rows = []
    for name, rtype in view.policy.runner_types.items():
        has = {label.casefold() for label in rtype.labels}
        if wanted & has:
            rows.append({"runner_type": name, "lacks": sorted(wanted - has), "labels": list(rtype.labels)})
    rows.sort(key=lambda row: (len(row["lacks"]), len(row["labels"]), row["runner_type"]))
    return rows[:NEAREST]


def _unroutable(job_: Job, nearest: list[Document]) -> str:
    if not job_.labels:
        return "Nothing will start it: it has no labels (`runs-on` names a group only), so no runner type matches."
    text = f"Nothing will start it: no runner type has all of its labels ({', '.join(job_.labels)})."
    if nearest:
        lacks = ", ".join(nearest[0]["lacks"])
        return (
            f"{text} The nearest, {nearest[0]['runner_type']}, lacks {lacks}: correct `runs-on`, or add the label."
        )
    return f"{text} Correct `runs-on`, add a runner type, or name the label in `ignore_labels`."


# ---- a job that ran ----------------------------------------------------------------------------------------


def _ran(view: View, job_: Job, found: Document) -> None:
    each = view.world.runners.get(job_.runner)
    if each is None:
        found["sentence"] = _without_runner(job_)
        if view.observed and (instead := view.observed.jobs.get(job_.key)):
            found["observed"] = observed.instead_document(instead)
            found["sentence"] += f" {observed.sentence(instead)}"
        return
    found["runner"] = {
        **runner(view, each),
        "won": why_won(view, job_, each),
        "hold": hold_rows(each),
        "verdicts": [
            {
                "offer": verdict.offer,
                "fund": verdict.fund,
                "price_usd_per_hour": None if verdict.price is None else usd(verdict.price),
                "score_usd": None if verdict.score is None else usd(verdict.score),
                "refusal": verdict.refusal,
            }
            for verdict in each.placement
        ],
    }
    found["sentence"] = _where(job_, each)
    found["waited"] = waited(job_, each)


def _where(job_: Job, each: Runner) -> str:
    offer = each.offer
    place = f"{offer.instance_type} at {offer.provider} ({offer.zone}, {offer.purchase.value.replace('_', '-')})"
    payer = f"paid by {each.fund}" if each.fund else "for free"
    if job_.state is JobState.IN_PROGRESS:
        text = f"Runs on {place}, {payer}."
        if each.taken_ms:
            text += f" {offer.provider} took the machine back: GitHub will fail the job once it notices."
        elif each.interrupted_ms:
            text += f" The machine says that it is about to be taken back: {each.detail}."
    else:
        how = job_.conclusion or "unknown"
        took = f" after {seconds(max(0, job_.completed_ms - job_.started_ms)):g} s" if job_.started_ms else ""
        text = f"Ended ({how}){took} on {place}, {payer}."
    if each.terms.notice:
        text += " That was a notice runner: it ended the job, which had waited past the deadline, to say why."
    if each.launched_for and each.launched_for != job_.key:
        text += f" GitHub gave it that runner, which was launched for job {each.launched_for} of the same pool."
    return text


def _without_runner(job_: Job) -> str:
    if job_.state is JobState.COMPLETED and not job_.runner_name:
        how = job_.conclusion or "completed"
        return f"It ended ({how}) without ever having had a runner."
    verb = "Runs" if job_.state is JobState.IN_PROGRESS else "Ran"
    if job_.runner:
        return f"{verb} on {job_.runner_name}; the record of that runner is not kept any longer."
    return f"{verb} on {job_.runner_name or 'an unnamed runner'}, which is no runner of this fleet."
