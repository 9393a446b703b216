"""What a provider's billing says of a credit, on its way: GetCredits -> event -> ledger -> what people see."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console, Group

from autoscaler.cli import tables
from autoscaler.inventory import BALANCE_MS, Inventory
from autoscaler.views.jobs_and_runners import View
from autoscaler.views.why_fund import of_fund
from providers.aws import KIND
from scheduling.policy import ProviderPolicy
from tests.core.fleet import HOUR, USD, Fleet, credit, policy
from tests.daemon.alone import Alone
from tests.providers import moto_cloud
from tests.providers.aws_bench import AwsBench, moto_account
from tests.providers.moto_cloud import MotoCloud, Rule

ASKED = "GetCredits"


@pytest.fixture(scope="module")
def account() -> Iterator[MotoCloud]:
    with moto_account() as cloud:
        yield cloud


@pytest.fixture
def cloud(account: MotoCloud) -> Iterator[MotoCloud]:
    yield account
    account.reset()


def leader(cloud: MotoCloud, **settings: Any) -> Alone:
    """A leader of a fleet with one AWS account and a fund of $1,000 whose spend only billing knows."""
    fund = credit("aws-2026", 1000, "gift", spent=None, balance="gift")
    fleet = Fleet(policy(funds=(fund,), providers={"gift": ProviderPolicy("gift", "aws")}))
    alone = Alone(fleet)
    bench = AwsBench(cloud, alone.clock, **settings)
    alone.daemon.parts.providers["gift"] = KIND.build(bench.config, bench.clock)  # type: ignore[index]
    alone.inventory = Inventory(alone.daemon, alone.leader, "gift")
    return alone


def page(alone: Alone) -> tuple[dict[str, Any], str]:
    """The fund's document and its text form."""
    found = of_fund(View(alone.fleet.world, alone.fleet.policy, {}, True, "", alone.fleet.now), "aws-2026")
    out = io.StringIO()
    Console(file=out, width=160).print(Group(*tables.fund(found)))
    return found, out.getvalue()


async def test_spend_of_others_shrinks_the_fund_once_billing_says_so(cloud: MotoCloud) -> None:
    cloud.credits = [moto_cloud.credit("grant", "1000.00", "655.50")]
    alone = leader(cloud)
    assert "what was spent of it is not known" in page(alone)[0]["closed"]
    await alone.inventory.balance()
    found, text = page(alone)
    assert (found["spent_before_usd"], found["left_usd"], found["closed"]) == ("344.500000", "655.500000", "")
    assert "$344.50 beside ours, by the provider's billing (gift)" in text
    alone.fleet.now += 2 * HOUR
    assert "said 2 h 00 min ago, as of 1 d 02 h ago" in page(alone)[1]


async def test_our_own_spend_is_in_the_bill_and_counts_once(cloud: MotoCloud) -> None:
    alone = leader(cloud)
    await alone.inventory.balance()
    ours = alone.fleet.world.funds["aws-2026"]
    ours.settled[""], ours.settled_by_day["2026-11-28"] = 100 * USD, 100 * USD
    cloud.credits = [moto_cloud.credit("grant", "1000.00", "850.00")]
    alone.fleet.now += BALANCE_MS
    await alone.inventory.balance()
    found = page(alone)[0]
    assert (found["spent_before_usd"], found["left_usd"]) == ("50.000000", "850.000000")


async def test_billing_is_asked_twice_a_day_whoever_leads_and_whether_it_answers_or_not(cloud: MotoCloud) -> None:
    alone = leader(cloud)
    for _ in range(3):
        await alone.inventory.balance()
    await Inventory(alone.daemon, alone.leader, "gift").balance()  # another life of the leader
    assert cloud.count(ASKED) == 1
    alone.fleet.now += BALANCE_MS
    cloud.add(Rule(ASKED, code="AccessDeniedException"))
    for _ in range(3):
        await alone.inventory.balance()
    assert cloud.count(ASKED) == 2
    assert page(alone)[0]["left_usd"] == "1000.000000"  # what is known stands
    alone.fleet.now += BALANCE_MS
    await alone.inventory.balance()
    assert cloud.count(ASKED) == 3


async def test_one_of_several_credits_is_named(cloud: MotoCloud) -> None:
    cloud.credits = [moto_cloud.credit("other", "500", "0"), moto_cloud.credit("grant", "1000", "900")]
    cloud.credits.append(moto_cloud.credit("off", "70", "0", status="DISABLED"))
    named, all_ = leader(cloud, credit="grant"), leader(cloud)
    await named.inventory.balance()
    await all_.inventory.balance()
    assert page(named)[0]["spent_before_usd"] == "100.000000"
    assert page(all_)[0]["spent_before_usd"] == "600.000000"


@pytest.mark.parametrize(
    ("held", "why"),
    [
        ([moto_cloud.credit("other", "500", "0")], "does not have the credit grant (it has: other)"),
        ([moto_cloud.credit("grant", "500", "0", currency="EUR")], "credit grant is in EUR; a fund is in USD"),
    ],
)
async def test_what_cannot_be_taken_leaves_the_fund_closed_and_says_why(
    cloud: MotoCloud, caplog: pytest.LogCaptureFixture, held: list[dict[str, Any]], why: str
) -> None:
    cloud.credits = held
    alone = leader(cloud, credit="grant")
    await alone.inventory.balance()
    assert not page(alone)[0]["known"]
    assert why in caplog.text
