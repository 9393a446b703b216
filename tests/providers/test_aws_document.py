"""deploy/providers/aws.md says what the code does: permissions and settings are compared with it."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from providers.aws import AwsSettings
from providers.bootstrap import VERSION

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy/providers/aws.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


SERVICES = {"get_products": "pricing:", "get_credits": "billing:"}
FREE = {"get_caller_identity"}  # needs no permission


def test_the_iam_policy_allows_exactly_what_is_called():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "providers/aws").glob("*.py"))
    called = set(re.findall(r'"((?:describe|run|terminate|delete|get)_[a-z_]+)"', code))
    actions = {
        SERVICES.get(name, "ec2:") + "".join(part.title() for part in name.split("_")) for name in called - FREE
    }
    allowed = set()
    for statement in json.loads(block("json"))["Statement"]:
        assert statement["Effect"] == "Allow"
        allowed |= {statement["Action"]} if isinstance(statement["Action"], str) else set(statement["Action"])
    assert allowed == actions | {"ec2:CreateTags"}


@pytest.mark.parametrize("action", ["ec2:TerminateInstances", "ec2:DeleteVolume"])
def test_only_the_fleet_s_own_may_be_ended(action):
    for statement in json.loads(block("json"))["Statement"]:
        if fnmatchcase(action, statement["Action"] if isinstance(statement["Action"], str) else ""):
            assert statement["Condition"]["StringEquals"] == {"ec2:ResourceTag/autoscaler-fleet": "FLEET"}


def test_every_setting_is_explained():
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == list(AwsSettings.model_fields)
    assert f"version {VERSION}" in PAGE


def test_the_example_is_valid():
    AwsSettings.model_validate(yaml.safe_load(block("yaml"))["providers"]["aws"]["settings"])
