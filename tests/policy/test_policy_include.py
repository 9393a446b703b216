from __future__ import annotations

import os

import pytest

from tests.policy.policies import SMALL, Folder, changed

SPONSOR = """\
version: 1
providers:
  gift: {kind: sim}
funds:
  gift: {credit: 500 USD, from: 2026-11-30, pays: [gift]}
"""


def test_a_file_a_sponsor(folder: Folder) -> None:
    folder.write(SPONSOR, "sponsors/gift.yaml")
    loaded = folder.load(SMALL + "include: [sponsors/*.yaml]\n")
    assert set(loaded.policy.providers) == {"lab", "gift"}
    assert set(loaded.policy.funds) == {"gift"}
    assert loaded.warnings == ()


def test_an_error_names_the_file_it_is_in(folder: Folder) -> None:
    folder.write(SPONSOR.replace("500 USD", "500"), "sponsors/gift.yaml")
    report = folder.errors(SMALL + "include: [sponsors/*.yaml]\n")
    assert report.startswith("sponsors/gift.yaml:5: funds.gift.credit: expected an amount of money")


def test_an_include_that_matches_nothing_is_a_warning(folder: Folder) -> None:
    text = SMALL + "include: [sponsors/*.yaml, other.yaml]\n"
    assert folder.warnings(text).splitlines() == [
        "policy.yaml:8: include[0]: `sponsors/*.yaml` matches no file",
        "policy.yaml:8: include[1]: `other.yaml` matches no file",
    ]


def test_the_same_name_in_two_files_names_both(folder: Folder) -> None:
    folder.write("providers:\n  lab: {kind: sim}\n", "b.yaml")
    report = folder.errors(SMALL + "include: [b.yaml]\n")
    assert report == "b.yaml:2: providers.lab: given in two files, first in policy.yaml:3; remove one"


@pytest.mark.parametrize("section", ["rules: [{prefer: [lab]}]", "ignore_labels: [x]", "limits: {runners: 5}"])
def test_what_is_no_set_of_names_is_said_in_one_file(folder: Folder, section: str) -> None:
    folder.write(section + "\n", "b.yaml")
    report = folder.errors(SMALL + f"{section}\ninclude: [b.yaml]\n")
    assert report.startswith("b.yaml:1: ")
    assert "given in two files, first in policy.yaml:8; remove one" in report


def test_paths_count_from_the_file_that_names_them(folder: Folder) -> None:
    folder.write("include: [more/*.yaml]\n", "sponsors/all.yaml")
    folder.write(SPONSOR, "sponsors/more/gift.yaml")
    folder.write(SPONSOR.replace("gift", "wrong"), "more/wrong.yaml")
    loaded = folder.load(SMALL + "include: [sponsors/all.yaml]\n")
    assert set(loaded.policy.providers) == {"lab", "gift"}


def test_a_file_is_read_once_however_often_it_is_reached(folder: Folder) -> None:
    folder.write(SPONSOR + 'include: ["*.yaml", ./policy.yaml]\n', "gift.yaml")
    loaded = folder.load(SMALL + 'include: ["*.yaml", gift.yaml, "**/gift.yaml"]\n')
    assert set(loaded.policy.providers) == {"lab", "gift"}
    assert loaded.warnings == ()


def test_every_broken_file_is_named_and_nothing_else(folder: Folder) -> None:
    folder.write("a: [\n", "s/a.yaml")
    folder.write("- list\n", "s/b.yaml")
    folder.path.joinpath("s/c.yaml").mkdir()
    report = folder.errors(changed("providers:", "include: [s/*.yaml]\nproviders:").replace("lab", "l a b"))
    files = [line.split(":")[0] for line in report.splitlines()]
    assert files == ["s/a.yaml", "s/b.yaml", "s/c.yaml"]


def test_an_included_file_of_comments_says_nothing(folder: Folder) -> None:
    folder.write("# later\n", "later.yaml")
    assert folder.load(SMALL + "include: [later.yaml]\n").warnings == ()


def test_another_version_in_an_included_file(folder: Folder) -> None:
    folder.write("version: 2\n", "b.yaml")
    assert "b.yaml:1: version: " in folder.errors(SMALL + "include: [b.yaml]\n")


@pytest.mark.parametrize("pattern", ['""', "5", "[a]", '"a\\0b"'])
def test_patterns_that_are_none(folder: Folder, pattern: str) -> None:
    assert "policy.yaml:8: include[0]: " in folder.errors(SMALL + f"include: [{pattern}]\n")


def test_an_included_pipe_is_named_and_never_waited_for(folder: Folder) -> None:
    """A reload reads includes inside the daemon's loop: a pipe that nobody writes to would hold it for ever."""
    folder.write("", "sponsors/note.txt")
    os.mkfifo(folder.path / "sponsors/gift.yaml")
    report = folder.errors(SMALL + "include: [sponsors/*.yaml]\n")
    assert "policy.yaml:8: include[0]: `sponsors/*.yaml` matches `" in report
    assert "a pipe or a device" in report
