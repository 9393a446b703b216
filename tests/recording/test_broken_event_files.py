"""Event files that are not as they should be: all that is good in them is used, and all readers agree on it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.backtest import recording
from autoscaler.cli.main import main
from autoscaler.events.file import EventFile
from tests.backtest.conftest import story


def good(job: int, at: float = 0) -> list[bytes]:
    return [json.dumps(line).encode() for line in story(job, at=at)]


def _text(*lines: bytes) -> bytes:
    return b"\n".join(lines) + b"\n"


ONE, TWO = good(10), good(20, 500)
EXTRA = [json.dumps(json.loads(line) | {"later": {"a": [1]}}).encode() for line in ONE]
CASES: dict[str, tuple[bytes, int, dict[int, str]]] = {
    "whole": (_text(*ONE, *TWO), 2, {}),
    "no newline at the end": (_text(*ONE, *TWO).rstrip(), 2, {}),
    "carriage returns and empty lines": (_text(*ONE, b"", *TWO).replace(b"\n", b"\r\n"), 2, {}),
    "the newest first": (_text(*reversed(ONE + TWO)), 2, {}),
    "unknown fields": (_text(*EXTRA), 1, {}),
    "each delivery twice": (_text(*ONE, *ONE), 1, dict.fromkeys((4, 5, 6), "repeats delivery 10-")),
    "cut in the last line": (_text(*ONE, *TWO)[:-40], 2, {6: "is no recorded delivery"}),
    "no JSON, no object, no time, not UTF-8, NUL": (
        _text(b"{", b"[1]", b'{"at": "noon", "event": "x", "payload": {}}', b"\xff\xfe\xff", b"\0" * 9, *ONE),
        1,
        dict.fromkeys((1, 2, 3, 4, 5), "is no recorded delivery"),
    ),
    "nested too deep": (_text(b'{"at":' + b"[" * 100_000, *ONE), 1, {1: "is no recorded delivery"}),
    "a year that no clock knows": (
        _text(ONE[0].replace(b"2026-", b"99999-", 1), *ONE), 1, {1: "is no recorded delivery"}
    ),
    "a line of 100 MB": (
        _text(*ONE, b'{"at":"' + b"x" * 100_000_000 + b'"}', *TWO), 2, {4: "is over 25 MB; left out"}
    ),
    "several gzips in one": (gzip.compress(_text(*ONE)) + gzip.compress(_text(*TWO)), 2, {}),
    "a line of 100 MB in a gzip": (
        gzip.compress(_text(*ONE, b"x" * 100_000_000, *TWO), 1), 2, {4: "is over 25 MB; left out"}
    ),
    "a second gzip that is cut": (
        gzip.compress(_text(*ONE)) + gzip.compress(_text(*TWO))[:-4], 2, {7: "the gzip breaks off in this line"}
    ),
    "a gzip and garbage": (gzip.compress(_text(*ONE)) + b"garbage", 1, {4: "the gzip breaks off in this line"}),
    "nothing": (b"", 0, {}),
    "no text at all": (bytes(range(256)) * 40, 0, dict.fromkeys(range(1, 42), "is no recorded delivery")),
}  # fmt: skip
Read = Callable[[Path], tuple[int, list[str]]]


def for_backtest(path: Path) -> tuple[int, list[str]]:
    found = recording.read(path)
    return len(found), found.warnings


def for_replay(path: Path) -> tuple[int, list[str]]:
    with EventFile(path) as events:
        times = [each.at_ms for each in events]
        assert times == sorted(times)
        return len({json.loads(each.payload)["workflow_job"]["id"] for each in events}), events.warnings


@pytest.mark.parametrize("read", [for_backtest, for_replay])
@pytest.mark.parametrize("name", list(CASES))
def test_what_is_good_is_used_and_the_rest_named_by_its_line(name: str, read: Read, tmp_path: Path) -> None:
    content, jobs, expected = CASES[name]
    path = tmp_path / "events"
    path.write_bytes(content)
    count, warnings = read(path)
    found = {}
    for warning in warnings:
        number, _, words = warning.removeprefix(f"{path}:").partition(": ")
        found[int(number)] = words
    assert count == jobs
    assert found.keys() == expected.keys()
    for number, words in expected.items():
        assert found[number].startswith(words)


def test_a_file_of_something_else_says_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text("id,labels,queued_at\n1,linux,2026-03-02T12:00:00Z\n")
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    arguments = [str(tmp_path / "jobs.csv"), "--policy", str(tmp_path / "policy.yaml")]
    assert main(["backtest", *arguments]) == 1
    err = capsys.readouterr().err
    assert f"warning: {tmp_path}/jobs.csv:1: is no recorded delivery" in err
    assert "jobs.csv holds no queued job; expected deliveries as `serve --record` writes them" in err
    assert "autoscaler record from-csv" in err
