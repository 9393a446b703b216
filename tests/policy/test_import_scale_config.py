"""Real scale-config files become policies that pass the check as they are."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.cli import policy as policy_commands
from autoscaler.policy.scale_config import variant_name
from scheduling.policy import Forks, Policy
from tests.policy.policies import NOW_MS, Folder

DATA = Path(__file__).parents[1] / "data" / "scale-config"
FILES = sorted(DATA.glob("*.yml"))


def imported(file: Path, repositories: str | None = None, provider: str = "aws") -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    assert policy_commands.import_from(str(file), provider, repositories, out, err) == 0
    return out.getvalue(), err.getvalue()


def expected(file: Path) -> dict[str, dict[str, Any]]:
    """Read by other means: every type and variant with its own keys."""
    types: dict[str, dict[str, Any]] = {}
    for name, entry in yaml.safe_load(file.read_text())["runner_types"].items():
        types[name] = entry
        for variant, changes in entry.get("variants", {}).items():
            types[f"{variant}.{name}"] = entry | changes
    return types


def loaded(folder: Folder, file: Path, **options: str) -> Policy:
    return folder.load(imported(file, **options)[0]).policy


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_types_and_variants_come_over(folder: Folder, file: Path) -> None:
    policy, wanted = loaded(folder, file), expected(file)
    assert list(policy.runner_types) == list(wanted)
    assert len(wanted) in (82, 84)
    for name, entry in wanted.items():
        rtype = policy.runner_types[name]
        (selector,) = rtype.selectors or ()
        assert (selector.provider, selector.instance_types) == ("aws", (entry["instance_type"],))
        assert (rtype.hardware.os, rtype.hardware.disk_gib) == (entry["os"], entry["disk_size"])
        assert rtype.max_runners == entry.get("max_available")
        assert rtype.hardware.arch == ("arm64" if ".arm64." in name else "x64")
        assert rtype.labels == ("self-hosted", entry["os"], rtype.hardware.arch, name)
        ami = entry.get("ami")
        assert bool(rtype.image) == bool(ami)
        if ami:
            assert policy.images[rtype.image].reference("aws", "aws", "us-east-1") == ami


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_result_passes_the_check_and_the_file_says_what_is_to_do(folder: Folder, file: Path) -> None:
    text, _ = imported(file)
    out = io.StringIO()
    assert policy_commands.check(str(folder.write(text)), NOW_MS, out) == 0
    assert "no repository is allowed" in out.getvalue()
    assert f"# Runner types imported from {file.name}" in text
    assert "#   providers.aws: add `regions`" in text


def test_what_is_not_carried_over_is_counted() -> None:
    old, new = (imported(file)[1] for file in FILES)
    assert "imported 82 runner types, 50 of them variants\n" in old
    assert "  64 x is_ephemeral: false; here every runner takes one job and ends (linux.12xlarge, " in old
    assert "  images: 4 AMIs are carried as names" in old
    assert "  image: 7 types name no AMI" in old
    assert "imported 84 runner types, 18 of them variants\nnot carried over: nothing\n" in new


def test_access_is_denied_unless_a_pattern_is_given(folder: Folder) -> None:
    assert "access: nobody may use these types yet" in imported(FILES[0])[1]
    denied = loaded(folder, FILES[0]).runner_types["linux.2xlarge"].access
    assert denied.repositories == ()
    assert "nobody may use" not in imported(FILES[0], "pytorch/*")[1]
    allowed = loaded(folder, FILES[0], repositories="pytorch/*").runner_types["linux.2xlarge"].access
    assert (allowed.repositories, allowed.forks) == (("pytorch/*",), Forks.DENY)


def test_another_provider_name(folder: Folder) -> None:
    policy = loaded(folder, FILES[1], provider="lf-aws")
    assert policy.providers["lf-aws"].kind == "aws"
    assert {s.provider for rtype in policy.runner_types.values() for s in rtype.selectors or ()} == {"lf-aws"}


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("linux.2xlarge", "am2.linux.2xlarge"),
        ("lf.linux.2xlarge", "lf.am2.linux.2xlarge"),
        ("c.linux.2xlarge", "c.am2.linux.2xlarge"),
        ("lf.c.linux.2xlarge", "lf.c.am2.linux.2xlarge"),
        ("lfx.linux", "am2.lfx.linux"),
    ],
)
def test_a_variant_stands_after_the_prefix(name: str, result: str) -> None:
    assert variant_name("am2", name) == result


def test_defaults_labels_and_keys_without_a_counterpart(folder: Folder) -> None:
    folder.write(
        """\
        runner_types:
          plain: {}
          lf.c.odd:
            os: windows
            labels: [gpu, "c:\\\\drive", lf.c.odd]
            max_available: -1
            min_available: 5
            is_ephemeral: false
            ami: Windows 2019 GHA CI - 20250812161628|308535385114
            variants:
              canary: {ami: Windows 2019 GHA CI - 20260501125018, max_available: 0, instance_type: c7gn.large}
              same:
        """,
        "scale-config.yml",
    )
    text, err = imported(folder.path / "scale-config.yml")
    types = folder.load(text).policy.runner_types
    assert list(types) == ["plain", "lf.c.odd", "lf.c.canary.odd", "lf.c.same.odd"]
    (selector,) = types["plain"].selectors or ()
    assert selector.instance_types == ("m4.large",)
    assert (types["plain"].hardware.os, types["plain"].hardware.disk_gib) == ("linux", 50)
    odd, canary = types["lf.c.odd"], types["lf.c.canary.odd"]
    assert odd.labels == ("self-hosted", "windows", "x64", "lf.c.odd", "gpu", "c:\\drive")
    assert (odd.max_runners, canary.max_runners, canary.hardware.arch) == (None, 0, "arm64")
    assert odd.image != canary.image
    assert types["lf.c.same.odd"].image == odd.image
    assert "  3 x min_available; there is no counterpart (lf.c.odd, lf.c.canary.odd, lf.c.same.odd)" in err
    assert "  3 x is_ephemeral: false" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runner_types: []", "scale-config.yml:1: no scale-config: it has no `runner_types`"),
        ("a: [", "scale-config.yml:1: not valid YAML"),
        ("runner_types: {a: 5}", "runner_types.a: expected the keys of a runner type, got `5`"),
        ("runner_types: {a: {disk_size: big}}", "runner_types.a.disk_size: expected a whole number, got `big`"),
        ("runner_types: {a: {os: 5}}", "runner_types.a.os: expected text, got `5`"),
        ("runner_types: {a: {os: plan9}}", "runner_types.a.hardware.os: expected `linux`, `windows` or `macos`"),
        ("runner_types: {a: {labels: x}}", "runner_types.a.labels: expected a list of labels, got `x`"),
        ("runner_types: {a: {variants: x}}", "runner_types.a.variants: expected variants by name, got `x`"),
        ("runner_types: {a: {variants: {v: x}}}", "runner_types.a.variants.v: expected the keys"),
        ("runner_types: {a b: {}}", "runner_types.a b: expected a name of up to 100 letters"),
        ("runner_types: {v.a: {}, a: {variants: {v: {}}}}", "variants.v: makes a second runner type `v.a`"),
    ],
)
def test_a_file_that_is_no_scale_config(folder: Folder, text: str, message: str) -> None:
    file, out, err = folder.write(text, "scale-config.yml"), io.StringIO(), io.StringIO()
    assert policy_commands.import_from(str(file), "aws", None, out, err) == 1
    assert message in err.getvalue()
    assert out.getvalue() == ""


def test_as_json_it_is_one_document() -> None:
    out, err = io.StringIO(), io.StringIO()
    assert policy_commands.import_from(str(FILES[0]), "aws", None, out, err, as_json=True) == 0
    document = json.loads(out.getvalue())
    assert len(document["policy"]["runner_types"]) == 82
    assert len(document["not_carried_over"][0]["runner_types"]) == 64
    assert any(item.startswith("funds:") for item in document["to_do"])
