"""Old prices are flagged wherever somebody decides by them; an unknown one refuses its offer and says so."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from autoscaler.cli import tables
from autoscaler.views import fleet as fleet_views
from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why, why_text
from scheduling import messages as m
from scheduling.model import Offer, Purchase
from tests.api.worlds import LARGE, Fleet

DAY = 86_400_000


def screen(renderable: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(renderable)
    return out.getvalue()


def sell(fleet: Fleet, provider: str, **changes: Any) -> list[Offer]:
    offers = tuple(replace(offer, **changes) for offer in fleet.world.offers[provider])
    fleet.tell(m.OffersListed(fleet.now_ms, provider, offers))
    return list(offers)


def offers_of(fleet: Fleet, provider: str) -> tuple[list[dict[str, Any]], str]:
    fleet.job(1, LARGE, fork=False)
    fleet.plan()
    found = why.job_document(fleet.view(), views.find_job(fleet.view(), "1"))
    return [row for row in found["why"]["offers"] if row["provider"] == provider], screen(why_text.screen(found))


def provider(fleet: Fleet, name: str) -> tuple[dict[str, Any], str]:
    found = fleet_views.providers(fleet.view())
    text = screen(next(iter(tables.providers(found))))
    return next(row for row in found["providers"] if row["name"] == name), text


def test_a_price_of_last_week_is_used_and_flagged(fleet: Fleet) -> None:
    offers = sell(fleet, "aws", price_ms=fleet.now_ms - 8 * DAY)
    row, table = provider(fleet, "aws")
    assert row["prices"] == {"oldest": "2026-11-22T12:00:00.000Z", "stale": len(offers), "unknown": 0}
    assert f"since 2026-11-22, {len(offers)} stale" in table
    rows, text = offers_of(fleet, "aws")
    open_ = [each for each in rows if not each["refusal"]]
    assert open_
    assert {(each["price_as_of"], each["price_stale"]) for each in open_} == {("2026-11-22T12:00:00.000Z", True)}
    assert "price of 2026-11-22" in text


def test_a_price_of_two_days_ago_is_old_for_spot_only(fleet: Fleet) -> None:
    offers = sell(fleet, "aws", price_ms=fleet.now_ms - 2 * DAY)
    spot = sum(offer.purchase is Purchase.SPOT for offer in offers)
    assert 0 < spot < len(offers)
    assert provider(fleet, "aws")[0]["prices"]["stale"] == spot


def test_what_has_no_age_is_not_flagged(fleet: Fleet) -> None:
    row, table = provider(fleet, "gcp")
    assert row["prices"] == {"oldest": None, "stale": 0, "unknown": 0}
    assert "stale" not in table


def test_an_unknown_price_is_counted_and_refuses(fleet: Fleet) -> None:
    sell(fleet, "aws", list_price=None)
    row, table = provider(fleet, "aws")
    assert row["prices"]["unknown"] == row["offers"]
    assert f"{row['offers']} unknown" in table
    rows, _ = offers_of(fleet, "aws")
    assert {each["refusal"] for each in rows} == {"its price is unknown: state `price` at the provider"}
