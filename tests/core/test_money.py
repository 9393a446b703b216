"""Funds over dates, months and what was foreseen for them."""

from __future__ import annotations

from datetime import UTC, datetime

from scheduling import forecast, ledger
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.policy import Fund
from tests.core.fleet import HOUR, MINUTE, NOON, USD, Fleet, credit, offer, policy

DAY = 24 * HOUR


def cash(name: str, dollars: int, **changes: object) -> Fund:
    return Fund(name, cash=True, limit=dollars * USD, spent=0, spent_as_of_ms=NOON, **changes)


def ran(fleet: Fleet, minutes: int) -> None:
    """One job from its launch to the settled end of its machine."""
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.now += minutes * MINUTE
    fleet.finish(1, runner)
    fleet.run(2 * MINUTE)


def test_what_outlives_a_fund_is_held_in_the_next() -> None:
    short = credit("short", 100, until_ms=NOON + HOUR)
    fleet = Fleet(policy(funds=(short, cash("cash", 100))))
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    assert [(part.fund, part.period) for part in runner.hold] == [
        ("short", ""), ("cash", "2026-11"), ("cash", "2026-12"),
    ][: len(runner.hold)]  # fmt: skip
    assert runner.hold[0].until_ms == runner.hold[1].from_ms == NOON + HOUR
    assert sum(part.amount for part in runner.hold) >= ledger.price_of(runner.price, 4 * HOUR)


def test_what_outlives_a_fund_without_an_heir_is_refused() -> None:
    fleet = Fleet(policy(funds=(credit("short", 100, until_ms=NOON + HOUR),)))
    fleet.job(1)
    fleet.step()
    (verdicts,) = fleet.plan.refusals.values()
    assert {v.refusal for v in verdicts} == {"outlives fund short, and no other fund could pay the rest"}


def test_a_hold_over_the_end_of_a_month_lies_in_both_months() -> None:
    fleet = Fleet(policy(funds=(cash("cash", 100),)))
    fleet.now = int(datetime(2026, 11, 30, 23, tzinfo=UTC).timestamp() * 1000)
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    assert [part.period for part in runner.hold] == ["2026-11", "2026-12"]
    assert fleet.world.funds["cash"].held.keys() == {"2026-11", "2026-12"}


def test_next_month_pays_what_runs_in_it() -> None:
    fleet = Fleet(policy(funds=(cash("cash", 100),)))
    fleet.now = int(datetime(2026, 11, 30, 23, 30, tzinfo=UTC).timestamp() * 1000)
    ran(fleet, 60)
    settled = fleet.world.funds["cash"].settled
    assert settled["2026-11"] == ledger.price_of(USD // 2, 30 * MINUTE)
    assert abs(settled["2026-12"] - ledger.price_of(USD // 2, 30 * MINUTE)) < USD // 100


def test_a_daily_limit_counts_todays_bookings_and_all_holds() -> None:
    fleet = Fleet(policy(funds=(credit("grant", 1000, daily=5 * USD),)))
    for number in range(5):
        fleet.job(number)
    fleet.step()
    assert len(fleet.cloud.machines) == 2


def test_a_fund_of_unknown_spend_is_closed_until_it_is_stated() -> None:
    fleet = Fleet(policy(funds=(credit("old", 100, spent=None),)))
    fleet.job(1)
    fleet.step()
    (verdicts,) = fleet.plan.refusals.values()
    assert "closed until its spend is known" in verdicts[0].refusal
    fleet.tell(m.FundSpentStated(fleet.now, "old", "", 10 * USD, fleet.now, "operator"))
    fleet.step()
    assert len(fleet.cloud.machines) == 1


def test_a_bill_that_is_a_day_behind_does_not_hide_what_we_spent_today() -> None:
    fleet = Fleet(policy(funds=(credit("grant", 100, spent_as_of_ms=NOON - DAY),)))
    ran(fleet, 60)
    account = fleet.world.funds["grant"]
    ours = account.settled[""]
    assert ours > 0
    fleet.tell(m.FundSpentStated(fleet.now + 1, "grant", "", 30 * USD, fleet.now - DAY, "billing"))
    assert account.spent_before[""] == 30 * USD
    fleet.now += 2 * DAY
    fleet.tell(m.FundSpentStated(fleet.now, "grant", "", 30 * USD + ours, fleet.now - DAY, "billing"))
    assert ledger.spent(account, "") == 30 * USD + ours


def test_an_older_statement_than_the_known_one_is_no_news() -> None:
    fleet = Fleet(policy(funds=(credit("grant", 100),)))
    fleet.tell(m.FundSpentStated(fleet.now, "grant", "", 40 * USD, fleet.now, "operator"))
    fleet.tell(m.FundSpentStated(fleet.now + HOUR, "grant", "", 10 * USD, fleet.now - DAY, "billing"))
    account = fleet.world.funds["grant"]
    assert (account.spent_before[""], account.spent_source) == (40 * USD, "operator")


def test_a_statement_of_days_ago_is_not_believed() -> None:
    old = credit("old", 100, spent_as_of_ms=NOON - 3 * DAY)
    assert ledger.opening(old, NOON) is None
    assert ledger.opening(credit("new", 100, spent=None, from_ms=NOON - HOUR), NOON).amount == 0


def test_a_zombie_is_an_overrun_and_closes_the_fund() -> None:
    fleet = Fleet(policy(funds=(credit("grant", 3),)))
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.now += 8 * HOUR
    fleet.finish(1, runner)
    fleet.run(2 * MINUTE)
    account = fleet.world.funds["grant"]
    assert account.settled[""] > 3 * USD
    assert ledger.overrun(fleet.policy.funds["grant"], account) == account.settled[""] - 3 * USD
    fleet.job(2)
    fleet.step()
    assert not fleet.planned()
    (warning,) = forecast.warnings(fleet.policy.funds["grant"], account, fleet.now)
    assert warning.startswith("grant is overrun by $1.0")


def test_the_sponsors_statement_counts_jobs_hours_and_dollars() -> None:
    fleet = Fleet(policy())
    ran(fleet, 60)
    (line,) = fleet.world.spends.values()
    assert (line.fund, line.month, line.repository, line.jobs) == ("grant", "2026-11", "acme/app", 1)
    assert line.amount == fleet.world.funds["grant"].settled[""]
    assert HOUR <= line.machine_ms < HOUR + 3 * MINUTE


def test_the_outlook_of_a_fund() -> None:
    fund = credit("grant", 100, days=10)
    account = ledger.FundAccount("grant", known=True, settled={"": 21 * USD})
    account.settled_by_day = {ledger.day(NOON - n * DAY): 3 * USD for n in range(7)}
    view = forecast.outlook(fund, account, NOON)
    assert view.rate == 3 * USD
    assert view.unused == (79 - 30) * USD
    assert forecast.warnings(fund, account, NOON) == ["$49.00 of grant will expire unused at the present rate"]
    account.settled[""] = 85 * USD
    assert forecast.warnings(fund, account, NOON) == ["grant runs out in 5 days at the present rate"]


def test_free_machines_need_no_fund() -> None:
    fleet = Fleet(policy(funds=()), {"east": (offer("east", 0),)})
    ran(fleet, 10)
    assert fleet.cloud.created == 1
    assert fleet.at_rest()
