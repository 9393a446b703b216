"""Funds that follow each other, shrink, grow or are stated late; what is learned is bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from scheduling import forecast, learning, ledger
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.policy import Fund
from tests.core.fleet import HOUR, MINUTE, NOON, USD, Fleet, credit, offer, policy


def test_a_successor_grant_takes_over_the_part_of_a_hold_after_the_first_ends() -> None:
    first = replace(credit("first", 1000), until_ms=NOON + HOUR)
    second = replace(credit("second", 1000), from_ms=NOON + HOUR)
    fleet = Fleet(policy(funds=(first, second)))
    fleet.job(1)
    fleet.step()
    (runner,) = fleet.runners(RunnerState.STARTING)
    assert (runner.hold[0].from_ms, runner.hold[0].until_ms) == (NOON, NOON + HOUR)
    assert [part.fund for part in runner.hold] == ["first", "second"]
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.now += 2 * HOUR
    fleet.finish(1, runner)
    fleet.run(2 * MINUTE)
    assert fleet.world.funds["first"].settled[""] == ledger.price_of(USD // 2, HOUR)
    assert fleet.world.funds["second"].settled[""] == runner.cost - ledger.price_of(USD // 2, HOUR)


def test_a_successor_that_has_just_been_written_into_the_policy_is_known_before_it_begins() -> None:
    first = replace(credit("first", 1000), until_ms=NOON + HOUR)
    second = Fund("second", False, 1000 * USD, from_ms=NOON + HOUR)
    fleet = Fleet(policy(funds=(first, second)))
    fleet.job(1)
    fleet.step()
    assert len(fleet.planned()) == 1


def limit(fleet: Fleet, dollars: int) -> None:
    name = f"limit-{dollars}"
    grant = replace(fleet.policy.funds["grant"], limit=dollars * USD)
    fleet.policy = replace(fleet.policy, hash=name, funds={"grant": grant}, memo={})
    fleet.tell(m.PolicyActivated(fleet.now, name))


def overrun(fleet: Fleet) -> int:
    return ledger.overrun(fleet.policy.funds["grant"], fleet.world.funds["grant"])


def test_a_lowered_limit_is_an_overrun_that_ends_when_the_limit_is_raised() -> None:
    fleet = Fleet(policy())
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.now += 2 * HOUR
    fleet.finish(1, runner)
    fleet.run(5 * MINUTE)
    spent = fleet.world.funds["grant"].settled[""]
    limit(fleet, 0)
    fleet.job(2)
    fleet.step()
    assert overrun(fleet) == spent > 0
    assert not fleet.planned()
    (warning,) = forecast.warnings(fleet.policy.funds["grant"], fleet.world.funds["grant"], fleet.now)
    assert "no launch is paid from it" in warning
    limit(fleet, 100)
    fleet.step()
    assert overrun(fleet) == 0
    assert len(fleet.planned()) == 1
    warnings = forecast.warnings(fleet.policy.funds["grant"], fleet.world.funds["grant"], fleet.now)
    assert not any("overrun" in warning for warning in warnings)


def test_an_adopted_machine_that_the_fund_cannot_hold_is_an_overrun_until_it_is_gone() -> None:
    before = Fleet(policy())
    before.job(1)
    (runner,) = before.idle()
    fleet = Fleet(policy(funds=(credit("grant", 1),)))
    fleet.cloud = before.cloud
    fleet.tell(
        m.MachineAdopted(
            fleet.now, runner.id, runner.ref, "linux", offer("east"), runner.price, "grant", runner.hold,
            runner.terms, fleet.now,
        )
    )  # fmt: skip
    held = sum(part.amount for part in runner.hold)
    assert overrun(fleet) == held - USD
    fleet.tell(m.RegistrationsListed(fleet.now + 1))  # GitHub knows nothing of it
    fleet.run(runner.terms.boot_timeout_ms + 2 * MINUTE)  # and nobody hears of it
    assert fleet.at_rest()
    assert overrun(fleet) == 0


def test_cash_spent_that_was_stated_yesterday_counts_in_its_own_month() -> None:
    first = int(datetime(2026, 12, 1, 9, tzinfo=UTC).timestamp() * 1000)
    cash = Fund("cash", True, 20_000 * USD, spent=19_000 * USD, spent_as_of_ms=first - 12 * HOUR)
    fleet = Fleet(policy(funds=(cash,)))
    fleet.now = first
    fleet.job(1)
    fleet.step()
    account = fleet.world.funds["cash"]
    assert account.spent_before == {"2026-11": 19_000 * USD}
    assert ledger.spent(account, "2026-12") == 0
    assert len(fleet.planned()) == 1


def test_job_names_without_number_are_not_all_learned_but_their_type_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "KEYS", 10)
    fleet = Fleet(policy())
    for number in range(1, 31):
        fleet.job(number, name=f"job {number}")
    for number, runner in enumerate(fleet.idle(), start=1):
        fleet.start(number, runner)
        fleet.now += MINUTE
        fleet.finish(number, runner)
    names = [name for name in fleet.world.learned if name.startswith("job/")]
    assert 0 < len(names) <= 10
    assert fleet.world.learned["type/linux"].weight == 20
    assert fleet.world.learned["repository/acme/app/linux"].weight == 20
