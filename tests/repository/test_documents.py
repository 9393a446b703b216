"""Documents are tests: what they name exists, and what they draw is drawn from the code."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from autoscaler.policy import file as policy_file
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
EXAMPLES = sorted(path.relative_to(ROOT) for path in (ROOT / "deploy").rglob("*") if path.is_file())
LONGEST_FILE = 400  # lines
LISTS = {"scheduling/messages.py"}  # one record an event: nothing to split


def text(document: Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def commands() -> set[str]:
    """`policy check`, `serve --observe`: every command and option that a document shows, without its arguments."""
    found = set()
    for document in DOCUMENTS:
        for line in re.findall(r"(?:`|^ *)autoscaler ([a-z][^`\n]*)", text(document), re.MULTILINE):
            words = re.match(r"(?:(?:policy|funds|provider|record) )?[a-z-]+", line)
            assert words, line
            found.add(" ".join([words[0], *sorted(re.findall(r"--[a-z-]+", line))]))
    return found


def test_generated_parts_are_drawn_from_the_code() -> None:
    document = text(Path("ARCHITECTURE.md"))
    assert set(re.findall(r"<!-- generated: (\w+) -->", document)) == set(generated.PARTS)
    assert generated.rendered(document) == document, "run `make docs`"


def test_readme_is_short_and_names_both_commands() -> None:
    readme = text(Path("README.md"))
    assert len(readme.splitlines()) < 150
    assert "make demo" in readme
    assert "make test" in readme


def test_policies_in_documents_are_valid(tmp_path: Path) -> None:
    policies = [
        textwrap.dedent(block)
        for document in DOCUMENTS
        for block in re.findall(r"```yaml\n(.*?)```", text(document), re.DOTALL)
        if block.lstrip().startswith("version:")
    ]
    assert policies
    for policy in policies:
        (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
        policy_file.load(tmp_path / "policy.yaml", now_ms=0)


def test_named_variables_exist() -> None:
    files = [*DOCUMENTS, Path("Dockerfile"), *EXAMPLES]
    named = {name for file in files for name in re.findall(r"AUTOSCALER_[A-Z_]+[A-Z]", text(file))}
    assert named
    assert named <= set(re.findall(r"AUTOSCALER_[A-Z_]+[A-Z]", text(Path("autoscaler/settings.py"))))


@pytest.mark.parametrize("command", sorted(commands()), ids=str)
def test_named_commands_and_options_exist(command: str) -> None:
    words = [word for word in command.split() if not word.startswith("--")]
    done = subprocess.run(
        [sys.executable, "-m", "autoscaler", *words, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for option in set(command.split()) - set(words):
        assert option in done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text(document)):
        assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text(Path("Makefile")), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)|^\$? ?make ([a-z-]+)", text(document), re.MULTILINE))
    assert {one or other for one, other in named} <= targets


def test_files_stay_small_enough_to_read() -> None:
    lengths = {str(source): len(text(source).splitlines()) for source in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE and name not in LISTS} == {}


def test_shell_scripts_parse() -> None:
    scripts = [ROOT / ".ci" / "run", *ROOT.glob("providers/bootstrap/*.sh")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
