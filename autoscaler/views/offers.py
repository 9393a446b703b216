"""Every offer for one kind of demand, in rank order, with the terms of its score or its refusal. Pure.

Shared by `why` and `policy explain`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from autoscaler.views.jobs_and_runners import Document, View
from autoscaler.views.prices import price_as_of, stale
from autoscaler.views.values import time, usd, usd_or_none
from scheduling import learning, placement, worth
from scheduling.cooling import image_scope
from scheduling.matching import matcher, selected
from scheduling.model import Job, Offer, Pool, UnixMs, Verdict
from scheduling.placement import Wish
from scheduling.policy import RunnerType, Window
from scheduling.windows import is_open


def offer_rows(view: View, wish: Wish) -> list[Document]:
    """One row an offer and payer, best first, then what can never serve the wish as the policy stands.

    `until`: when a refusal that ends by itself does (a cooldown, a closed window), else null. `rank` is null for
    what is not eligible; `tier` says what puts a row before another whatever its score. `price_as_of`: when the
    list price was true, null where the policy states the price or it does not age.
    """
    sold = {offer.key: offer for offers in view.world.offers.values() for offer in selected(wish.rtype, offers)}
    rows = []
    for number, verdict in enumerate(placement.explain(view.world, view.policy, wish, view.now_ms), 1):
        offer = sold.get(verdict.offer)
        eligible = offer is not None and verdict.score is not None
        provider = view.policy.providers[offer.provider] if offer else None
        rows.append(
            {
                "rank": number if eligible else None,
                "offer": verdict.offer,
                "provider": offer.provider if offer else verdict.offer,
                "region": offer.region if offer else "",
                "price_usd_per_hour": usd_or_none(verdict.price),
                "price_as_of": time(price_as_of(provider, offer)) if provider and offer else None,
                "price_stale": bool(provider and offer and stale(provider, offer, view.now_ms)),
                "fund": verdict.fund,
                "tier": _tier(view, wish, offer, verdict) if offer and eligible else "",
                "scarce": scarce(view, offer) if offer and eligible else "",
                "score_usd": usd_or_none(verdict.score),
                "terms": _terms(view, wish, offer, verdict) if offer and eligible else {},
                "refusal": verdict.refusal,
                "until": time(_until(view, wish, offer) if offer and verdict.refusal else 0),
            }
        )
    return rows


def wish_for(view: View, job: Job, rtype: RunnerType, pool: Pool) -> Wish:
    """What the planner asks for on behalf of this job in this pool."""
    taste, expected_ms = matcher(view.policy).taste(job), learning.job_ms(view.world, job)
    return Wish(rtype, job.repository, pool.providers, taste, expected_ms)


def open_row(rows: list[Document]) -> Document | None:
    """The offer that a launch would take now."""
    return next((row for row in rows if not row["refusal"]), None)


def _tier(view: View, wish: Wish, offer: Offer, verdict: Verdict) -> str:
    if offer.provider in wish.taste.avoid:
        return "avoided by a rule"
    if offer.provider in wish.taste.prefer:
        return "preferred by a rule"
    return fund_tier(view, verdict.fund)


def scarce(view: View, offer: Offer) -> str:
    """What the planner says of a cap on this offer's machines, which others need more; empty without one."""
    bids = (view.world.bids.get(scope) for scope in (f"provider:{offer.provider}", f"offer:{offer.key}"))
    return "; ".join(bid.why for bid in bids if bid is not None and bid.premium and view.now_ms < bid.until_ms)


def fund_tier(view: View, name: str) -> str:
    """What kind of money this is, in the order in which it is spent: free, expiring, credit, cash."""
    fund = view.policy.funds.get(name)
    if fund is None:
        return "free" if not name else "fund removed"
    bid = view.world.bids.get(name)
    if bid is not None and view.now_ms < bid.until_ms:
        return bid.why or f"a dollar counts as ${bid.value_ppm / 1_000_000:.2f}"
    if fund.cash:
        return "cash"
    return "credit that would expire" if worth.expires_unused(view.world, fund, view.now_ms) else "credit"


def _terms(view: View, wish: Wish, offer: Offer, verdict: Verdict) -> dict[str, str]:
    """What the score adds up from, in dollars a job."""
    if verdict.price is None:
        return {}
    fund = view.policy.funds.get(verdict.fund)
    value_ppm = worth.worth(view.world, fund, view.now_ms).value_ppm if fund else 0
    terms = placement.score_terms(view.world, view.policy, wish, offer, verdict.price, value_ppm, view.now_ms)
    return {name: usd(amount) for name, amount in terms.items()}


def _until(view: View, wish: Wish, offer: Offer) -> UnixMs:
    """When the cooldown or the window that refuses this offer now ends; 0 where nothing says."""
    image = placement.image_of(view.policy, wish.rtype, view.policy.providers[offer.provider], offer)
    scopes = (*offer.scopes, image_scope(image or "", offer))
    cooldowns = [view.world.cooldowns[scope] for scope in scopes if scope in view.world.cooldowns]
    until_ms = max((cooldown.until_ms for cooldown in cooldowns), default=0)
    if until_ms > view.now_ms:
        return until_ms
    window = view.policy.providers[offer.provider].available
    return 0 if is_open(window, view.now_ms) else next_opening(window, view.now_ms)


def next_opening(window: Window | None, at_ms: UnixMs) -> UnixMs:
    """When the window opens next after `at_ms`; 0 without one."""
    if window is None:
        return 0
    local = datetime.fromtimestamp(at_ms / 1000, window.zone)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    for days in range(9):
        day = midnight + timedelta(days=days)
        start = day.replace(hour=window.start_min // 60, minute=window.start_min % 60)
        start_ms = int(start.timestamp() * 1000)
        if day.weekday() in window.days and start_ms > at_ms:
            return start_ms
    return 0
