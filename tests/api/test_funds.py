"""What is stated about a fund, what it paid for, and what should be known of it."""

from __future__ import annotations

from tests.api.serving import Served, serving, token
from tests.api.worlds import Fleet

TOKENS = (token("ann", "write"), token("bob", "read"))


async def test_a_closed_fund_opens_when_its_spend_is_stated(fleet: Fleet) -> None:
    async with serving(fleet, TOKENS) as served:
        before = {row["name"]: row for row in (await served.get("funds", "bob-token"))["funds"]}
        assert "autoscaler funds set old-grant" in before["old-grant"]["closed"]
        answer = await served.post("funds/old-grant/spent", "ann-token", json={"spent": "1500 USD"})
        assert answer == {"fund": "old-grant", "spent_usd": "1500.000000", "by": "ann"}
        after = {row["name"]: row for row in (await served.get("funds", "bob-token"))["funds"]}
    assert after["old-grant"]["closed"] == ""
    assert after["old-grant"]["left_usd"] == "7500.000000"


async def test_stating_needs_a_write_token_a_fund_and_an_amount(fleet: Fleet) -> None:
    async with serving(fleet, TOKENS) as served:
        await served.post("funds/old-grant/spent", "bob-token", status=403, json={"spent": "1 USD"})
        refused = await served.post("funds/nobody/spent", "ann-token", status=404, json={"spent": "1 USD"})
        assert "no fund 'nobody'" in refused["error"]
        refused = await served.post("funds/old-grant/spent", "ann-token", status=400, json={"spent": 1500})
        assert "write `1500 USD`" in refused["error"]


async def test_what_we_settled_ourselves_is_not_counted_twice(fleet: Fleet) -> None:
    settled = fleet.world.funds["gcp-gift"].settled[""]
    assert settled > 0
    async with serving(fleet, TOKENS) as served:
        await served.post("funds/gcp-gift/spent", "ann-token", json={"spent": "40000 USD"})
        (row,) = (r for r in (await served.get("funds", "bob-token"))["funds"] if r["name"] == "gcp-gift")
    total = float(row["spent_before_usd"]) + float(row["settled_usd"])
    assert round(total, 6) == 40000


async def test_a_statement_adds_up(served: Served) -> None:
    found = await served.get("funds/gcp-gift/statement?month=2026-11")
    assert found["jobs"] == sum(row["jobs"] for row in found["repositories"]) > 0
    cents = [round(float(row["amount_usd"]) * 1_000_000) for row in found["repositories"]]
    assert round(float(found["amount_usd"]) * 1_000_000) == sum(cents) > 0
    assert (await served.get("funds/gcp-gift/statement?month=2020-01"))["jobs"] == 0
    assert "no fund" in (await served.get("funds/nobody/statement?month=2026-11", status=404))["error"]
    assert "expected YYYY-MM" in (await served.get("funds/gcp-gift/statement?month=Nov", status=400))["error"]


async def test_a_gift_that_will_expire_unused_is_warned_of(served: Served) -> None:
    warnings = [text for row in (await served.get("funds"))["funds"] for text in row["warnings"]]
    assert any("of gcp-gift will expire unused at the present rate" in text for text in warnings)


async def test_why_a_fund_names_what_spent_and_what_holds_it(served: Served) -> None:
    found = await served.get("funds/gcp-gift")
    assert found["sentence"].startswith("It is open: $")
    assert found["dollar"]
    micro = [round(float(row["amount_usd"]) * 1_000_000) for row in found["spent_by_repository"]]
    months = [round(float(row["amount_usd"]) * 1_000_000) for row in found["spent_by_month"]]
    assert sum(micro) == sum(months) == round(float(found["settled_usd"]) * 1_000_000) > 0
    held = [round(float(row["amount_usd"]) * 1_000_000) for row in found["held_by"]]
    assert sum(held) == round(float(found["held_usd"]) * 1_000_000)
    assert len(held) == found["held_runners"]


async def test_why_a_closed_fund_says_what_would_open_it(served: Served) -> None:
    found = await served.get("funds/old-grant")
    assert found["sentence"].startswith("It pays for no launch now: ")
    assert "autoscaler funds set old-grant" in found["sentence"]
    assert "no fund 'nobody'" in (await served.get("funds/nobody", status=404))["error"]
