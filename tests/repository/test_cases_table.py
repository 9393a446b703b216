"""The table of cases in tests/README.md says where each one is tested, and it is true."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_case_is_tested_where_the_table_says() -> None:
    rows = re.findall(r"^\| (K\d+) \|.*\| ([a-z, ]+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE)
    table = {case: set(where.split(", ")) for case, where in rows}
    found: dict[str, set[str]] = {case: set() for case in table}
    for path in TESTS.glob("*/test_*.py"):
        for name in re.findall(r"def (test_\w+)", path.read_text()):
            for number in re.findall(r"_k(\d+)(?=_)", name):
                found[f"K{number}"].add(path.parent.name)
    assert list(table) == [f"K{number}" for number in range(1, 30)]
    assert found == table
