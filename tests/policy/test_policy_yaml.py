"""What YAML does to people, and what the operator is told then."""

from __future__ import annotations

import time

import pytest

from autoscaler.policy.file import PolicyError, load
from tests.policy.policies import NOW_MS, SMALL, Folder, changed


def test_duplicate_keys_name_both_lines(folder: Folder) -> None:
    text = SMALL + "providers:\n  other: {kind: sim}\n"
    assert folder.errors(text) == "policy.yaml:8: providers: given twice, first in line 2; remove one"


def test_duplicate_keys_deep_inside(folder: Folder) -> None:
    text = changed("kind: sim,", 'kind: sim, "kind": aws,')
    assert folder.errors(text) == "policy.yaml:3: providers.lab.kind: given twice, first in line 3; remove one"


def test_anchors_and_merge_keys(folder: Folder) -> None:
    text = SMALL + (
        "  large:\n    <<: [{max_runners: 5}, &more {max_runners: 9, max_price: 2 USD/h}]\n"
        "    labels: [large]\n    max_price: 1 USD/h\n"
        "  huge: {<<: *more, labels: [huge]}\n"
    )
    types = folder.load(text).policy.runner_types
    assert (types["large"].max_runners, types["large"].max_price) == (5, 1_000_000)
    assert (types["huge"].max_runners, types["huge"].max_price) == (9, 2_000_000)


def test_an_error_in_merged_values_points_at_the_anchor(folder: Folder) -> None:
    text = "x-base: &base\n  max_runner: 5\n" + SMALL.replace("  small:\n", "  small:\n    <<: *base\n")
    report = "policy.yaml:2: runner_types.small.max_runner: unknown key; did you mean `max_runners`?"
    assert folder.errors(text) == report


def test_x_keys_are_ignored_anywhere(folder: Folder) -> None:
    text = changed("price: 0 USD/h}", "price: 0 USD/h, x-owner: [lab]}")
    text += "x-notes: {anything: [1, 2]}\n"
    assert folder.load(text).warnings == ()
    assert folder.load(text).policy.hash == folder.load(SMALL).policy.hash


@pytest.mark.parametrize("word", ["on", "yes", "no", "off", "y", "null-ish", "010", "1_000", "12:30", "0x10"])
def test_words_that_yaml_once_turned_into_something_else_are_text(folder: Folder, word: str) -> None:
    text = changed("[self-hosted, small]", f"[self-hosted, {word}]")
    assert folder.load(text).policy.runner_types["small"].labels == ("self-hosted", word)


def test_keys_are_text(folder: Folder) -> None:
    assert "on" in folder.load(changed("  small:", "  on:")).policy.runner_types
    assert "24" in folder.load(changed("  small:", "  24:")).policy.runner_types


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "policy.yaml:2: not valid YAML: "),
        ("version: 1\n\tlimits: 3\n", "tabs cannot indent YAML, use spaces"),
        ("version: 1\nlimits: runners: 3\n", "policy.yaml:2: not valid YAML: mapping values are not allowed"),
        ("version: 1\n  limits: 3\n", "look for a wrong indentation"),
        ("version: 1\nignore_labels: [*ubuntu]\n", "quote a value that begins with `*`"),
        ("version: 1\nignore_labels: [*/x]\n", "quote a value that begins with `*` or `&`"),
        ("version: 1\nignore_labels: [@ubuntu]\n", "quote a value that begins with `@`"),
        ("version: 1\n---\nversion: 1\n", "policy.yaml:2: not valid YAML: a file holds one document"),
        ("version: !!python/object:os.system {}\n", "tags such as `tag:yaml.org,2002:python/object:os.system`"),
        ('version: "\\UFFFFFFFF"\n', "policy.yaml:1: not valid YAML"),
        ("- version: 1\n", "policy.yaml:1: expected a mapping that begins with `version: 1`, got a list"),
        ("just words\n", "policy.yaml:1: expected a mapping that begins with `version: 1`, got text"),
        ("a: b\x07\n", "policy.yaml:1: contains a character that YAML does not allow"),
        ('version: "\\0"\n', "policy.yaml:1: version: contains a character that is not text"),
        ("? [a]\n: b\n", "policy.yaml:1: expected a plain text key"),
        ("&a a: *a\nb: &b [*b]\n", "policy.yaml:2: b[0]: an alias stands inside its own anchor"),
        ("a: &a {<<: *a}\n", "policy.yaml:1: a.<<: expected an alias of a mapping"),
        ("a: {<<: [1]}\n", "a.<<: expected an alias of a mapping, or a list of them"),
        ("[" * 100, "policy.yaml:1: not valid YAML: nested more than 40 deep"),
        ("a: " + "{a: " * 100, "nested more than 40 deep"),
    ],
)
def test_what_is_wrong_with_the_yaml(folder: Folder, text: str, message: str) -> None:
    assert message in folder.errors(text)


def test_an_empty_file_says_what_is_missing(folder: Folder) -> None:
    assert folder.errors("# nothing yet\n").splitlines() == [
        "policy.yaml:1: version: is required",
        "policy.yaml:1: providers: is required",
        "policy.yaml:1: runner_types: is required",
    ]


def test_files_that_are_no_text(folder: Folder) -> None:
    file = folder.path / "policy.yaml"
    file.write_bytes(b"version: 1\n# \xff\n")
    assert folder.errors() == "policy.yaml:2: not UTF-8 text: save the file as UTF-8"
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert folder.load().warnings == ()
    file.write_bytes(b"#" * 2_000_000)
    assert "policy.yaml:1: larger than 1 MiB" in folder.errors()


def test_files_that_are_not_there(folder: Folder) -> None:
    assert folder.errors() == "policy.yaml:1: cannot be read: no such file or directory"
    with pytest.raises(PolicyError, match="cannot be read: is a directory"):
        load(folder.path, NOW_MS)


@pytest.mark.parametrize(
    "bomb",
    [
        "".join(f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10 if n else ['1'] * 10)}]\n" for n in range(9)),
        "".join(
            f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}\n" if n else "m0: &m0 {a: 1}\n"
            for n in range(9)
        ),
        "".join(f"d{n}: &d{n} [*d{n - 1}]\n" if n else "d0: &d0 [1]\n" for n in range(3000)),
        "".join(f"c{n}: &c{n} {{<<: *c{n - 1}}}\n" if n else "c0: &c0 {a: 1}\n" for n in range(3000)),
    ],
    ids=["lists", "merges", "chain of lists", "chain of merges"],
)
def test_alias_bombs_are_refused_at_once(folder: Folder, bomb: str) -> None:
    started = time.monotonic()
    assert "policy.yaml:1: aliases" in folder.errors(bomb)
    assert time.monotonic() - started < 10
