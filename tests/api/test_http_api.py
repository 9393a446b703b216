"""`/api/v1` on a real socket: lists, pages, filters, tokens, switches, health."""

from __future__ import annotations

import json
import logging
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autoscaler.http import api as http_api
from autoscaler.views import fleet as fleet_views
from scheduling.world import PAUSED
from tests.api.serving import Served, serving, token
from tests.api.worlds import MINUTE, Fleet

LISTS = ("summary", "jobs", "runners", "providers", "funds", "cooldowns", "placements")
TOKENS = (token("ann", "write"), token("bob", "read"))


def leaves(document: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(document, dict):
        return [leaf for key, value in document.items() for leaf in leaves(value, key)]
    if isinstance(document, list):
        return [leaf for value in document for leaf in leaves(value, name)]
    return [(name, document)]


# ---- reading -----------------------------------------------------------------------------------------------


async def test_every_list_answers_with_amounts_and_times_as_promised(served: Served) -> None:
    for path in (*LISTS, "jobs/1000", "jobs/2308.1", "jobs/2600"):
        for name, value in leaves(await served.get(path)):
            if "_usd" in name and value is not None:
                assert re.fullmatch(r"-?\d+\.\d{6}", value), (path, name, value)
            elif (name == "at" or name.endswith("_at") or name in ("until", "from")) and value is not None:
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value), (path, name, value)


async def test_the_summary_counts_what_there_is(served: Served) -> None:
    found = await served.get("summary")
    jobs = found["jobs"]
    assert (jobs["blocked"], jobs["unroutable"], jobs["waiting"]) == (2, 3, 1)
    assert jobs["completed"] == 13
    assert jobs["queued"] + jobs["in_progress"] == 43
    assert found["runners"]["live"] == sum(found["runners"]["by_state"].values())
    assert found["runners"]["limit"] == 60
    assert found["leading"] is True
    gpu = found["pools"][0]
    assert (gpu["runner_type"], gpu["queued"], gpu["supply"]) == ("linux.gpu", 7, 0)
    assert gpu["refusals"][0]["refusal"] == "rocm-lab runs its max_runners 2"


async def test_k15_unroutable_jobs_are_seen_at_once(served: Served) -> None:
    found = await served.get("summary")
    row = found["blocked"][0]
    assert row["unroutable"]
    assert row["jobs"] == 2
    assert "linux.smal" in row["reason"]
    listed = await served.get("jobs?state=unroutable")
    assert {job["job_id"] for job in listed["jobs"]} == {2600, 2601, 2602}
    assert "autoscaler_unroutable_jobs 3.0" in await served.text("/metrics")


async def test_funds_say_what_is_left_and_why_one_is_closed(served: Served) -> None:
    funds = {fund["name"]: fund for fund in (await served.get("funds"))["funds"]}
    gift = funds["gcp-gift"]
    parts = [Decimal(gift[f"{name}_usd"]) for name in ("spent_before", "settled", "held", "left")]
    assert sum(parts) == Decimal(gift["limit_usd"]) == 50_000
    assert gift["expires_unused"]
    assert gift["closed"] == ""
    assert "what was spent of it is not known: `autoscaler funds set old-grant" in funds["old-grant"]["closed"]
    assert funds["arm-cash"]["period"] == "2026-11"


async def test_providers_show_caps_states_and_why_one_is_closed(served: Served) -> None:
    providers = {row["name"]: row for row in (await served.get("providers"))["providers"]}
    assert (providers["rocm-lab"]["live"], providers["rocm-lab"]["limit"]) == (2, 2)
    assert providers["aws"]["by_state"]["busy"] == 9
    assert providers["night-lab"]["closed"] == "outside Mon-Fri 22:00-06:00 Europe/Berlin"


async def test_placements_and_cooldowns(served: Served) -> None:
    placements = (await served.get("placements?limit=5"))["placements"]
    assert len(placements) == 5
    assert placements == sorted(placements, key=lambda row: row["at"], reverse=True)
    assert placements[0]["offer"].startswith("aws/us-east-1a/c6i.4xlarge")
    (cooldown,) = (await served.get("cooldowns"))["cooldowns"]
    assert cooldown["scope"] == "offer:aws/us-east-1a/c5.4xlarge/spot"
    assert cooldown["why"] == "no capacity for c5.4xlarge in us-east-1a"


async def test_pages_cover_every_job_once_though_new_ones_come(served: Served) -> None:
    before, seen, mark = set(served.fleet.world.jobs), [], ""
    while True:
        found = await served.get(f"jobs?limit=7{mark}")
        seen += [job["id"] for job in found["jobs"]]
        served.fleet.now_ms += MINUTE
        served.fleet.job(9000 + len(seen))
        if found["next"] is None:
            break
        mark = f"&after={found['next']}"
    assert len(seen) == len(set(seen))
    assert set(seen) == before


async def test_filters(served: Served) -> None:
    wheels = await served.get("jobs?repository=OCTO/models&state=in_progress&limit=1000")
    assert {job["repository"] for job in wheels["jobs"]} == {"octo/models"}
    assert {job["state"] for job in wheels["jobs"]} == {"in_progress"}
    assert await served.get("jobs?repository=nobody/nothing") == {"jobs": [], "next": None}
    gone = await served.get("runners?state=gone&provider=aws")
    assert {(row["state"], row["provider"]) for row in gone["runners"]} == {("gone", "aws")}
    live = await served.get("runners?limit=1000")
    assert len(live["runners"]) == served.fleet.world.live_count("")
    assert {row["runner_type"] for row in (await served.get("runners?runner_type=linux.gpu"))["runners"]} == {
        "linux.gpu"
    }


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("jobs?limit=0", "limit: '0' is not a number from 1 to 1000"),
        ("jobs?limit=1001", "limit"),
        ("jobs?limit=-1", "limit"),
        ("jobs?limit=%C2%B2", "limit"),
        ("jobs?state=quewed", "state: 'quewed' is none of waiting, queued, blocked"),
        ("jobs?stat=queued", "'stat' is no parameter here; known: state, repository, limit, after"),
        ("jobs?after=x", "after: expected what `next`"),
        ("runners?state=dead", "state"),
        ("funds?limit=3", "'limit' is no parameter here; known: none"),
        ("jobs/1000?limit=3", "'limit' is no parameter here"),
    ],
)
async def test_a_parameter_that_cannot_be_used_is_named(served: Served, path: str, says: str) -> None:
    assert says in (await served.get(path, status=400))["error"]


async def test_one_job_by_id_and_by_attempt(served: Served) -> None:
    by_id = await served.get("jobs/1000")
    assert by_id == await served.get("jobs/1000.1")
    assert by_id["why"]["sentence"].startswith("Ended (success)")
    assert "no job 4711 is known" in (await served.get("jobs/4711", status=404))["error"]
    assert "is no job id" in (await served.get("jobs/<script>", status=404))["error"]


async def test_labels_of_strangers_come_through_as_they_are(served: Served) -> None:
    found = await served.get("jobs/2602")
    assert "<script>alert(1)</script>" in found["labels"]
    async with served.session.get(f"{served.url}/api/v1/jobs/2602") as answer:
        assert answer.content_type == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_summary_changes_only_when_the_world_does(fleet: Fleet) -> None:
    first = fleet_views.summary(fleet.view())
    fleet.now_ms += 5
    second = fleet_views.summary(fleet.view())
    assert first.pop("at") != second.pop("at")
    first.pop("github")
    second.pop("github")
    assert first == second


# ---- health ------------------------------------------------------------------------------------------------


async def test_health_and_readiness(served: Served) -> None:
    assert json.loads(await served.text("/healthz")) == {"ok": True}
    assert json.loads(await served.text("/readyz")) == {"ready": True}
    served.source.away = True
    assert json.loads(await served.text("/healthz")) == {"ok": True}
    async with served.session.get(f"{served.url}/readyz") as answer:
        assert answer.status == 503
    assert (await served.get("summary", status=503))["error"] == "the store is away; try again"


# ---- who may -----------------------------------------------------------------------------------------------


async def test_with_a_tokens_file_everything_needs_a_token(fleet: Fleet) -> None:
    async with serving(fleet, TOKENS) as served:
        for path in (*LISTS, "jobs/1000", "stream"):
            assert "a bearer token is needed" in (await served.get(path, status=401))["error"]
        assert (
            "not in the daemon's tokens file" in (await served.get("jobs", token="eve-token", status=401))["error"]
        )
        assert (await served.get("jobs", token="bob-token"))["jobs"]
        assert (await served.get("jobs", token="ann-token"))["jobs"]
        for path in ("/healthz", "/readyz", "/metrics", "/", "/dashboard.js"):
            await served.text(path)
        async with served.session.get(f"{served.url}/api/v1/jobs") as answer:
            assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_switches_need_write_scope(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(fleet, TOKENS) as served:
        with caplog.at_level(logging.INFO):
            await served.post("pause", status=401)
            assert "may only read" in (await served.post("pause", token="bob-token", status=403))["error"]
            assert await served.post("pause", token="ann-token") == {"target": PAUSED, "on": True, "by": "ann"}
        assert fleet.world.switches == {PAUSED: "ann"}
        assert (await served.get("summary", token="bob-token"))["switches"] == [{"target": PAUSED, "by": "ann"}]
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            "pause refused: a bearer token is needed: the header `Authorization: Bearer TOKEN`",
            "pause refused: the token bob may only read; switches need one with scope write",
            "pause fleet by ann",
        ]
        assert caplog.records[-1].name == "autoscaler.audit"
        assert "ann-token" not in caplog.text
        await served.post("resume", token="ann-token")
        assert fleet.world.switches == {}


async def test_drain_names_what_exists(fleet: Fleet) -> None:
    async with serving(fleet, TOKENS) as served:
        for target in ("provider:aws", "type:linux.small", "all"):
            await served.post("drain", token="ann-token", json={"target": target})
            assert target in fleet.world.switches
            await served.post("undrain", token="ann-token", json={"target": target})
            assert target not in fleet.world.switches
        refused = await served.post("drain", token="ann-token", status=400, json={"target": "provider:aw"})
        assert "did you mean provider:aws?" in refused["error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"null", b'{"target": {"a": 1}}', b"\xff", b"[" * 3000])
async def test_a_bad_body_is_told_what_was_expected(fleet: Fleet, body: bytes) -> None:
    async with serving(fleet, TOKENS) as served:
        assert "provider:NAME" in (await served.post("drain", token="ann-token", status=400, data=body))["error"]
        await served.post("drain", token="ann-token", status=413, data=b" " * 5000)
        assert fleet.world.switches == {}


async def test_without_a_tokens_file_writes_are_refused(served: Served) -> None:
    for name in ("pause", "resume", "drain", "undrain"):
        refused = await served.post(name, status=403, json={"target": "all"})
        assert "AUTOSCALER_API_TOKENS_FILE" in refused["error"]
    assert served.fleet.world.switches == {}


async def test_a_switch_while_the_store_is_away_is_no_success(fleet: Fleet) -> None:
    async with serving(fleet, TOKENS) as served:
        served.source.away = True
        await served.post("pause", token="ann-token", status=503)


# ---- the page ----------------------------------------------------------------------------------------------


async def test_the_page_and_its_parts_allow_nothing_from_elsewhere(served: Served) -> None:
    page = await served.text("/")
    parts = re.findall(r'(?:src|href)="(/[^"]+)"', page)
    assert parts
    for path in ["/", *parts]:
        async with served.session.get(f"{served.url}{path}") as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy


def test_no_part_of_the_page_makes_markup_of_text_or_loads_from_elsewhere() -> None:
    folder = Path(http_api.__file__).parent / "dashboard"
    markup = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=")
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        for bad in (*markup, "http://", "https://"):
            assert bad not in text, (path.name, bad)
        for imported in re.findall(r'from "/([^"]+)"', text):
            assert (folder / imported).exists()
