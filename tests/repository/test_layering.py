"""The house keeps its walls: import contracts, a pure core, SDKs imported only when asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("scheduling", "providers", "autoscaler")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = SETTINGS["tool"]["importlinter"]["contracts"]
SDKS = next(one["forbidden_modules"] for one in CONTRACTS if one["name"].startswith("Each SDK"))


ELSEWHERE = {ROOT / "providers" / "ssh" / name for name in ("caller.py", "host.py", "launchers.py")}
"""Programs that we send to a machine and that run there, by that machine's clock."""


def modules(*rooms: str) -> list[Path]:
    return [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pure_core_needs_nothing_but_the_standard_library() -> None:
    strangers = {
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("scheduling")
        for line, name in imports(path)
        if name.split(".")[0] not in {"scheduling"} | sys.stdlib_module_names
    }
    assert not strangers


def test_only_the_clock_reads_the_time() -> None:
    """Event-loop time is free for all: it times sockets and the lease, never a decision."""
    readers = {
        f"{path.relative_to(ROOT)}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in modules(*ROOMS)
        if path not in ELSEWHERE | {ROOT / "autoscaler" / "clock.py"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(
            ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today")
        )
    }
    assert not readers


def test_sdks_are_imported_only_when_an_adapter_needs_them() -> None:
    """Every module of the house loads without an SDK: an operator without Azure never pays for it."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules(*ROOMS)]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(*sorted(set({SDKS!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("package", sorted(path.parent for path in modules(*ROOMS) if path.name == "__init__.py"))
def test_every_package_has_a_charter(package: Path) -> None:
    """The docstring says what a package is for; the three rooms also say what must never be in them."""
    charter = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert charter, f"{package.relative_to(ROOT)}/__init__.py has no docstring"
    if package.parent == ROOT:
        assert "Belongs here:" in charter
        assert "Never here:" in charter


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of every import, lazy ones included. Relative ones stay in their package: left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
