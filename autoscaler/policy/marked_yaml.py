"""One YAML file as plain values plus the line of each: the bottom of `policy.file`.

Read in the YAML 1.2 sense: only `true` and `false` are booleans (`yes`, `no`, `on` are text), dates and `010` are
text, keys are text. Duplicate keys, tags and aliases that blow up are problems. Keys beginning with `x-` vanish,
but anchors inside them live. No file content can make this module raise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from autoscaler.policy.tree import Mark, Path, Problem, Tree
from autoscaler.units import show

MAX_BYTES = 1_048_576
MAX_DEPTH = 40
MAX_VALUES = 200_000

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,17}\.[0-9]{0,17}|\.[0-9]{1,17}|[0-9]{1,17}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}

_HINTS = (
    ("'\\t'", "tabs cannot indent YAML, use spaces"),
    ("mapping values are not allowed", "look for a wrong indentation, or quote a value that contains `: `"),
    ("could not find expected ':'", "look for a key without its `:`"),
    ("but found '<block mapping start>'", "look for a wrong indentation"),
    ("but found '<scalar>'", "look for a missing comma or quote"),
    ("expected <block end>", "look for a wrong indentation"),
    ("expected ',' or", "look for a missing comma or bracket"),
    ("alphabetic or numeric character", "quote a value that begins with `*` or `&`"),
    ("undefined alias", "quote a value that begins with `*`, or define the anchor in this file"),
    ("cannot start any token", "quote a value that begins with `@`, `%` or a backtick"),
)


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's pure front end without any resolver: every scalar stays text. Depth and tags are checked early."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise yaml.MarkedYAMLError(
                problem=f"tags such as {show(tag)} are not used", problem_mark=event.start_mark
            )
        if self.depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {MAX_DEPTH} deep", problem_mark=event.start_mark)
        self.depth += 1
        node: Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_file(name: str) -> Tree:
    """The file of that name as a `Tree`; what is wrong is in `problems`. Paths are shown as given."""
    tree = Tree(name)
    try:
        with open(name, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return tree.give_up(1, f"cannot be read: {reason[:1].lower()}{reason[1:]}")
    if len(raw) > MAX_BYTES:
        return tree.give_up(1, "larger than 1 MiB: this is no policy, or split it with `include`")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return tree.give_up(raw[: error.start].count(b"\n") + 1, "not UTF-8 text: save the file as UTF-8")
    return read_text(name, text, tree)


def read_text(name: str, text: str, tree: Tree | None = None) -> Tree:
    """The same for text that is in memory already."""
    tree = tree or Tree(name)
    try:
        node = _Composer(text).get_single_node()
    except ReaderError as error:
        return tree.give_up(
            text[: error.position].count("\n") + 1, "contains a character that YAML does not allow"
        )
    except yaml.MarkedYAMLError as error:
        return tree.give_up(*_syntax(error))
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF"
        return tree.give_up(1, "not valid YAML: contains a number or an escape that is too large")
    if node is None:  # empty, or comments only
        return tree
    if not isinstance(node, MappingNode):
        found = "a list" if isinstance(node, SequenceNode) else "text"  # not which: it may be a key file
        return tree.give_up(_line(node), f"expected a mapping that begins with `version: 1`, got {found}")
    _Reading(tree).run(node)
    return tree


def _syntax(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    problem = (error.problem or error.context or "cannot be read").replace("\n", " ")
    if "single document" in str(error.context):
        problem = "a file holds one document: remove the `---` before this line"
    opened = error.context_mark.line + 1 if error.context_mark else 0
    if mark and opened and opened != mark.line + 1:
        problem += f" ({error.context}, line {opened})"
    hint = next((hint for part, hint in _HINTS if part in problem), "")
    return (mark.line + 1 if mark else 1), f"not valid YAML: {problem}" + (f"; {hint}" if hint else "")


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _scalar(node: ScalarNode) -> object:
    """YAML 1.2 core schema, without octal, hexadecimal, infinity and NaN (they stay text)."""
    text: str = node.value
    if node.style in ("'", '"', "|", ">"):
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.capitalize(), text.upper()):
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


class _TooMuch(Exception):
    pass


class _Reading:
    """Turns nodes into values: aliases, merge keys, duplicate keys, `x-` keys."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.left = MAX_VALUES
        self.open: list[Node] = []

    def run(self, root: MappingNode) -> None:
        try:
            with self._inside(root):
                self.tree.data = self._mapping(root, ())
        except _TooMuch as error:
            self.tree.give_up(_line(root), str(error))

    def _value(self, node: Node, path: Path) -> Any:
        if isinstance(node, ScalarNode):
            self.left -= 1
            value = _scalar(node)
            if isinstance(value, str) and _unusable(value):
                self._blame(node, path, "contains a character that is not text")
            return value
        if self._is_open(node):
            self._blame(node, path, "an alias stands inside its own anchor")
            return None
        with self._inside(node):
            return self._mapping(node, path) if isinstance(node, MappingNode) else self._list(node, path)

    def _list(self, node: Node, path: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._set_mark(item, (*path, index))
            items.append(self._value(item, (*path, index)))
        return items

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, (key_node, value_node) in self._entries(node, path).items():
            if not key.startswith("x-"):
                self._set_mark(key_node, (*path, key))
                result[key] = self._value(value_node, (*path, key))
        return result

    def _entries(self, node: MappingNode, path: Path) -> dict[str, tuple[Node, Node]]:
        """Own keys first, then what `<<` brings for keys that are not there yet."""
        own: dict[str, tuple[Node, Node]] = {}
        merged: list[Node] = []
        for key_node, value_node in node.value:
            self.left -= 1
            if not isinstance(key_node, ScalarNode) or _unusable(key_node.value):
                self._blame(key_node, path, "expected a plain text key, got a list, a mapping or unreadable text")
            elif key_node.value == "<<" and key_node.style is None:
                merged += value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            elif key_node.value in own:
                first = _line(own[key_node.value][0])
                self._blame(key_node, (*path, key_node.value), f"given twice, first in line {first}; remove one")
            else:
                own[key_node.value] = (key_node, value_node)
        for source in merged:
            if not isinstance(source, MappingNode) or self._is_open(source):
                self._blame(source, (*path, "<<"), "expected an alias of a mapping, or a list of them")
                continue
            with self._inside(source):
                for key, entry in self._entries(source, path).items():
                    own.setdefault(key, entry)
        return own

    def _is_open(self, node: Node) -> bool:
        return any(node is outer for outer in self.open)

    @contextmanager
    def _inside(self, node: Node) -> Iterator[None]:
        """Every collection passes here: what bounds depth and size whatever aliases do."""
        self.left -= 1
        if self.left < 0:
            raise _TooMuch(f"aliases make more than {MAX_VALUES} values of this file")
        if len(self.open) >= 2 * MAX_DEPTH:
            raise _TooMuch(f"aliases are nested more than {2 * MAX_DEPTH} deep")
        self.open.append(node)
        yield
        self.open.pop()

    def _set_mark(self, node: Node, path: Path) -> None:
        self.tree.marks[path] = Mark(self.tree.file, _line(node))

    def _blame(self, node: Node, path: Path, text: str) -> None:
        self.tree.problems.append(Problem(Mark(self.tree.file, _line(node)), path, text))


def _unusable(text: str) -> bool:
    return any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)
