"""Whatever a file holds, the loader answers with a policy or with a report."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.policy.file import PolicyError, load
from tests.policy.policies import FULL, NOW_MS, SMALL

SETTINGS = settings(
    max_examples=int(os.environ.get("FUZZ", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
TOKENS = [
    *(
        "a",
        "aws",
        "sim",
        "linux",
        "1",
        "-1",
        "1.5",
        "true",
        "yes",
        "~",
        "''",
        '"x"',
        "*a",
        "&a ",
        "<<: ",
        "!!str ",
    ),
    *("? ", "{", "}", "[", "]", ", ", ": ", "- ", "\n", "\n  ", "\n    ", "#", "|", ">", "%", "@", "\t", "---\n"),
    *("\\", "\x85", "version: 1\n", "providers:", "runner_types:", "funds:", "kind: ", "labels: ", "1 USD", "8m"),
    *("2026-01-01", "x-", "images:", "rules:", "offers:", "settings:", "Mon 00:00-01:00 UTC", "0 USD/h", "\ud800"),
    *("\0", "é", "\u0663"),
]
MORE = ["9" * 400, "[[]]", "{{}}", "{a: 1}", "[1, 2]", "[*", "0001-01-01", "2999-12-31", "1e309", ".inf", "null"]
VALUES = TOKENS + MORE


def answered(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load(file, NOW_MS)
        return
    except PolicyError as error:
        problems, report = error.problems, str(error)
    assert report
    for problem in problems:
        assert problem.mark.line >= 1
        assert str(problem).isprintable()


@SETTINGS
@given(st.text())
def test_any_text(tmp_path: Path, text: str) -> None:
    answered(tmp_path, text)


@SETTINGS
@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_text_that_looks_like_yaml(tmp_path: Path, text: str) -> None:
    answered(tmp_path, text)


@SETTINGS
@given(st.sampled_from([SMALL, FULL]), st.integers(0, 2**32))
def test_good_policies_with_a_few_words_changed(tmp_path: Path, text: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text))
        end = at + chance.choice([0, 1, 1, 2, 5, 20])
        text = text[:at] + chance.choice(VALUES) + text[end:]
    answered(tmp_path, text)


@SETTINGS
@given(st.sampled_from([SMALL, FULL]), st.integers(0, 2**32))
def test_good_policies_with_a_value_replaced(tmp_path: Path, text: str, seed: int) -> None:
    """Stays valid YAML, so that it reaches the models, the kinds and the warnings."""
    chance = random.Random(seed)
    words = text.split(" ")
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(words))
        word = words[at]
        end = word[len(word.rstrip(",}]\n")) :]
        words[at] = (
            chance.choice(["a", "1", "-1", "[]", "{}", "true", "0", "spot", "aws", "2999-12-31", "5 USD"]) + end
        )
    answered(tmp_path, " ".join(words))


@pytest.mark.parametrize("size", [1, 17, 900])
def test_a_file_cut_short(tmp_path: Path, size: int) -> None:
    answered(tmp_path, FULL[:size])
