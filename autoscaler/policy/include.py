"""Several files make one policy: `include` patterns, and who may say what.

Sections that are mappings (`funds`, `providers`, `runner_types`, ...) are joined key by key; everything else is
said in one file only. The same thing in two files is a problem that names both. Patterns count from the file that
holds them; a file that is reached twice is read once.
"""

from __future__ import annotations

import glob
import os

from autoscaler.policy.marked_yaml import read_file
from autoscaler.policy.tree import Problem, Tree
from autoscaler.units import show

MAX_FILES = 500


def read_policy(name: str) -> Tree:
    """The policy file of that name with everything it includes, as one tree without `include`."""
    whole = Tree(name)
    _read(name, whole, set())
    return whole


def _read(name: str, whole: Tree, seen: set[str]) -> None:
    seen.add(os.path.realpath(name))
    tree = read_file(name)
    includes = tree.data.pop("include", [])
    _join(tree, whole)
    for index, pattern in enumerate(includes if isinstance(includes, list) else [includes]):
        path = ("include", index) if isinstance(includes, list) else ("include",)
        if not isinstance(pattern, str) or not pattern:
            text = f"expected a file name or pattern such as `providers/*.yaml`, got {show(pattern)}"
            whole.problems.append(Problem(tree.mark(path), path, text))
            continue
        found = _found(name, pattern)
        if not found:
            text = f"{show(pattern)} matches no file"
            whole.warnings.append(Problem(tree.mark(path), path, text))
        for file in found:
            if os.path.realpath(file) in seen:
                continue
            if _may_block(file):
                text = f"{show(pattern)} matches {show(file)}, a pipe or a device: remove it, or name files only"
                whole.problems.append(Problem(tree.mark(path), path, text))
                continue
            if len(seen) >= MAX_FILES:
                text = f"{show(pattern)} makes more than {MAX_FILES} files"
                whole.problems.append(Problem(tree.mark(path), path, text))
                return
            _read(file, whole, seen)


def _found(name: str, pattern: str) -> list[str]:
    folder = os.path.dirname(name)
    try:
        return sorted(glob.glob(os.path.join(glob.escape(folder), pattern), recursive=True))
    except (ValueError, OSError):  # no possible file name
        return []


def _may_block(file: str) -> bool:
    """A daemon that reloads must not wait for somebody who writes into a pipe."""
    return os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file))


def _join(tree: Tree, whole: Tree) -> None:
    """Add one file's values to the whole. The first file's word stays where both say the same thing."""
    whole.problems += tree.problems
    whole.broken |= tree.broken
    ours = whole.data
    for section, value in tree.data.items():
        if section not in ours:
            ours[section] = value
        elif isinstance(value, dict) and isinstance(ours[section], dict):
            for key, part in value.items():
                if key in ours[section]:
                    _clash(tree, whole, (section, key))
                else:
                    ours[section][key] = part
        elif section != "version" or value != ours[section]:
            _clash(tree, whole, (section,))
    for path, mark in tree.marks.items():
        whole.marks.setdefault(path, mark)


def _clash(tree: Tree, whole: Tree, path: tuple[str, ...]) -> None:
    first = whole.mark(path)
    text = f"given in two files, first in {first.file}:{first.line}; remove one"
    whole.problems.append(Problem(tree.mark(path), path, text))
