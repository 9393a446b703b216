"""The table of metrics is what `/metrics` says, no more and no less."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from autoscaler.metrics import SERIES_LIMIT, TABLE, Metrics
from tests.api.serving import Served, serving
from tests.api.worlds import Fleet

UNITS = ("_total", "_seconds", "_usd", "_info")


def everything(metrics: Metrics) -> None:
    """Touch each process metric once."""
    metrics.webhook("stored", 0.002)
    metrics.event("JobReported")
    metrics.rejected("undecodable")
    metrics.tick(0.01, 3, 2)
    metrics.commit("done")
    metrics.effect("CreateMachine", "aws", "MachineCreated", 0.4)
    metrics.reloaded(True)
    metrics.reaps_capped()
    metrics.duplicate_machine("aws")
    metrics.sweep_age(3.0)
    metrics.started(42.0, "linux.small")


async def test_the_table_is_what_is_exposed(served: Served) -> None:
    everything(served.metrics)
    served.fleet.world.switches["all"] = "ann"
    families = {family.name: family for family in text_string_to_metric_families(await served.text("/metrics"))}
    table = {row.name.removesuffix("_total"): row for row in TABLE}
    assert families.keys() == table.keys()
    for name, row in table.items():
        family = families[name]
        assert (family.type, family.documentation) == (row.kind, row.help)
        assert family.samples, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(row.labels), sample


def test_names_follow_prometheus() -> None:
    names = [row.name for row in TABLE]
    assert len(names) == len(set(names))
    for row in TABLE:
        assert re.fullmatch(r"autoscaler_[a-z_]+", row.name)
        assert row.help.endswith(".")
        assert (row.kind == "counter") == row.name.endswith("_total")
        assert (row.kind == "histogram") == bool(row.buckets)


async def test_values_of_the_fleet(served: Served) -> None:
    text = await served.text("/metrics")
    for line in (
        'autoscaler_jobs{runner_type="linux.gpu",state="queued"} 7.0',
        'autoscaler_runners{provider="rocm-lab",runner_type="linux.gpu",state="busy"} 2.0',
        'autoscaler_runners_live{scope="provider:rocm-lab"} 2.0',
        'autoscaler_runners_limit{scope="provider:rocm-lab"} 2.0',
        'autoscaler_runners_limit{scope="fleet"} 60.0',
        'autoscaler_fund_open{fund="old-grant"} 0.0',
        'autoscaler_fund_open{fund="gcp-gift"} 1.0',
        'autoscaler_fund_limit_usd{fund="gcp-gift"} 50000.0',
        'autoscaler_jobs_ended_total{conclusion="completed"} 13.0',
        'autoscaler_github_budget{app="1",owner="octo",resource="core"} 4211.0',
        "autoscaler_blocked_jobs 2.0",
        "autoscaler_oldest_queued_seconds 90.0",
        "autoscaler_leading 1.0",
        "autoscaler_policy_error 0.0",
    ):
        assert f"{line}\n" in text, line


async def test_only_the_leader_speaks_for_the_fleet(fleet: Fleet) -> None:
    async with serving(fleet, leads=False) as served:
        text = await served.text("/metrics")
        assert "autoscaler_leading 0.0" in text
        assert "autoscaler_webhooks_total" in text
        assert "autoscaler_jobs" not in text


async def test_a_bad_policy_and_takeovers_show(served: Served) -> None:
    served.metrics.reloaded(False)
    served.metrics.leading(True)
    served.metrics.leading(False)
    served.metrics.leading(True)
    text = await served.text("/metrics")
    assert "autoscaler_policy_error 1.0" in text
    assert 'autoscaler_policy_reloads_total{outcome="refused"} 1.0' in text
    assert "autoscaler_takeovers_total 2.0" in text


async def test_the_age_of_the_sweep_grows_by_itself() -> None:
    metrics = Metrics()
    metrics.sweep_age(100.0)
    (age,) = re.findall(rb"^autoscaler_sweep_age_seconds (.*)$", metrics.text(None), re.MULTILINE)
    assert 100.0 < float(age) < 101.0


def test_series_are_bounded() -> None:
    metrics = Metrics()
    for number in range(SERIES_LIMIT + 50):
        metrics.rejected(f"why {number}")
    text = metrics.text(None).decode()
    assert text.count("autoscaler_rejected_events_total{") == SERIES_LIMIT + 1
    assert 'autoscaler_rejected_events_total{why="other"} 50.0' in text
