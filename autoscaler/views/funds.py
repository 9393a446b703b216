"""What `/api/v1` says of money: funds as they stand, and what one of them paid for in a month."""

from __future__ import annotations

from autoscaler.views import values
from autoscaler.views.jobs_and_runners import Document, NoSuchThing, View
from autoscaler.views.values import time, usd
from scheduling import forecast, ledger
from scheduling.model import HOUR_MS, FundAccount
from scheduling.policy import Fund
from scheduling.worth import expires_unused


def funds(view: View) -> Document:
    """Credit that ends first comes first, cash last; funds that only old records know come at the end."""
    rows = sorted(view.policy.funds.values(), key=lambda fund: (fund.cash, fund.until_ms or 1 << 62, fund.name))
    known = [fund_document(view, fund) for fund in rows]
    strays = [_stray(account) for name, account in view.world.funds.items() if name not in view.policy.funds]
    return {"funds": known + strays}


def fund_document(view: View, fund: Fund) -> Document:
    account = view.world.funds.get(fund.name) or FundAccount(fund.name)
    period = ledger.period(fund, view.now_ms)
    left = fund.limit - ledger.used(account, period) if account.known else 0
    today = account.settled_by_day.get(ledger.day(view.now_ms), 0)
    return {
        "name": fund.name,
        "kind": "cash" if fund.cash else "credit",
        "period": period,
        "limit_usd": usd(fund.limit),
        "spent_before_usd": usd(account.spent_before.get(period, 0)),
        "settled_usd": usd(account.settled.get(period, 0)),
        "held_usd": usd(account.held.get(period, 0)),
        "left_usd": usd(max(0, left)),
        "overrun_usd": usd(ledger.overrun(fund, account, period)),
        "spent_as_of": time(account.spent_as_of_ms),
        "spent_said_at": time(account.spent_said_ms),
        "spent_source": account.spent_source,
        "balance": fund.balance or None,
        "daily_usd": values.usd_or_none(fund.daily),
        "today_usd": usd(today),
        "from": time(fund.from_ms),
        "until": time(fund.until_ms),
        "known": account.known,
        "closed": fund_closed(fund, account, view.now_ms),
        "expires_unused": expires_unused(view.world, fund, view.now_ms),
        "warnings": forecast.warnings(fund, view.world.funds.get(fund.name), view.now_ms),
        "pays": None if fund.pays is None else sorted(fund.pays),
        "repositories": list(fund.repositories),
    }


def statement(view: View, name: str, month: str) -> Document:
    """What a fund paid in one month (`YYYY-MM`), by repository: for its sponsor. NoSuchThing for other names."""
    if name not in view.policy.funds and name not in view.world.funds:
        raise NoSuchThing(f"no fund {name[:100]!r}; `autoscaler funds` lists them")
    lines = [line for line in view.world.spends.values() if (line.fund, line.month) == (name, month)]
    lines.sort(key=lambda line: (-line.amount, line.repository))
    return {
        "fund": name,
        "month": month,
        "jobs": sum(line.jobs for line in lines),
        "machine_hours": round(sum(line.machine_ms for line in lines) / HOUR_MS, 3),
        "amount_usd": usd(sum(line.amount for line in lines)),
        "repositories": [
            {
                "repository": line.repository,
                "jobs": line.jobs,
                "machine_hours": round(line.machine_ms / HOUR_MS, 3),
                "amount_usd": usd(line.amount),
            }
            for line in lines
        ],
    }


def fund_closed(fund: Fund, account: FundAccount, now_ms: int) -> str:
    """Why the fund pays for no launch now; empty when it may."""
    if fund.from_ms is not None and now_ms < fund.from_ms:
        return "it has not begun"
    if fund.until_ms is not None and now_ms >= fund.until_ms:
        return "it has ended"
    if not account.known:
        return f"what was spent of it is not known: `autoscaler funds set {fund.name} --spent AMOUNT`"
    if ledger.available(fund, account, now_ms) <= 0:
        return "nothing is left of it" + (
            " today" if ledger.used(account, ledger.period(fund, now_ms)) < fund.limit else ""
        )
    return ""


def _stray(account: FundAccount) -> Document:
    return {
        "name": account.name,
        "kind": "removed",
        "settled_usd": usd(sum(account.settled.values())),
        "held_usd": usd(sum(account.held.values())),
        "overrun_usd": usd(0),
        "closed": "it is not in the policy any more",
    }
