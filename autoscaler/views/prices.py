"""How old list prices are, and which are too old to be trusted without a look."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.views.jobs_and_runners import Document
from autoscaler.views.values import time
from scheduling.model import DurationMs, Offer, Purchase, UnixMs
from scheduling.policy import ProviderPolicy

DAY_MS: DurationMs = 86_400_000
STALE_AFTER_MS: DurationMs = 7 * DAY_MS
"""Price APIs are read twice a day, so that one has failed for long; every bundled price is older."""
SPOT_STALE_AFTER_MS: DurationMs = DAY_MS


def price_as_of(provider: ProviderPolicy, offer: Offer) -> UnixMs:
    """When the list price behind our price was true; 0 where the policy states it or it does not age."""
    settled = provider.price.fixed is not None or offer.list_price is None or offer.purchase is Purchase.RESERVED
    return 0 if settled else offer.price_ms


def stale(provider: ProviderPolicy, offer: Offer, now_ms: UnixMs) -> bool:
    """Whether that is longer ago than a price may be."""
    as_of_ms = price_as_of(provider, offer)
    limit_ms = SPOT_STALE_AFTER_MS if offer.purchase is Purchase.SPOT else STALE_AFTER_MS
    return bool(as_of_ms) and now_ms - as_of_ms > limit_ms


def prices(provider: ProviderPolicy, offers: Iterable[Offer], now_ms: UnixMs) -> Document:
    """`oldest`: of its list prices; `stale` and `unknown` count offers. An unknown price refuses the offer."""
    offers = list(offers)
    ages = [as_of_ms for offer in offers if (as_of_ms := price_as_of(provider, offer))]
    unknown = [offer for offer in offers if provider.price.of(offer.list_price) is None]
    return {
        "oldest": time(min(ages, default=0)),
        "stale": sum(stale(provider, offer, now_ms) for offer in offers),
        "unknown": len(unknown),
    }
