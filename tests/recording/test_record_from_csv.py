"""`record from-csv`: tables as people have them, and the event files that come of them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from autoscaler.backtest import recording
from autoscaler.cli.main import main
from autoscaler.events import csv_columns, from_csv

HEADER = "id,repository,labels,queued_at,started_at,completed_at,conclusion"
CLICKHOUSE = """\
"completed_at","conclusion","created_at","head_branch","id","labels","name","run_attempt","run_id","runner_name","started_at","status","url","workflow_event","workflow_name"
"2026-03-02 12:41:00.000000000","success","2026-03-02 12:00:00.000000000","main",901,"['linux.2xlarge']","build, ""fast"" / test (1)",1,90,"i-0abc","2026-03-02 12:01:30.000000000","completed","https://api.github.com/repos/pytorch/pytorch/actions/jobs/901","push","pull"
"1970-01-01 00:00:00.000000000","","2026-03-02 12:00:05.000000000","main",902,"['linux.2xlarge','self-hosted']","lint",1,90,"","1970-01-01 00:00:00.000000000","queued","https://api.github.com/repos/pytorch/pytorch/actions/jobs/902","push","pull"
"2026-03-02 12:00:10.000000000","skipped","2026-03-02 12:00:06.000000000","main",903,"[]","docs",1,90,"","2026-03-02 12:00:10.000000000","completed","https://api.github.com/repos/pytorch/pytorch/actions/jobs/903","push","pull"
"""  # noqa: E501


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def table(tmp_path: Path, *rows: str, name: str = "jobs.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def jobs(path: Path) -> list[dict[str, Any]]:
    return [line["payload"]["workflow_job"] | {"at": line["at"]} for line in lines(path)]


def test_rows_become_the_deliveries_that_a_backtest_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(
        tmp_path,
        HEADER,
        '2,octo/app,"self-hosted, linux",2026-03-02T12:05:00Z,2026-03-02T12:06:00Z,2026-03-02T12:16:00Z,failure',
        '1,octo/app,"self-hosted, linux",2026-03-02T13:00:00+01:00,2026-03-02 12:01:00Z,2026-03-02 12:11:00Z,',
        "3,octo/app,linux,2026-03-02T12:07:00Z,,2026-03-02T12:08:00Z,cancelled",
        "4,octo/app,linux,2026-03-02T12:07:00Z,,,",
    )
    assert main(["record", "from-csv", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "jobs": 4, "skipped": 0, "left_out": 0, "deliveries": 9, "warnings": [],
        "out": str(tmp_path / "jobs.jsonl.gz"),
    }  # fmt: skip
    assert "times without an offset were taken as UTC" in err
    found = lines(tmp_path / "jobs.jsonl.gz")
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)
    assert found[0]["payload"]["workflow_job"]["id"] == 1  # 13:00 at +01:00
    assert found[0]["payload"]["workflow_job"]["labels"] == ["self-hosted", "linux"]
    assert "run" not in found[0]
    read = recording.read(tmp_path / "jobs.jsonl.gz")
    assert (len(read), read.warnings) == (4, [])
    assert [read.started[row] - read.queued[row] for row in range(4) if read.started[row]] == [60_000, 60_000]


def test_an_export_of_pytorchs_table(tmp_path: Path) -> None:
    path = tmp_path / "export.csv.gz"
    path.write_bytes(gzip.compress(CLICKHOUSE.encode()))
    assert main(["record", "from-csv", str(path)]) == 0
    found = jobs(tmp_path / "export.jsonl.gz")
    assert [job["status"] for job in found] == ["queued", "queued", "in_progress", "completed"]
    assert found[0]["name"] == 'build, "fast" / test (1)'
    assert found[1]["labels"] == ["linux.2xlarge", "self-hosted"]
    assert found[3] | {"runner_name": "i-0abc", "at": "2026-03-02T12:41:00.000Z", "run_id": 90} == found[3]
    line = lines(tmp_path / "export.jsonl.gz")[0]
    assert line["payload"]["repository"] == {"full_name": "pytorch/pytorch"}
    assert line["run"] == {"event": "push", "fork": False, "ref": "refs/heads/main"}


def test_durations_semicolons_a_byte_order_mark_and_a_time_zone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "\ufeffJob ID;Runner Label;Created At;Queue Time_min;Duration_ms;is_fork\n"
        "7;linux;2026-07-01 09:00;2;90000;yes\n",
        encoding="utf-8",
    )
    out = tmp_path / "out.jsonl.gz"
    arguments = ["--repository", "octo/app", "--time-zone", "Europe/Berlin", "--out", str(out)]
    assert main(["record", "from-csv", str(path), *arguments]) == 0
    assert [job["at"][11:19] for job in jobs(out)] == ["07:00:00", "07:02:00", "07:03:30"]
    assert lines(out)[0]["run"] == {"event": "push", "fork": True, "ref": ""}


def test_rows_that_cannot_be_used_are_warnings_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(
        tmp_path,
        HEADER + ",name",
        "1,octo/app,linux,2026-03-02T12:00:00Z,,,,one",
        "2,octo/app,linux,soon,,,,two",
        "3,octo/app,,2026-03-02T12:00:00Z,,,,three",
        "4,octo,linux,2026-03-02T12:00:00Z,,,,four",
        '5,octo/app,linux,2026-03-02T12:00:00Z,,,,"five\nin two lines"',
        "six,octo/app,linux,2026-03-02T12:00:00Z,,,,",
        "7,octo/app,linux,2026-03-02T12:00:00Z,2026-03-02T11:00:00Z,,,",
        "8,octo/app,linux",
        "1,octo/app,linux,2026-03-02T12:00:00Z,,,,again",
        "9,octo/app,linux,2026-03-02T12:00:00Z,,2026-03-02T12:10:00Z,success,",
        "10,octo/app,linux,,,,,",
        "11,octo/app,linux,12345,,,,",
        f"{'9' * 5000},octo/app,linux,2026-03-02T12:00:00Z,,,,",
    )
    assert main(["record", "from-csv", str(path)]) == 0
    err = capsys.readouterr().err.splitlines()
    assert [line.removeprefix(f"warning: {path}:") for line in err if line.startswith("warning")] == [
        "3: column queued_at: expected a time such as `2026-03-02T12:00:00Z`, got `soon`; row left out",
        "4: column labels: expected labels such as `self-hosted, linux`, got nothing; row left out",
        "5: column repository: expected OWNER/REPO, got `octo`; row left out",
        "8: column id: expected a whole number, got `six`; row left out",
        "9: it started at 2026-03-02 11:00:00 UTC, before it was queued (12:00:00); row left out",
        "10: has 3 cells, the header has 8; row left out",
        "11: job 1, attempt 1, was in an earlier row; row left out",
        "12: it completed and never started, and its conclusion is neither cancelled nor skipped; row left out",
        "13: column queued_at: expected a time, got nothing; row left out",
        "14: column queued_at: expected a time such as `2026-03-02T12:00:00Z`, got `12345`; row left out",
        f"15: column id: expected a whole number, got `{'9' * 57}...`; row left out",
    ]
    assert [job["name"] for job in jobs(tmp_path / "jobs.jsonl.gz")] == ["one", "five\nin two lines"]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id,labels,started_at", "no column says when a job was queued: expected one named queued_at, created_at"),
        ("id,queued_at,job_class", "no column says which labels a job has: expected one named labels, label"),
        ("labels,queued_at", "no column says of which repository a job is: expected one named repository"),
        (
            "repo,labels,queued_at,duration",
            "column duration: expected its unit at the end, such as duration_seconds",
        ),
        ("", "expected a line with the names of the columns"),
    ],
)
def test_a_table_without_what_is_needed_says_what_is_there(
    header: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, header, "1,2,3")
    assert main(["record", "from-csv", str(path)]) == 1
    err = capsys.readouterr().err
    assert f"{path}:1: " in err
    assert says in err
    assert sorted(tmp_path.iterdir()) == [path]


def test_usage_and_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, HEADER)
    assert main(["record", "from-csv", str(tmp_path / "none.csv")]) == 1
    assert "none.csv: No such file" in capsys.readouterr().err
    assert main(["record", "from-csv", str(path)]) == 1
    assert "no row can be used: nothing was written" in capsys.readouterr().err
    assert main(["record", "from-csv", str(path), "--time-zone", "Moon/Sea"]) == 2
    assert main(["record", "from-csv", str(path), "--out", str(tmp_path)]) == 2
    assert main(["record", "from-csv", str(path), "--out", str(path)]) == 2  # the table would be lost
    assert "is one of the tables; name another file" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["record", "from-csv", str(path), "--repository", "octo"])


def test_a_cut_gzip_is_used_up_to_its_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{n},octo/app,linux,2026-03-02T12:{n % 60:02}:00Z,,," for n in range(1, 5000)]
    packed = gzip.compress("\n".join([HEADER, *rows]).encode())
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert main(["record", "from-csv", str(path)]) == 0
    assert "the gzip breaks off" in capsys.readouterr().err
    assert 100 < len(jobs(tmp_path / "jobs.jsonl.gz")) < 4000


def test_more_rows_than_are_sorted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_csv, "AT_ONCE", 7)
    given = [b"%03d" % (number * 37 % 100) for number in range(100)]
    assert list(from_csv.in_order(given)) == [line + b"\n" for line in sorted(given)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("self-hosted", ["self-hosted"]),
        ('["self-hosted", "linux"]', ["self-hosted", "linux"]),
        ("['self-hosted','linux']", ["self-hosted", "linux"]),
        ("{self-hosted,linux}", ["self-hosted", "linux"]),
        ("self-hosted linux", ["self-hosted", "linux"]),
        ("self-hosted|linux", ["self-hosted", "linux"]),
        ("[]", []),
        ("", []),
    ],
)
def test_how_labels_are_written(text: str, found: list[str]) -> None:
    assert csv_columns.labels(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-02T12:00:00Z", "2026-03-02 12:00:00 UTC", "2026-03-02 12:00:00.000000000", "1772452800",
        "1772452800.0", "1772452800000", "1772452800000000", "1772452800000000000", "2026-03-02T04:00:00-08:00",
    ],
)  # fmt: skip
def test_how_times_are_written(text: str) -> None:
    assert csv_columns.time(text, UTC).isoformat() == "2026-03-02T12:00:00+00:00"
