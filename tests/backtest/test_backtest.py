"""`backtest` as a user meets it: figures, comparisons, and event files that are not as they should be."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autoscaler.backtest import examples, live, recording, world_model
from autoscaler.backtest.command import run
from autoscaler.cli.usage import Unusable
from tests.backtest.conftest import POLICY, START, Write, delivery, rfc3339, story

ROOT = Path(__file__).parents[2]
Policy = Callable[..., Path]


@pytest.fixture
def tried(capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def tried(events: Path, *policies: Path, **more: Any) -> dict[str, Any]:
        capfd.readouterr()
        assert run(events, policies, as_json=True, **more) == 0
        out, err = capfd.readouterr()
        found: dict[str, Any] = json.loads(out)
        return found | {"stderr": err}

    return tried


Tried = Callable[..., dict[str, Any]]


def test_jobs_run_on_simulated_machines_and_are_paid(write: Write, policy: Policy, tried: Tried) -> None:
    events = write([line for job in range(10, 40, 10) for line in story(job, at=job)])
    found = tried(events, policy("small"))
    assert found["jobs"] == {
        "total": 3, "completed": 3, "cancelled": 0, "lost": 0, "unroutable": 0, "waiting": 0,
        "by_provider": {"small": 3},
    }  # fmt: skip
    assert found["runners"]["launched"] == 3
    assert found["runners"]["leaked_instances"] == 0
    assert 0 < found["queue_seconds"]["p50"] < 60
    costs = found["cost_usd"]
    assert costs["list"] == "0.050001"  # three times ten minutes at 0.10 USD/h, each rounded up
    assert Decimal(costs["list"]) < Decimal(costs["cash"]) < Decimal("0.06")
    assert costs["by_fund"] == {"cash": costs["cash"]}
    assert "wall_seconds" in found
    assert found["simulated_seconds"] > 600


def test_the_same_events_give_the_same_bytes(
    write: Write, policy: Policy, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    events = write([line for job in range(10, 300, 10) for line in story(job, at=job * 3)])
    pages = []
    for name in ("one.html", "two.html"):
        assert run(events, [policy("small"), policy("big")], report=tmp_path / name, as_json=True) == 0
        pages.append((capfd.readouterr().out, (tmp_path / name).read_bytes()))
    assert pages[0] == pages[1]


def test_two_policies_and_where_their_difference_comes_from(write: Write, policy: Policy, tried: Tried) -> None:
    slow = POLICY.replace("instance_types: {s", "boot_seconds: 60, instance_types: {s")
    events = write([line for job in range(10, 200, 10) for line in story(job, at=job * 7)])
    found = tried(events, policy("small", text=slow), policy("big"))
    a, b, change = found["a"], found["b"], found["difference"]
    paid = {
        name: Decimal(each["cost_usd"]["cash"]) + Decimal(each["cost_usd"]["credits"])
        for name, each in (("a", a), ("b", b))
    }
    money, time = change["causes"]["cost_usd"], change["causes"]["waited_seconds"]
    assert Decimal(money["whole"]) == paid["b"] - paid["a"] > 0
    assert sum(Decimal(part["usd"]) for part in money["parts"]) == Decimal(money["whole"])
    assert money["parts"][0]["cause"] == "small → big"
    assert sum(part["seconds"] for part in time["parts"]) == pytest.approx(time["whole"])
    assert time["parts"][0]["cause"] == "boots"
    assert time["whole"] < 0
    assert change["queue_seconds"]["p50"] == pytest.approx(b["queue_seconds"]["p50"] - a["queue_seconds"]["p50"])
    assert {(each["a"], each["b"]) for each in change["causes"]["payers"]} == {("cash", "grant")}


def test_cancelled_unroutable_foreign_and_unpaid_jobs(write: Write, policy: Policy, tried: Tried) -> None:
    poor = POLICY.replace("cash: 50 USD/month, pays: [big, small]", "cash: 1 USD/month, pays: [small]")
    lines = [
        *story(10, at=0),
        delivery(20, "queued", 5),
        delivery(20, "completed", 8, conclusion="cancelled", runner_name="", completed_at=None),
        *story(30, at=10, labels=["self-hosted", "mainframe"]),
        *story(40, at=10, labels=["ubuntu-latest"]),
        delivery(50, "completed", 20, conclusion="skipped", runner_name=""),
        *(line for job in range(60, 200, 10) for line in story(job, at=30, lasts=3600)),
    ]
    found = tried(write(lines), policy("small", text=poor))
    jobs = found["jobs"]
    assert jobs["total"] == 3 + 14
    assert (jobs["cancelled"], jobs["unroutable"]) == (1, 1)
    assert jobs["completed"] >= 2  # a hold of 4.4 h at 0.10 USD/h leaves room for two machines at once
    assert Decimal(found["cost_usd"]["cash"]) <= 1
    assert found["cost_usd"]["overrun"] == "0.000000"


def test_a_job_waits_where_no_money_is(write: Write, policy: Policy, tried: Tried) -> None:
    text = POLICY.replace("pays: [big, small]}", "pays: [big]}")
    found = tried(write(story(10, at=0)), policy("small", text=text))
    assert found["jobs"]["waiting"] == 1
    assert found["runners"]["launched"] == 0


def test_jobs_that_the_recording_does_not_see_end(write: Write, policy: Policy, tried: Tried) -> None:
    lines = [
        *story(10, at=0, lasts=300),
        *story(20, at=1000)[:2],
        delivery(30, "completed", 0, conclusion="success"),
    ]
    found = tried(write(lines), policy("small"))
    assert found["jobs"]["completed"] == 2
    assert found["recording"]["unfinished"] == 1
    assert any("had not ended" in line for line in found["assumptions"])


def test_run_facts_decide_access_and_are_assumed_where_they_lack(
    write: Write, policy: Policy, tried: Tried
) -> None:
    closed = POLICY.replace("forks: allow", "forks: deny")
    fork = [{**line, "run": {"event": "pull_request", "fork": True, "ref": ""}} for line in story(10, at=-5)]
    found = tried(write([*story(20, at=0), *fork]), policy("small", text=closed))
    # GitHub gave the runner that was launched for job 20 to the older job 10: refused when it started
    assert (found["jobs"]["completed"], found["jobs"]["lost"]) == (1, 1)
    assert found["runners"]["refused_at_start"] == 1
    alone = tried(write(fork), policy("small", text=closed))
    assert (alone["jobs"]["waiting"], alone["runners"]["launched"]) == (1, 0)
    assert any("taken as `push`, not from a fork" in line for line in found["assumptions"])


def test_a_world_file_states_prices_capacity_and_interruptions(
    write: Write, policy: Policy, tried: Tried, tmp_path: Path
) -> None:
    world = tmp_path / "world.yaml"
    world.write_text('offers: {"small/*": {boot: 5m, capacity: 1, price: 2 USD/h}}', encoding="utf-8")
    events = write([line for job in (10, 20, 30) for line in story(job, at=job)])
    found = tried(events, policy("small"), world=world)
    assert found["jobs"]["completed"] == 3
    assert found["queue_seconds"]["p50"] > 300
    assert found["runners"]["failed_launches"] > 0
    assert Decimal(found["cost_usd"]["cash"]) > Decimal("1.5")
    world.write_text("boot: soon\nofers: {}", encoding="utf-8")
    assert run(events, [policy("small")], world=world) == 1


def machine(number: int, at: float, **more: Any) -> dict[str, Any]:
    """A line of `serve --record`: a machine at the cheap provider that booted in 200 s."""
    start = round(START.timestamp() + at) * 1000
    found = {
        "runner": f"r{number}", "offer": "small/sim-1a/s/on_demand", "provider": "small", "fund": "cash",
        "job": f"{number * 10}.1", "planned_ms": start, "created_ms": start + 4_000, "booted_ms": start + 204_000,
        "jit_ms": start + 205_000, "registered_ms": start + 225_000, "life_ms": 900_000, "cost": 25_000,
    }  # fmt: skip
    return {"at": rfc3339(at), "event": "runner", "delivery": f"runner-r{number}-", "payload": found | more}


def test_the_world_file_of_the_documents_can_be_used(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(create:.*?)```", (ROOT / "deploy/README.md").read_text(), re.DOTALL)
    (tmp_path / "world.yaml").write_text(text)
    found = world_model.load(tmp_path / "world.yaml", {})
    assert "a create call takes 2 s" in found.assumptions()[0].casefold()
    assert f"an offer needs {live.ENOUGH} launches or more" in (ROOT / "deploy/README.md").read_text()


def test_recorded_machines_are_measured_and_compared_with(
    write: Write, policy: Policy, tried: Tried, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = [line for job in range(10, 110, 10) for line in story(job, at=job * 60, waits=231)]
    machines = [machine(number, at=900 + number) for number in range(1, 11)]
    offer = tried(write(jobs), policy("small"))["assumptions"]
    assert not any("Measured" in line for line in offer)
    events = write([*jobs, *machines, machines[0]])
    found = tried(events, policy("small"), compare_live=True)
    assert any("Measured on 10 recorded machines" in line for line in found["assumptions"])
    live = found["live"]
    assert live["jobs"] == 10
    assert live["queue_seconds"]["recorded"]["p50"] == 231
    assert live["queue_seconds"]["simulated"]["p50"] == pytest.approx(231, rel=0.1)
    assert live["cost_usd"]["recorded"] == "0.250000"
    assert live["cost_usd"]["by_fund"]["cash"]["recorded"] == "0.250000"
    assert run(events, [policy("small")], compare_live=True) == 0
    out, _ = capfd.readouterr()
    assert "Recorded and simulated" in out
    assert "not recorded" not in out


def test_without_recorded_machines_no_cost_is_compared(write: Write, policy: Policy, tried: Tried) -> None:
    found = tried(write(story(10, at=0)), policy("small"), compare_live=True)
    assert found["live"]["cost_usd"] is None
    with pytest.raises(Unusable, match="the one policy that ruled"):
        run(write(story(10, at=0)), [policy("small"), policy("big")], compare_live=True)


def test_a_taken_spot_machine_fails_its_job(write: Write, policy: Policy, tried: Tried) -> None:
    spot = POLICY.replace("on_demand: 0.10", "spot: 0.10").replace(
        "provider: PROVIDER", "provider: PROVIDER, purchase: [spot]"
    )
    text = spot.replace(
        "small: {kind: sim, settings: {", "small: {kind: sim, settings: {faults: {preempted: 0.9}, "
    )
    events = write([line for job in range(10, 210, 10) for line in story(job, at=job, lasts=3600)])
    found = tried(events, policy("small", text=text))
    assert found["runners"]["interrupted"] > 5
    assert found["jobs"]["completed"] == 20  # it ran, and ended as a failure
    assert found["runners"]["leaked_instances"] == 0


# ---- event files -----------------------------------------------------------------------------------------------


def test_broken_lines_are_warnings_with_their_numbers(write: Write, policy: Policy, tried: Tried) -> None:
    first, second = story(10, at=0), story(20, at=5)
    lines = [
        b"{no json",
        second[2],
        *first,
        first[0],
        b"",
        b'{"at": "yesterday", "event": "workflow_job", "payload": {}}',
        {**delivery(30, "queued", 9), "payload": {"action": "queued"}},
        {**delivery(40, "queued", 9), "event": "push", "more": {"unknown": 1}},
        second[1],
        second[0],
    ]
    path = write(lines)
    found = tried(path, policy("small"))
    assert found["jobs"]["completed"] == 2
    numbers = {line.split(":")[1] for line in found["recording"]["warnings"]}
    assert numbers == {"1", "6", "8", "9"}
    assert f"warning: {path}:1: is no recorded delivery" in found["stderr"]


def test_a_line_over_the_limit_is_left_out(write: Write, policy: Policy, tried: Tried) -> None:
    lines = [*story(10, at=0), b'{"at": "' + b"x" * 100_000_000 + b'"}', *story(20, at=5)]
    found = tried(write(lines), policy("small"))
    assert found["jobs"]["completed"] == 2
    assert [line.split(":", 2)[1:] for line in found["recording"]["warnings"]] == [
        ["4", " is over 25 MB; left out"]
    ]


def test_a_gzip_is_used_up_to_its_break(write: Write, policy: Policy, tried: Tried, tmp_path: Path) -> None:
    plain = write([line for job in range(10, 2000, 10) for line in story(job, at=job)])
    packed = gzip.compress(plain.read_bytes())
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    found = tried(path, policy("small"))
    assert 20 < found["jobs"]["total"] < 180
    assert any("the gzip breaks off" in line for line in found["recording"]["warnings"])


def test_files_that_cannot_be_used(
    write: Write, policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "missing.jsonl", [policy("small")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert run(write([b"{}"]), [policy("small")]) == 1
    said = capsys.readouterr().err
    assert "holds no queued job" in said
    assert ":1: is no recorded delivery" in said
    impossible = {**story(10, at=0)[0], "at": "9999-12-31T23:59:59-23:59"}
    assert run(write([impossible]), [policy("small")]) == 1
    assert "is not of the years 2000 to 2999" in capsys.readouterr().err
    assert run(write(story(10, at=0)), [policy("small", text="version: 2")]) == 1
    assert "small.yaml:1: version" in capsys.readouterr().err
    with pytest.raises(Unusable):
        run(write(story(10, at=0)), [])


def test_the_report_is_one_page_and_escapes_names(
    write: Write, policy: Policy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = write([line for job in (10, 20) for line in story(job, at=job)])
    report = tmp_path / "out.html"
    assert run(events, [policy("small", name="<b>"), policy("big")], report=report) == 0
    page = report.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page
    assert "<b>.yaml" not in page
    assert "http" not in page
    for words in (
        "How long jobs waited",
        "Where the difference comes from",
        "Cost by provider",
        "What is left of the funds",
        "Live machines by runner type",
        "Assumed",
        "Not modelled",
    ):
        assert words in page
    assert "Where the dollars come from" in capsys.readouterr().out


def test_example_policies_price_a_repository_that_has_none(
    write: Write, tried: Tried, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [
        *(line for job in (10, 20) for line in story(job, at=job, labels=["ubuntu-latest"])),
        *story(30, at=30, labels=["ubuntu-24.04-arm"]),
        *story(40, at=40, labels=["macos-14"]),
        *story(50, at=50, labels=["windows-2025"]),
    ]
    recorded = recording.read(write(lines))
    found = tried(write(lines), *examples.write(recorded, "octo/app", tmp_path))
    a, b = found["a"], found["b"]
    assert a["jobs"]["completed"] == b["jobs"]["completed"] == 3
    assert a["jobs"]["total"] == 3  # the others stay at GitHub
    assert Decimal(b["cost_usd"]["cash"]) < Decimal(a["cost_usd"]["cash"]) / 2
