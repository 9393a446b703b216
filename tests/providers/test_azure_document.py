"""deploy/providers/azure.md says what the code does: role, settings and defaults are compared with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from providers.azure import AzureSettings
from providers.azure.leftovers import KINDS
from providers.bootstrap import VERSION
from providers.catalogue import table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy/providers/azure.md").read_text(encoding="utf-8")

CREATES = {  # a machine with its disk, interface and address, from images of three sorts
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/galleries/images/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
}
VERBS = {"begin_create_or_update": "write", "begin_delete": "delete", "get": "read", "list": "read"}


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_role_allows_exactly_what_is_called():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "providers/azure").glob("*.py"))
    called = set(re.findall(r"client\.virtual_machines\.(\w+)\(", code))
    wanted = {f"Microsoft.Compute/virtualMachines/{VERBS[method]}" for method in called}
    wanted |= {f"{kind}/{verb}" for kind in KINDS for verb in ("read", "delete")}
    wanted |= {"Microsoft.Resources/subscriptions/resourceGroups/resources/read"}
    assert set(json.loads(block("json"))["Actions"]) == wanted | CREATES


def test_every_setting_is_explained_with_its_default():
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", PAGE, re.MULTILINE))
    assert list(rows) == list(AzureSettings.model_fields)
    for name, field in AzureSettings.model_fields.items():
        if isinstance(field.default, bool):
            assert rows[name] == f"`{str(field.default).lower()}`"
        elif isinstance(field.default, str):
            assert rows[name] == f"`{field.default}`"
    assert f"version {VERSION}" in PAGE


def test_the_example_is_valid():
    provider = yaml.safe_load(block("yaml"))["providers"]["azure"]
    settings = AzureSettings.model_validate(provider["settings"])
    assert all(settings.zones_of(region) for region in provider["regions"])


def test_the_regions_with_prices_are_named():
    for region in {region for kind in table("azure.csv").values() for region in kind.prices}:
        assert region in PAGE.partition("## Prices")[2]
