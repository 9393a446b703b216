"""Lines of `provider check` that all kinds word alike: what a failed call means, how far clocks are apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from providers.base import (
    CheckLine,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)
from scheduling.model import DurationMs, UnixMs

SKEW_MS: DurationMs = 60_000
"""Vendors refuse signatures that are some minutes off; ours are meant to be within seconds."""

MENDS: tuple[tuple[type[ProviderError], str], ...] = (
    (Unauthorized, "give the daemon's account the permission that is named, see deploy/providers"),
    (QuotaExceeded, "ask the vendor for a higher quota, or lower max_runners"),
    (NoCapacity, "nothing to mend: sold out now; more zones or instance types help"),
    (Refused, "correct what is named in the policy"),
    (Transient, "see that the daemon's host reaches the address, then check again"),
    (OutcomeUnknown, "see that the daemon's host reaches the address, then check again"),
)

T = TypeVar("T")


def failed(what: str, error: ProviderError, mend: str = "") -> CheckLine:
    """The line of a call that failed."""
    usual = next((words for kind, words in MENDS if isinstance(error, kind)), "")
    return CheckLine(what, False, str(error), mend or usual)


async def tried(
    what: str, call: Awaitable[T], said: Callable[[T], str] = lambda _: "", mend: str = ""
) -> CheckLine:
    """ok where the call comes back; `said` words its result."""
    try:
        return CheckLine(what, True, said(await call))
    except ProviderError as error:
        return failed(what, error, mend)


def clock(theirs: UnixMs | str, now_ms: UnixMs) -> CheckLine:
    """How far the vendor's clock is from ours: Unix ms, or the text of an HTTP Date header."""
    what = "clock"
    if isinstance(theirs, str):
        try:
            theirs = int(parsedate_to_datetime(theirs).timestamp() * 1000)
        except ValueError:
            return CheckLine(what, True, "not known: the answer has no date")
    seconds = abs(now_ms - theirs) // 1000
    if seconds * 1000 > SKEW_MS:
        return CheckLine(what, False, f"{seconds} s off the provider's", "set this host's clock by NTP")
    return CheckLine(what, True, f"within {seconds + 1} s of the provider's")


def permissions(needed: Sequence[str], granted: Iterable[str], mend: str) -> CheckLine:
    """Whether every needed permission is among the granted ones, which may have `*` in them."""
    patterns = [pattern.casefold() for pattern in granted]
    missing = [each for each in needed if not any(fnmatchcase(each.casefold(), p) for p in patterns)]
    if missing:
        return CheckLine("permissions", False, f"missing: {', '.join(missing)}", mend)
    return CheckLine("permissions", True, f"{len(needed)} needed, all granted")


def quota(what: str, used: float, limit: float, needed: float, mend: str) -> CheckLine:
    """Whether one more machine fits below a limit."""
    detail = f"{used:g} of {limit:g} in use, a machine takes {needed:g}"
    return CheckLine(what, used + needed <= limit, detail, "" if used + needed <= limit else mend)


def quotas(
    what: str, known: Mapping[str, tuple[float, float]], needed: Mapping[str, float], mend: str
) -> list[CheckLine]:
    """A line for each needed count that the vendor has a limit for; `known` is (in use, limit) by its name."""
    return [quota(f"{what} {name}", *known[name], count, mend) for name, count in needed.items() if name in known]
