"""The parts of ARCHITECTURE.md that are drawn from the code; `make docs` writes them there.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; a test draws it again and compares.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from scheduling.lifecycle import JOB_MOVES, RUNNER_IGNORED, RUNNER_MOVES, JobState, RunnerFact, RunnerState

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "ARCHITECTURE.md"
PART = re.compile(r"(?P<open><!-- generated: (?P<name>\w+) -->\n).*?(?P<close><!-- end -->)", re.DOTALL)


def house() -> str:
    """Every room's modules and packages with the first sentence of their docstring."""
    parts = []
    for room in ("scheduling", "providers", "autoscaler"):
        rows = [f"| `{name}` | {_first_sentence(path)} |" for name, path in _modules(ROOT / room)]
        title = f"**{room}/** {_first_sentence(ROOT / room)}"
        parts.append("\n".join([title, "", "| | |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def jobs() -> str:
    """States of a job. A delivery says which state it saw, so an edge needs no name."""
    return _mermaid((f"    {old} --> {new}" for (old, new) in JOB_MOVES), first=JobState.WAITING)


def runners() -> str:
    """States of a runner; an edge carries every fact that moves along it. Moves within one state are left out."""
    edges: dict[tuple[RunnerState, RunnerState], list[RunnerFact]] = defaultdict(list)
    for (old, fact), new in RUNNER_MOVES.items():
        if old is not new:
            edges[old, new].append(fact)
    lines = (f"    {old} --> {new}: {', '.join(facts)}" for (old, new), facts in edges.items())
    return _mermaid(lines, first=RunnerState.PLANNED, last=RunnerState.GONE)


def pairs() -> str:
    """Every (fact, state) pair: the next state, `·` for ignored, `illegal` for what only a bug can bring."""
    head = ["| fact | " + " | ".join(RunnerState) + " |", "|---|" + "---|" * len(RunnerState)]
    rows = [
        f"| {fact} | " + " | ".join(_outcome(state, fact) for state in RunnerState) + " |" for fact in RunnerFact
    ]
    return "\n".join(head + rows) + "\n"


def _modules(room: Path) -> Iterator[tuple[str, Path]]:
    """Every module below the room by its dotted name, a package before its modules."""
    for path in sorted(room.rglob("*.py"), key=lambda path: path.relative_to(room).with_suffix("").parts):
        inside = path.relative_to(room).with_suffix("").parts
        name = ".".join(part for part in inside if part != "__init__")
        if name:
            yield name, path


def _first_sentence(path: Path) -> str:
    source = path if path.is_file() else path / "__init__.py"
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s|\n\n", docstring)[0].replace("\n", " ")


def _outcome(state: RunnerState, fact: RunnerFact) -> str:
    if new := RUNNER_MOVES.get((state, fact)):
        return str(new)
    return "·" if fact in RUNNER_IGNORED[state] else "illegal"


def _mermaid(edges: Iterable[str], first: StrEnum, last: StrEnum | None = None) -> str:
    ends = [f"    {last} --> [*]"] if last else []
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *edges, *ends, "```"]) + "\n"


PARTS: dict[str, Callable[[], str]] = {"house": house, "jobs": jobs, "runners": runners, "pairs": pairs}


def rendered(document: str) -> str:
    """The document with every generated part drawn again. KeyError for a part that nobody draws."""
    return PART.sub(lambda part: part["open"] + PARTS[part["name"]]() + part["close"], document)


if __name__ == "__main__":
    DOCUMENT.write_text(rendered(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
