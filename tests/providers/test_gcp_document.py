"""deploy/providers/gcp.md says what the code does: role, settings and defaults are compared with it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from providers.bootstrap import VERSION
from providers.catalogue import table
from providers.gcp import GcpSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy/providers/gcp.md").read_text(encoding="utf-8")
ROLE, POLICY = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))

CREATES = {  # "Required permissions" of instances.insert with labels, tags, metadata, a disk and an address
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.networks.use",
    "compute.networks.useExternalIp",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
}
VERBS = {"insert_unary": "create", "delete_unary": "delete", "get": "get", "list": "list"}


def test_the_role_allows_exactly_what_is_called():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "providers/gcp").glob("*.py"))
    called = set(re.findall(r'(?:call|ask)\(\s*"(\w+)",\s*"(\w+)"', code))
    wanted = {f"compute.{client}.{VERBS[method]}" for client, method in called}
    wanted |= {f"compute.{client}.list" for client in re.findall(r'aggregated\(\s*"(\w+)"', code)}
    wanted |= {f"compute.{client}.list" for client in re.findall(r'in_zone\(\s*"(\w+)"', code)}
    wanted = {re.sub(r"_(\w)", lambda found: found[1].upper(), permission) for permission in wanted}
    assert set(ROLE["includedPermissions"]) == wanted | CREATES


def test_every_setting_is_explained_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", PAGE, re.MULTILINE))
    assert list(rows) == list(GcpSettings.model_fields)
    for name, field in GcpSettings.model_fields.items():
        if isinstance(field.default, str | bool):
            assert rows[name] == f"`{str(field.default).lower()}`"
    assert f"version {VERSION}" in PAGE


def test_the_example_is_valid():
    provider = POLICY["providers"]["gcp"]
    settings = GcpSettings.model_validate(provider["settings"])
    assert set(settings.zones) == set(provider["regions"])


def test_the_regions_with_prices_are_named():
    for region in {region for kind in table("gce.csv").values() for region in kind.prices}:
        assert region in PAGE.partition("## Prices")[2]
