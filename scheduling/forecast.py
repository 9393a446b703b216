"""What will become of a fund at the present rate: unused at its end, empty before it, or stranded in holds."""

from __future__ import annotations

from dataclasses import dataclass

from scheduling import ledger
from scheduling.model import FundAccount, MicroUSD, UnixMs
from scheduling.policy import Fund

RATE_DAYS = 7
"""Days of bookings that make the present rate, today included."""
SOON_DAYS = 60
STRANDED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Outlook:
    """`rate`: micro-dollars a day. `unused`: left at `until`. `empty_ms`: when it runs out, 0: not before its end.

    `stranded`: held by runners, where that keeps more launches out than money already spent would.
    """

    rate: MicroUSD
    unused: MicroUSD
    empty_ms: UnixMs
    stranded: MicroUSD


def rate(account: FundAccount, now_ms: UnixMs) -> MicroUSD:
    """Micro-dollars a day, over the booked days of the last week."""
    first_ms = now_ms - (RATE_DAYS - 1) * ledger.DAY_MS
    days = [name for name in account.settled_by_day if name >= ledger.day(first_ms)]
    if not days:
        return 0
    began = min(days)
    span = sum(ledger.day(first_ms + n * ledger.DAY_MS) >= began for n in range(RATE_DAYS))
    return sum(account.settled_by_day[name] for name in days) // max(1, span)


def outlook(fund: Fund, account: FundAccount | None, now_ms: UnixMs) -> Outlook:
    """All zero for a fund whose spend is unknown."""
    if account is None or not account.known:
        return Outlook(0, 0, 0, 0)
    period = ledger.period(fund, now_ms)
    daily, held = rate(account, now_ms), account.held.get(period, 0)
    left = fund.limit - ledger.used(account, period) + held
    end_ms = ledger.next_month_ms(now_ms) if fund.cash else fund.until_ms
    empty_ms = now_ms + left * ledger.DAY_MS // daily if daily and left > 0 else 0
    if end_ms is not None and empty_ms > end_ms:
        empty_ms = 0
    unused = 0
    if end_ms is not None and not fund.cash:
        unused = max(0, left - daily * (end_ms - now_ms) // ledger.DAY_MS)
    stranded = held if left - held < held and held > STRANDED_SHARE * fund.limit else 0
    return Outlook(daily, unused, empty_ms, stranded)


def warnings(fund: Fund, account: FundAccount | None, now_ms: UnixMs) -> list[str]:
    """What an operator should know about this fund, in words; empty when all is well."""
    view, found = outlook(fund, account, now_ms), []
    over = ledger.overrun(fund, account, ledger.period(fund, now_ms)) if account is not None else 0
    if over:
        found.append(f"{fund.name} is overrun by {ledger.usd(over)}: no launch is paid from it")
    if view.unused and fund.until_ms is not None and fund.until_ms - now_ms <= SOON_DAYS * ledger.DAY_MS:
        found.append(f"{ledger.usd(view.unused)} of {fund.name} will expire unused at the present rate")
    if view.empty_ms and view.empty_ms - now_ms <= SOON_DAYS * ledger.DAY_MS:
        days = (view.empty_ms - now_ms) // ledger.DAY_MS
        found.append(f"{fund.name} runs out in {days} day{'s' * (days != 1)} at the present rate")
    if view.stranded:
        remedy = "lower max_lifetime or raise the fund"
        found.append(f"holds could strand {ledger.usd(view.stranded)} of {fund.name}: {remedy}")
    return found
