"""PyTorch's `scale-config.yml` (the runner types of its AWS autoscaler) as a policy.

Format: pytorch/test-infra, `.github/scale-config.yml` and its header comment (defaults). A variant V of type T is
a type of its own, named `V.T` after any prefix `lf.c.`, `lf.` or `c.` of T, with V's keys laid over T's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.policy.marked_yaml import read_file
from autoscaler.policy.model import Document
from autoscaler.policy.tree import Path, PolicyError, Tree
from autoscaler.policy.validate import validate
from autoscaler.policy.values import Names
from autoscaler.units import show

DEFAULTS: Mapping[str, Any] = {"instance_type": "m4.large", "os": "linux", "disk_size": 50}
"""What the file's own header says of a key that is left out."""

CARRIED = ("instance_type", "os", "disk_size", "ami", "max_available", "labels", "variants")
NOT_OURS = ["ubuntu-*", "windows-*", "macos-*"]

_PREFIX = re.compile(r"(lf\.c\.|lf\.|c\.)?(.*)", re.DOTALL)
_GRAVITON = re.compile(r"a1\.|[a-z]+[0-9]+g[a-z]*\.")  # EC2 families with a `g` after the generation are arm64


@dataclass(slots=True)
class Imported:
    """The policy as plain values, and what it could not take over: reason -> names of the types."""

    policy: dict[str, Any]
    variants: int = 0
    dropped: dict[str, list[str]] = field(default_factory=dict)
    to_do: list[str] = field(default_factory=list)


def import_scale_config(path: str, provider: str = "aws", repositories: str | None = None) -> Imported:
    """Read a scale-config. Raises PolicyError where the file is none."""
    tree = read_file(path)
    types = tree.data.get("runner_types")
    if not tree.problems and (not isinstance(types, dict) or not types):
        tree.blame((), "no scale-config: it has no `runner_types` with a type in it")
    images: dict[str, dict[str, str]] = {}
    runner_types: dict[str, Any] = {}
    imported = Imported({})
    for name, entry, at in _entries(tree, types):
        if name in runner_types:
            tree.blame(at, f"makes a second runner type {show(name)}: rename one")
        runner_types[name] = _runner_type(tree, name, entry, at, provider, images)
        imported.variants += len(at) == len(("runner_types", "T", "variants", "V"))
        for key, value in entry.items():
            if key == "is_ephemeral":
                if value is False:
                    _drop(imported, "is_ephemeral: false; here every runner takes one job and ends", name)
            elif key not in CARRIED:
                _drop(imported, f"{key}; there is no counterpart", name)
    imported.policy = {
        "version": 1,
        "ignore_labels": NOT_OURS,
        "providers": {provider: {"kind": "aws"}},
        **({"images": images} if images else {}),
        **({"defaults": {"access": {"repositories": [repositories], "forks": "deny"}}} if repositories else {}),
        "runner_types": runner_types,
    }
    names = Names(frozenset({provider}), frozenset(images), frozenset({"aws"}))
    if not tree.problems:
        validate(Document, tree, (), imported.policy, names)
    if tree.problems:
        raise PolicyError(tree.problems)
    imported.to_do = list(_to_do(imported.policy, provider, repositories))
    return imported


def _entries(tree: Tree, types: Any) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Every type and every variant: its name, all its keys, and where it stands."""
    for name, entry in types.items() if isinstance(types, dict) else ():
        at: Path = ("runner_types", name)
        if not isinstance(entry, dict):
            tree.blame(at, f"expected the keys of a runner type, got {show(entry)}")
            continue
        yield name, entry, at
        variants = entry.get("variants") or {}
        if not isinstance(variants, dict):
            tree.blame((*at, "variants"), f"expected variants by name, got {show(variants)}")
            continue
        for variant, changes in variants.items():
            at = ("runner_types", name, "variants", variant)
            if not isinstance(changes, dict | None):
                tree.blame(at, f"expected the keys that this variant changes, got {show(changes)}")
                continue
            yield variant_name(variant, name), entry | (changes or {}), at


def variant_name(variant: str, name: str) -> str:
    """`amz2023` of `lf.linux.2xlarge` -> `lf.amz2023.linux.2xlarge`."""
    found = _PREFIX.fullmatch(name)
    prefix, rest = (found[1] or "", found[2]) if found else ("", name)
    return f"{prefix}{variant}.{rest}"


def _runner_type(
    tree: Tree, name: str, entry: dict[str, Any], at: Path, provider: str, images: dict[str, dict[str, str]]
) -> dict[str, Any]:
    full = {**DEFAULTS, **entry}
    instance_type, system = _text(tree, full, at, "instance_type"), _text(tree, full, at, "os")
    arch = "arm64" if _GRAVITON.match(instance_type) else "x64"
    labels: dict[str, str] = {}
    for label in ("self-hosted", system, arch, name, *_labels(tree, full, at)):
        labels.setdefault(label.casefold(), label)
    result: dict[str, Any] = {
        "labels": list(labels.values()),
        "hardware": {"os": system, "arch": arch, "disk": f"{_number(tree, full, at, 'disk_size')} GiB"},
        "offers": [{"provider": provider, "instance_types": [instance_type]}],
    }
    if "ami" in full:
        result["image"] = _image(_text(tree, full, at, "ami"), provider, images)
    if (cap := _number(tree, {"max_available": -1, **full}, at, "max_available")) >= 0:
        result["max_runners"] = cap
    return result


def _text(tree: Tree, entry: dict[str, Any], at: Path, key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value:
        tree.blame((*at, key), f"expected text, got {show(value)}")
        return ""
    return value


def _number(tree: Tree, entry: dict[str, Any], at: Path, key: str) -> int:
    value = entry[key]
    if not isinstance(value, int) or isinstance(value, bool):
        tree.blame((*at, key), f"expected a whole number, got {show(value)}")
        return 0
    return value


def _labels(tree: Tree, entry: dict[str, Any], at: Path) -> list[str]:
    labels = entry.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        tree.blame((*at, "labels"), f"expected a list of labels, got {show(labels)}")
        return []
    return labels


def _image(ami: str, provider: str, images: dict[str, dict[str, str]]) -> str:
    """A name for this AMI in `images`."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", ami).strip("-._")[:90] or "image"
    while images.setdefault(name, {provider: ami})[provider] != ami:
        name += "-2"
    return name


def _drop(imported: Imported, reason: str, name: str) -> None:
    imported.dropped.setdefault(reason, []).append(name)


def _to_do(policy: dict[str, Any], provider: str, repositories: str | None) -> Iterator[str]:
    """What the operator must add, because a scale-config does not say it."""
    yield f"providers.{provider}: add `regions` and `settings: {{subnets: ...}}`"
    yield "funds: add who pays; without one only offers at 0 USD/h can run"
    if not repositories:
        yield "access: nobody may use these types yet; add `defaults: {access: ...}` or use --repositories"
    if count := len(policy.get("images", ())):
        yield f"images: {count} AMIs are carried as names; write ids by region: {{us-east-1: ami-0abc}}"
    if bare := sum("image" not in rtype for rtype in policy["runner_types"].values()):
        yield f"image: {bare} types name no AMI; add an image for them under `images`"


# ---- as text -----------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*|[0-9]+|[0-9]+ GiB")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def as_yaml(imported: Imported, source: str) -> str:
    """The policy as a file that a person goes on with: one line a key, what is to be done on top."""
    policy, name = imported.policy, show(os.path.basename(source))[1:-1]
    lines = [
        f"# Runner types imported from {name}, a scale-config as of pytorch/test-infra.",
        "# What it does not say and a policy needs:",
        *(f"#   {item}" for item in imported.to_do),
        "version: 1",
        f"ignore_labels: {_flow(policy['ignore_labels'])}  # GitHub's own runners",
    ]
    for section in ("providers", "images", "defaults"):
        if section in policy:
            lines += ["", f"{section}:"]
            lines += [f"  {_flow(name)}: {_flow(value)}" for name, value in policy[section].items()]
    lines += ["", "runner_types:"]
    for name, rtype in policy["runner_types"].items():
        lines += [f"  {_flow(name)}:", *(f"    {key}: {_flow(value)}" for key, value in rtype.items())]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value on one line; text is quoted where YAML could take it for something else."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.lower() in _WORDS or value.isdigit()):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
