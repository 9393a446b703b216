"""`policy explain`: from the file alone, what would become of one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.cli.main import main
from tests.api.worlds import POLICY

AT = ("--at", "2026-11-30T12:00:00Z")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def explain(capsys: pytest.CaptureFixture[str], policy: Path, labels: str, *more: str) -> Any:
    repository = () if "--repository" in more else ("--repository", "octo/engine")
    assert main(["policy", "explain", str(policy), "--labels", labels, *repository, *AT, *more, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_offer_in_rank_order_with_its_terms(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, policy, "linux.small,Linux")
    small, any_ = found["types"]
    assert (small["runner_type"], small["chosen"]) == ("linux.small", True)
    assert (any_["runner_type"], any_["chosen"]) == ("linux.any", False)
    ranks = [row["rank"] for row in small["offers"] if row["rank"]]
    assert ranks == list(range(1, len(ranks) + 1))
    for row in small["offers"]:
        assert row["refusal"] or set(row["terms"]) >= {"machine", "waiting"}
    assert found["launch"]["offer"] == small["offers"][0]["offer"] == "gcp/us-central1a/e2-standard-2/on_demand"
    assert found["launch"]["fund"] == "gcp-gift"
    assert "$31,500.00 of gcp-gift is spent" in found["assumed"]


def test_refusals_are_told(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    night = explain(capsys, policy, "linux.night")
    (row,) = night["types"][0]["offers"]
    assert row["refusal"] == "outside Mon-Fri 22:00-06:00 Europe/Berlin"
    assert row["until"] == "2026-11-30T21:00:00.000Z"
    assert night["launch"] is None
    open_ = explain(capsys, policy, "linux.night", "--at", "2026-11-30T22:30:00Z")
    assert open_["launch"]["price_usd_per_hour"] == "0.000000"


def test_who_is_let_in(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "access does not name evil/repo"
        in explain(capsys, policy, "linux.gpu", "--repository", "evil/repo")["refused"]
    )
    assert "forks only" in explain(capsys, policy, "linux.fork")["refused"]
    assert explain(capsys, policy, "linux.fork", "--fork", "--event", "pull_request")["launch"]


def test_unroutable_and_not_ours(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(capsys, policy, "linux,linux.smal")
    assert found["ours"]
    assert found["refused"].startswith("unroutable: no runner type has all of linux, linux.smal")
    assert not explain(capsys, policy, "ubuntu-latest")["ours"]


def test_as_text(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "explain", str(policy), "--labels", "linux.large", "--repository", "octo/x", *AT]) == 0
    out = capsys.readouterr().out
    assert out.startswith("linux.large on aws/us-east-1")
    assert "interruption" not in out
    assert "Assumed: offers and list prices are those bundled" in out


def test_a_bad_file_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nprovidrs: {}\n")
    assert main(["policy", "explain", str(bad), "--labels", "a", "--repository", "o/r"]) == 1
    assert f"{bad}:2" in capsys.readouterr().err
