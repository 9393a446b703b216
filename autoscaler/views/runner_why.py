"""Why a runner is where it is: what its offer won over, what is held for it, how long each stage took. Pure."""

from __future__ import annotations

from autoscaler.views.jobs_and_runners import Document, View
from autoscaler.views.offers import fund_tier
from autoscaler.views.values import seconds, time, usd
from scheduling import reruns
from scheduling.ledger import usd as short_usd
from scheduling.lifecycle import GoneReason, RerunState
from scheduling.matching import matcher
from scheduling.model import BOOT_FAILED, Job, Rerun, Runner, Verdict


def why_won(view: View, job: Job, runner: Runner) -> str:
    """One sentence: what was refused before it, and what put it before the next one."""
    if runner.adopted:
        return "It was found running with this fleet's tags and adopted; its placement is not known."
    chosen = next((index for index, verdict in enumerate(runner.placement) if not verdict.refusal), None)
    if chosen is None:
        return "Its placement was not recorded."
    winner = runner.placement[chosen]
    before = runner.placement[:chosen]
    text = ""
    if before:
        more = f" and {len(before) - 1} more" if len(before) > 1 else ""
        text = f"{before[0].offer}{more} came first and was refused ({before[0].refusal}). "
    loser = _runner_up(winner, runner.placement[chosen + 1 :])
    if loser is None:
        return text + "Nothing else was left to choose from."
    return f"{text}It came before {loser.offer}: {_because(view, job, winner, loser)}."


def _runner_up(winner: Verdict, rest: tuple[Verdict, ...]) -> Verdict | None:
    """The next offer that is not just the same machine in another zone; else that one."""
    others = [verdict for verdict in rest if verdict.offer != winner.offer]
    return next((verdict for verdict in others if _what(verdict) != _what(winner)), others[0] if others else None)


def _what(verdict: Verdict) -> tuple[str, ...]:
    provider, _, *machine = verdict.offer.split("/")
    return (provider, *machine)


def _because(view: View, job: Job, winner: Verdict, loser: Verdict) -> str:
    taste = matcher(view.policy).taste(job)
    mine, other = (verdict.offer.partition("/")[0] for verdict in (winner, loser))
    if mine != other and mine in taste.prefer:
        return f"a rule prefers {mine}"
    if mine != other and other in taste.avoid:
        return f"a rule avoids {other}"
    if winner.price == 0 and loser.price != 0:
        return "it is free"
    if winner.fund != loser.fund:
        return _money_order(view, winner.fund, loser.fund)
    if winner.score is not None and loser.score is not None and winner.score < loser.score:
        return f"{short_usd(winner.score)} a job in all, against {short_usd(loser.score)}"
    return "both score the same, and names decide"


def _money_order(view: View, mine: str, other: str) -> str:
    fund, rival = view.policy.funds.get(mine), view.policy.funds.get(other)
    if fund is None or rival is None:
        return f"{mine} paid rather than {other}"
    if rival.cash and not fund.cash:
        return f"credit ({mine}) is spent before cash ({other})"
    if fund.until_ms and (rival.until_ms is None or fund.until_ms < rival.until_ms):
        return f"the credit of {mine} ends first, on {(time(fund.until_ms) or '')[:10]}"
    return f"{mine} ({fund_tier(view, mine)}) is spent before {other} ({fund_tier(view, other)})"


def rerun_of(view: View, job: Job) -> Document | None:
    """What became of the job because its spot machine was taken, or of which job it is the re-run."""
    rerun = reruns.of_job(view.world, job)
    if rerun is None:
        return None
    first = rerun.job_key == job.key
    later = [each for each in view.world.jobs.values() if reruns.led_to(rerun, each)] if first else []
    new = min(later, key=lambda each: each.seen_ms).key if later else ""
    return {
        "job": rerun.job_key,
        "state": rerun.state.value,
        "detail": rerun.detail,
        "decided_at": time(rerun.at_ms),
        "again_at": time(rerun.retry_ms) if rerun.state is RerunState.DUE else None,
        "new_attempt": new if first else job.key,
        "sentence": _rerun_words(rerun, new) if first else _led_here(rerun),
    }


def _rerun_words(rerun: Rerun, new: str) -> str:
    match rerun.state:
        case RerunState.ASKED:
            return f"Its spot machine was taken, so it is run again{f' as job {new}' if new else ''}."
        case RerunState.DUE:
            waits = f": {rerun.detail}" if rerun.detail else ""
            return f"Its spot machine was taken; GitHub is asked to run it again{waits}."
    return f"Its spot machine was taken; it is not run again: {rerun.detail}."


def _led_here(rerun: Rerun) -> str:
    return f"It is the re-run of job {rerun.job_key}, whose spot machine was taken."


def waited(job: Job, runner: Runner) -> list[Document]:
    """What the job had waited for, and how long for each: before its runner was planned, its boot, GitHub."""
    planned_ms = max(job.queued_ms, runner.planned_ms)
    booted_ms = max(planned_ms, runner.booted_ms)
    parts = [
        (_kind(job.waited_for), job.queued_ms, min(planned_ms, job.started_ms), job.waited_for),
        ("the boot of its machine", planned_ms, min(booted_ms, job.started_ms), runner.offer.key),
        ("its registration at GitHub", booted_ms, job.started_ms, ""),
    ]
    return [
        {"for": kind, "seconds": seconds(end_ms - start_ms), "detail": detail}
        for kind, start_ms, end_ms, detail in parts
        if job.queued_ms and end_ms - start_ms >= 1000
    ]


def _kind(words: str) -> str:
    """What sort of reason a refusal is."""
    if not words:
        return "a launch"
    if "fund" in words:
        return "money"
    if "registrations a minute" in words:
        return "GitHub's limit"
    if "GitHub" in words:
        return "GitHub's word on its run"
    policy = ("access", "share", "outside", "drained", "paused", "a rule")
    return "policy" if any(word in words for word in policy) else "capacity"


def deadline_words(view: View, job: Job) -> str:
    """What becomes of a job that has waited past the policy's deadline; empty before it."""
    rule = view.policy.on_deadline
    if rule is None or view.now_ms < job.queued_ms + rule.after_ms:
        return ""
    text = f" It has waited past the deadline of {rule.after_ms / 3_600_000:g} h."
    if job.notice:
        return text + f" Notice runner {job.notice} was launched to end it with this explanation in its log."
    refused = view.refusals.get(f"notice:{job.key}", ())
    if refused:
        return text + f" No offer takes a notice runner either: {refused[0].refusal}."
    return text


def hold_rows(runner: Runner) -> list[Document]:
    """The parts of its hold: what each fund must be able to pay for the longest life that it may have."""
    return [
        {"fund": part.fund, "period": part.period, "until": time(part.until_ms), "amount_usd": usd(part.amount)}
        for part in runner.hold
    ]


def failed_boot(view: View, job: Job) -> Document | None:
    """The last runner launched for it that gave its boot up or never called, with its last words."""
    failed = [
        each
        for each in view.world.runners.values()
        if each.launched_for == job.key and (each.boot == BOOT_FAILED or each.reason is GoneReason.BOOT_TIMEOUT)
    ]
    if not failed:
        return None
    last = max(failed, key=lambda each: each.planned_ms)
    return {
        "runner": last.id,
        "offer": last.offer.key,
        "image": last.terms.image,
        "count": len(failed),
        "detail": last.detail,
        "log": list(last.log),
    }


def timeline(view: View, job: Job) -> list[Document]:
    """What happened when, of the job and the runner that it got. `seconds` counts from when it was queued."""
    stages = [("queued", job.queued_ms)]
    runner = view.world.runners.get(job.runner)
    if runner is not None:
        stages += [
            ("planned", runner.planned_ms),
            ("created", runner.created_ms),
            ("booted", runner.booted_ms),
            ("jit", runner.jit_ms),
            ("registered", runner.registered_ms),
        ]
    stages += [("started", job.started_ms), ("ended", job.completed_ms)]
    if runner is not None:
        stages += [("interrupted", runner.interrupted_ms), ("taken", runner.taken_ms)]
        stages += [("stopped", runner.stop_ms or runner.absent_ms), ("gone", runner.gone_ms)]
    since_ms = job.queued_ms or job.seen_ms
    return [
        {"stage": name, "at": time(at_ms), "seconds": seconds(at_ms - since_ms)}
        for name, at_ms in sorted(stages, key=lambda stage: stage[1])
        if at_ms
    ]
