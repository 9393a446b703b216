"""The figures that `demo` and `backtest` print."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from autoscaler.sandbox.summary import (
    Costs,
    FundLine,
    JobOutcome,
    Outcome,
    RunnerCounts,
    document,
    healthy,
    page,
    usd,
    waits,
)

MINUTE = 60_000


def ran(provider: str, waited_ms: int = 30_000, conclusion: str = "success") -> JobOutcome:
    return JobOutcome("completed", conclusion, provider, MINUTE, MINUTE + waited_ms)


@pytest.fixture
def outcome() -> Outcome:
    return Outcome(
        jobs=[
            *(ran("gcp", 1000 * n) for n in range(1, 101)),
            ran("lab", conclusion="failure"),
            JobOutcome("completed", "cancelled", "", MINUTE, 0),
            JobOutcome("completed", "failure", "", MINUTE, 0),
            JobOutcome("queued", "", "", MINUTE, 0, unroutable=True),
            JobOutcome("queued", "", "", MINUTE, 0),
        ],
        runners=RunnerCounts(launched=110, failed_launches=4, reaped_unused=2),
        costs=Costs(
            list=9_000_000,
            by_provider={"gcp": 2_500_000, "lab": 0},
            by_fund={"gift": 2_000_001, "cash": 499_999, "other": 0},
            cash_funds=frozenset({"cash", "petty"}),
            boot=100_000,
            idle=1,
        ),
        wall_ms=61_234,
        simulated_ms=3_600_000,
    )


def test_the_document_has_every_promised_key(outcome: Outcome) -> None:
    found = json.loads(json.dumps(document(outcome)))
    assert found["jobs"] == {
        "total": 105,
        "completed": 101,
        "cancelled": 1,
        "lost": 1,
        "unroutable": 1,
        "waiting": 1,
        "by_provider": {"gcp": 100, "lab": 1},
    }
    assert found["runners"] == {
        "launched": 110,
        "failed_launches": 4,
        "reaped_unused": 2,
        "leaked_instances": 0,
        "leaked_registrations": 0,
    }
    assert found["cost_usd"] == {
        "list": "9.000000",
        "cash": "0.499999",
        "credits": "2.000001",
        "expired_credits": "0.000000",
        "boot": "0.100000",
        "idle": "0.000001",
        "overrun": "0.000000",
        "by_provider": {"gcp": "2.500000", "lab": "0.000000"},
        "by_fund": {"cash": "0.499999", "gift": "2.000001"},
    }
    assert found["wall_seconds"] == 61.234
    assert found["simulated_seconds"] == 3600.0


def test_the_five_counts_sum_to_the_total(outcome: Outcome) -> None:
    jobs = document(outcome)["jobs"]
    assert sum(jobs[name] for name in ("completed", "cancelled", "lost", "unroutable", "waiting")) == jobs["total"]


def test_waits_are_nearest_ranks() -> None:
    jobs = [ran("gcp", 1000 * n) for n in range(1, 101)]
    assert waits(jobs) == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
    assert waits(jobs[:1]) == {"p50": 1.0, "p90": 1.0, "p99": 1.0, "max": 1.0}
    assert waits([]) == {"p50": None, "p90": None, "p99": None, "max": None}


@pytest.mark.parametrize(
    ("runners", "costs", "good"),
    [
        (RunnerCounts(), Costs(), True),
        (RunnerCounts(leaked_instances=1), Costs(), False),
        (RunnerCounts(leaked_registrations=1), Costs(), False),
        (RunnerCounts(), Costs(overrun=1), False),
    ],
)
def test_what_is_left_behind_or_overdrawn_is_unhealthy(runners: RunnerCounts, costs: Costs, good: bool) -> None:
    assert healthy(document(Outcome([ran("gcp")], runners, costs, 1, 1))) is good


def test_a_job_that_did_not_run_is_unhealthy() -> None:
    waiting = JobOutcome("queued", "", "", MINUTE, 0)
    assert not healthy(document(Outcome([waiting], RunnerCounts(), Costs(), 1, 1)))


def test_amounts() -> None:
    assert [usd(amount) for amount in (0, 1, 1_500_000, -25)] == ["0.000000", "0.000001", "1.500000", "-0.000025"]


def test_the_page_says_it_in_words(outcome: Outcome) -> None:
    console = Console(file=io.StringIO(), width=100)
    lines = [FundLine("gift", 50_000_000_000, 48_000_000_000, 1_790_000_000_000), FundLine("cash", 10**9, 10**9)]
    console.print(page(document(outcome), lines, "Why job 7 ran on gcp"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in (
        "101 of 105 jobs ran",
        "1 lost",
        "$0.50 cash + $2.00 of credits",
        "$9.00 at the cheapest list price",
        "nothing left behind",
        "48,000.00",
        "21 Sep 2026",
        "monthly",
        "free",
        "longest 1 min 40 s",
        "Why job 7 ran on gcp",
    ):
        assert words in text


def test_what_still_runs_when_somebody_stops_it_is_no_leak(outcome: Outcome) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(page(document(outcome), [], interrupted=True))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Stopped: 101 of 105 jobs ran" in text
    assert "waiting" not in text
    assert "nothing left behind" not in text
