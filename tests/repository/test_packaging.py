"""The locks install anywhere and name no place; the wheel carries every file that the code reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repository.test_layering import imports

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("requirements-demo.lock", "requirements.lock", "requirements-dev.lock")
OURS = {"autoscaler", "providers", "scheduling", "tests", "benchmarks"}
RUN_EXTRAS = ("aws", "gcp", "azure", "kubernetes", "ssh", "planner")
COMES_WITH = {
    "botocore": "boto3",
    "githubkit_schemas": "githubkit",
    "mypy_boto3_ec2": "boto3",
    "pydantic_core": "pydantic",
    "urllib3": "requests",
}
"""Packages that one project releases together, always at fitting versions."""


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_host_and_no_place(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.findall(r"[a-z+]+://\S*|^-.*|\S+ @ \S+|\S*\.(?:org|com|net|io)\b\S*", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_pinned_and_hashed(lock: str) -> None:
    for requirement, hashes in pins(lock):
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), requirement
        assert hashes, f"{requirement} has no hash"


def test_locks_follow_pyproject() -> None:
    """`make lock` was run after the last change of a dependency."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    demo = project["dependencies"] + PROJECT["dependency-groups"]["build"]
    run = demo + [line for extra in RUN_EXTRAS for line in extras[extra]]
    for lock, wanted in zip(LOCKS, (demo, run, run + extras["dev"]), strict=True):
        locked = {canonicalize_name(one.name): one.specifier for one, _ in pins(lock)}
        for line in map(Requirement, wanted):
            if line.name == project["name"]:
                continue
            version = str(locked[canonicalize_name(line.name)]).removeprefix("==")
            assert line.specifier.contains(version), (
                f"{lock} has {line.name} {version}, pyproject.toml wants {line}"
            )


def test_every_imported_package_is_declared() -> None:
    """What is imported directly must not hang on another package's dependencies."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    run = names(project["dependencies"]) | {name for extra in RUN_EXTRAS for name in names(extras[extra])}
    run |= {"pytest"}  # of `providers.conformance`, which only test suites import
    dev = run | names(extras["dev"])
    distributions = packages_distributions()
    for room, declared in (("autoscaler", run), ("providers", run), ("tests", dev), ("benchmarks", dev)):
        for path in sorted((ROOT / room).rglob("*.py")):
            for line, module in imports(path):
                package = COMES_WITH.get(module.split(".")[0], module.split(".")[0])
                if package in sys.stdlib_module_names | OURS:
                    continue
                found = {canonicalize_name(name) for name in distributions.get(package, [package])}
                assert found & declared, f"{path.relative_to(ROOT)}:{line}: {module} is not in pyproject.toml"


def test_each_lock_holds_the_shorter_one() -> None:
    """Contributors test what users run, and users run what the demo shows."""
    demo, run, dev = ({str(one) for one, _ in pins(lock)} for lock in LOCKS)
    assert demo < run < dev


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names in the wheel that a clean checkout builds."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("out")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, checkout)
    for room in ("autoscaler", "providers", "scheduling"):
        shutil.copytree(ROOT / room, checkout / room, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", out, checkout], check=True)
    (built,) = out.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_wheel_carries_every_file_of_the_three_rooms(wheel: set[str]) -> None:
    files = {
        str(path.relative_to(ROOT))
        for room in ("autoscaler", "providers", "scheduling")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - wheel == set(), "add them to tool.setuptools.package-data"


def test_wheel_carries_licence_and_nothing_of_the_tests(wheel: set[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {
        "autoscaler",
        "providers",
        "scheduling",
    }


def names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def pins(lock: str) -> list[tuple[Requirement, list[str]]]:
    """(requirement, its hashes) of every entry of a lock."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        (Requirement(entry.split("--hash")[0].strip()), re.findall(r"--hash=(\S+)", entry)) for entry in entries
    ]
