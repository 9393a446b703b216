"""The user data: constant programs and JSON, the same bytes on every replay."""

from __future__ import annotations

import ast
import gzip
import json
import os
import shutil
import subprocess

import pytest
import yaml
from pydantic import ValidationError

from providers.bootstrap import PROGRAMS, RunnerPackage, linux_user_data, program
from providers.bootstrap.linux import refusal
from providers.bootstrap.linux_hook import is_fork

BOOT = json.dumps({"name": "fleet-r0'; rm -rf /; $(id) `id` \"\\\n", "token": "secret", "access": {}})


def user_data(boot: str = BOOT, lifetime_ms: int = 4 * 3_600_000) -> str:
    package = RunnerPackage().for_arch("x64")
    assert package
    return linux_user_data(boot, package, lifetime_ms, ["169.254.169.254/32"])


def files(text: str) -> dict[str, bytes]:
    return {entry["path"]: entry["content"].encode() for entry in yaml.safe_load(text)["write_files"]}


def test_launch_data_arrives_byte_for_byte_and_is_root_only():
    assert files(user_data())["/etc/autoscaler/boot.json"] == BOOT.encode()
    modes = {entry["path"]: entry["permissions"] for entry in yaml.safe_load(user_data())["write_files"]}
    assert modes["/etc/autoscaler/boot.json"] == "0600"


def test_programs_are_constant_text():
    first, second = files(user_data("{}")), files(user_data())
    for name, path in PROGRAMS.items():
        assert first[path] == second[path] == program(name)


def test_replays_are_byte_identical_and_fit():
    assert user_data() == user_data()
    long = json.dumps({"access": os.urandom(2000).hex()})
    assert len(gzip.compress(user_data(long).encode())) < 16_384


def test_the_system_shuts_down_by_itself_even_if_the_program_never_starts():
    assert yaml.safe_load(user_data(lifetime_ms=90_001))["runcmd"][0] == ["shutdown", "-P", "+2"]


def test_plan_names_the_pinned_runner():
    plan = json.loads(files(user_data())["/etc/autoscaler/machine.json"])
    assert plan["runner"]["url"].endswith("/v2.338.0/actions-runner-linux-x64-2.338.0.tar.gz")
    assert len(plan["runner"]["sha256"]) == 64


def test_another_version_needs_its_own_checksum():
    with pytest.raises(ValidationError, match=r"2\.400\.0 needs its own sha256"):
        RunnerPackage(version="2.400.0")
    package = RunnerPackage(
        version="2.400.0", sha256={"x64": "AB" * 32}, url="https://mirror/{arch}/{version}.tgz"
    )
    found = package.for_arch("x64")
    assert found
    assert found["runner"] == {
        "url": "https://mirror/x64/2.400.0.tgz",
        "sha256": "ab" * 32,
        "version": "2.400.0",
    }
    assert package.for_arch("arm64") is None


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith(".py")])
def test_programs_are_python_3_9(name):
    ast.parse(program(name), feature_version=(3, 9))
    program(name).decode("ascii")


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith(".sh")])
def test_hooks_are_clean_shell(name, tmp_path):
    script = tmp_path / name
    script.write_bytes(program(name))
    subprocess.run(["sh", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


DENY = {"repositories": ["pytorch/*"], "events": [], "forks": "deny"}


@pytest.mark.parametrize(
    ("access", "job", "allowed"),
    [
        ({}, {}, True),
        ({}, {"repository": "PyTorch/Vision"}, True),
        ({}, {"repository": "pytorch"}, False),
        ({"repositories": []}, {}, False),
        ({}, {"fork": True}, False),
        ({}, {"fork": None}, False),
        ({"forks": "allow"}, {"fork": None}, True),
        ({"forks": "only"}, {"fork": True}, True),
        ({"forks": "only"}, {"fork": None}, False),
        ({"forks": "nonsense"}, {"fork": True}, False),
        ({"events": ["push", "pull_request*"]}, {"event": "pull_request_target"}, True),
        ({"events": ["push"]}, {"event": "schedule"}, False),
    ],
)
def test_admission(access, job, allowed):
    job = {"repository": "pytorch/pytorch", "event": "push", "fork": False, **job}
    assert (refusal({**DENY, **access}, job) == "") is allowed


@pytest.mark.parametrize(
    ("event", "name", "fork"),
    [
        (None, "push", None),
        ([], "push", None),
        ({}, "push", False),
        ({}, "pull_request", None),
        ({"pull_request": {"head": {"repo": {"full_name": "O/r"}}}}, "pull_request", False),
        ({"pull_request": {"head": {"repo": {"full_name": "x/r"}}}}, "pull_request_target", True),
        ({"pull_request": {"head": {"repo": None}}}, "pull_request", True),
        ({"pull_request": {}}, "pull_request_review", True),
        ({"issue": {"pull_request": {}}}, "issue_comment", False),
    ],
)
def test_fork_flag(event, name, fork):
    assert is_fork(event, name, "o/R") is fork
