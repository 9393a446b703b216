"""deploy/providers/kubernetes.md says what the code does: permissions and settings are compared with it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from providers.bootstrap import VERSION
from providers.kubernetes import KubernetesSettings
from providers.kubernetes.settings import FIXED, GPU_RESOURCES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy/providers/kubernetes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
VERBS = {"POST": "create", "GET": "get", "DELETE": "delete"}


def test_the_role_allows_exactly_what_is_called() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "providers/kubernetes").glob("*.py"))
    called = {
        (resource, VERBS[method])
        for method, resource in re.findall(r'"(POST|GET|DELETE)", f?"(pods|secrets)\b', code)
    }
    called |= {(resource, "list") for resource in re.findall(r'list_all\("(\w+)"', code)}
    called |= {(resource, "watch") for resource in re.findall(r'\.watch\("(\w+)"', code)}
    role = next(yaml.safe_load_all(BLOCKS[0]))
    allowed = {
        (resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }
    assert allowed == called


def test_every_setting_is_explained() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(KubernetesSettings.model_fields)
    assert f"version {VERSION}" in PAGE
    assert all(resource in PAGE for resource in GPU_RESOURCES.values())
    assert f"| `pending_seconds` | {KubernetesSettings().pending_seconds} |" in PAGE
    assert f"| `namespace` | `{KubernetesSettings().namespace}` |" in PAGE
    assert {"restartPolicy", "activeDeadlineSeconds"} < FIXED


def test_the_examples_are_valid() -> None:
    policy, template = (yaml.safe_load(block) for block in BLOCKS[1:3])
    KubernetesSettings.model_validate(policy["providers"]["lab"]["settings"])
    KubernetesSettings.model_validate({"template": template["template"]})
