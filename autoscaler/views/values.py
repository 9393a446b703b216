"""How amounts, times and scopes are written for programs: `/api/v1` and `--json`."""

from __future__ import annotations

from datetime import UTC, datetime

from scheduling.model import DurationMs, MicroUSD, Offer, Runner, UnixMs

UNROUTABLE = "unroutable"
"""How `matching` begins the reason of a job that no runner type has all labels of."""


def usd(amount: MicroUSD) -> str:
    """`1.500000`: dollars with six places."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    return f"{sign}{amount // 1_000_000}.{amount % 1_000_000:06d}"


def usd_or_none(amount: MicroUSD | None) -> str | None:
    return None if amount is None else usd(amount)


def time(at_ms: UnixMs | None) -> str | None:
    """RFC 3339 in UTC; None for a time that has not come (0)."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(duration_ms: DurationMs) -> float:
    return round(duration_ms / 1000, 3)


def offer_words(offer: Offer) -> dict[str, str]:
    """The places of an offer, each under its own name."""
    return {
        "offer": offer.key,
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "purchase": offer.purchase.value,
    }


def hold_of(runner: Runner) -> MicroUSD:
    return sum(part.amount for part in runner.hold)
