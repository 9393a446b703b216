"""The example policies and the schema: what passes one check passes the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from autoscaler.policy.file import load
from autoscaler.policy.marked_yaml import read_file, read_text
from autoscaler.policy.schema import policy_schema
from tests.policy.policies import FULL, NOW_MS, SMALL, changed

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
SCHEMA = Draft202012Validator(policy_schema())


@pytest.mark.parametrize("name", ["policy.yaml", "single-team.yaml"])
def test_examples_pass_the_check(name: str) -> None:
    for warning in load(EXAMPLES / name, NOW_MS).warnings:
        assert "fund is closed" in str(warning) or "no provider sells" in str(warning)


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda file: file.name)
def test_examples_pass_the_schema(file: Path) -> None:
    assert [error.message for error in SCHEMA.iter_errors(read_file(str(file)).data)] == []


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(policy_schema())


def valid(text: str) -> bool:
    return bool(SCHEMA.is_valid(read_text("policy.yaml", text).data))


def test_the_documented_policy_passes_the_schema() -> None:
    assert valid(FULL)
    assert valid(SMALL)


def test_own_keys_pass_the_schema() -> None:
    document: dict[str, Any] = read_text("policy.yaml", SMALL).data
    document["x-mine"] = document["providers"]["x-mine"] = document["runner_types"]["small"]["x-mine"] = 5
    assert SCHEMA.is_valid(document)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 2"),
        ("version: 1\n", ""),
        ("price: 0 USD/h", "price: 0"),
        ("price: 0 USD/h", "price: {time: 2}"),
        ("price: 0 USD/h", "available: Mon"),
        ("price: 0 USD/h", "launch_rate: 2"),
        ("price: 0 USD/h", "settings: {sed: 1}"),
        ("price: 0 USD/h", "regions: []"),
        ("kind: sim", "kind: vsphere"),
        ("small:\n", "sm all:\n"),
        ("[self-hosted, small]", "[]"),
        ('["octo/*"]', "[octo]"),
        ("    access:", "    hardware: {memory: 16 GB}\n    access:"),
        ("    access:", "    boot_timeout: 8\n    access:"),
        ("    access:", "    max_runners:\n    access:"),
        ("    access:", "    unknown: 5\n    access:"),
        ("runner_types:", "rules: [{rerun: maybe}]\nrunner_types:"),
        ("runner_types:", "funds: {f: {credit: 5}}\nrunner_types:"),
    ],
)
def test_an_editor_shows_the_same_mistakes(old: str, new: str) -> None:
    assert not valid(changed(old, new))
