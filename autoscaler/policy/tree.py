"""Values of a policy with the place where each was written, and what is wrong at such a place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autoscaler.units import show

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to point at. `line` counts from 1."""

    file: str
    line: int


def dotted(path: Path) -> str:
    """`runner_types.linux.2xlarge.offers[0].provider`; empty for the document itself."""
    text = ""
    for step in path:
        shown = show(step)[1:-1]
        text += f"[{step}]" if isinstance(step, int) else f".{shown}" if text else shown
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong (or, as a warning, remarkable) at one place of the policy."""

    mark: Mark
    path: Path
    text: str

    def __str__(self) -> str:
        place = f"{self.mark.file}:{self.mark.line}"
        return f"{place}: {dotted(self.path)}: {self.text}" if self.path else f"{place}: {self.text}"


class PolicyError(Exception):
    """The policy cannot be used. The text is the whole report, one line a problem, in file order."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


@dataclass(slots=True)
class Tree:
    """Plain values (dict, list, str, int, float, bool, None), where each stands, and what is to be said of them.

    `broken`: a file could not be read at all, so the values are incomplete.
    """

    file: str
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    broken: bool = False

    def mark(self, path: Path) -> Mark:
        """Where that path stands, or the nearest thing around it that exists."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(self.file, 1))

    def blame(self, path: Path, text: str) -> None:
        self.problems.append(Problem(self.mark(path), path, text))

    def warn(self, path: Path, text: str) -> None:
        self.warnings.append(Problem(self.mark(path), path, text))

    def walk(self) -> Iterator[tuple[Path, Any]]:
        """Every value with its path, in the order of the file."""
        yield from _walk((), self.data)

    def give_up(self, line: int, text: str) -> Tree:
        self.broken = True
        self.problems.append(Problem(Mark(self.file, line), (), text))
        return self


def _walk(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    yield path, value
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in steps:
        yield from _walk((*path, step), part)
