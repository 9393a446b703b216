"""deploy/providers/ssh.md says what the code does: the sudoers line and all settings are compared with it."""

from __future__ import annotations

import fnmatch
import re
import shlex
from pathlib import Path

import yaml

from providers.bootstrap import VERSION
from providers.ssh import SshSettings
from providers.ssh.client import COMMAND
from providers.ssh.settings import HostSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "deploy/providers/ssh.md").read_text(encoding="utf-8")


def test_the_sudoers_line_allows_what_is_run() -> None:
    found = re.search(r"NOPASSWD: (.*)", PAGE)
    assert found
    assert fnmatch.fnmatchcase(" ".join(shlex.split(COMMAND)), found[1])


def test_every_setting_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == [*SshSettings.model_fields, *HostSettings.model_fields]
    for name, default in rows:
        field = {**SshSettings.model_fields, **HostSettings.model_fields}[name]
        if field.is_required():
            assert default == "required", name
        elif isinstance(field.default, int | str | Path) and field.default != "":
            assert default.strip("`") == str(field.default), name
    assert f"version {VERSION}" in PAGE


def test_the_example_is_valid() -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert block
    SshSettings.model_validate(yaml.safe_load(block[1])["providers"]["rocm-lab"]["settings"])
