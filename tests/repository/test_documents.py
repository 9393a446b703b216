"""Documents are tests: what they name exists, and what they draw is drawn from the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.repository import generated

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "deploy/**/*.md", "tests/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
SOURCES = sorted(
    path.relative_to(ROOT)
    for room in ("autoscaler", "providers", "scheduling", "tests", "benchmarks")
    for path in (ROOT / room).rglob("*.py")
)
LONGEST_FILE = 400  # lines
LISTS = {
    "scheduling/evolve.py",
    "scheduling/messages.py",
}  # one small handler, one record an event; nothing to split


def text(document: Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def test_generated_parts_are_drawn_from_the_code() -> None:
    document = text(Path("ARCHITECTURE.md"))
    assert set(re.findall(r"<!-- generated: (\w+) -->", document)) == set(generated.PARTS)
    assert generated.rendered(document) == document, "run `make docs`"


def test_readme_is_short_and_names_both_commands() -> None:
    readme = text(Path("README.md"))
    assert len(readme.splitlines()) < 150
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text(document)):
        assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text(Path("Makefile")), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)|^\$? ?make ([a-z]+)", text(document), re.MULTILINE))
    assert {one or other for one, other in named} <= targets


def test_files_stay_small_enough_to_read() -> None:
    lengths = {str(source): len(text(source).splitlines()) for source in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE and name not in LISTS} == {}


def test_shell_scripts_parse() -> None:
    scripts = [ROOT / ".ci" / "run", *ROOT.glob("providers/bootstrap/*.sh")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
