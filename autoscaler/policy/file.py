"""The policy file: from its name to a compiled policy with warnings, or to one report of everything that is wrong.

Rooms: `marked_yaml` reads one file, `include` joins several, `model` and `values` say what is
allowed, `validate` words the complaints, `compile` makes `scheduling.policy.Policy`,
`warnings` looks at the result, `schema` is the same for editors.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.policy.compile import compile_policy
from autoscaler.policy.include import read_policy
from autoscaler.policy.model import Document
from autoscaler.policy.tree import PolicyError, Problem, Tree
from autoscaler.policy.validate import EMPTY, validate
from autoscaler.policy.values import Names, nearest
from autoscaler.policy.warnings import add_warnings
from autoscaler.units import show
from providers import registry
from providers.base import ProviderConfig
from scheduling.model import Offer, UnixMs
from scheduling.policy import Policy

__all__ = ["Loaded", "PolicyError", "Problem", "load", "provider_config"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy that can be used. `settings`: each provider's own, as instances of its kind's model."""

    policy: Policy
    warnings: tuple[Problem, ...]
    settings: Mapping[str, Any]


def load(path: str | os.PathLike[str], now_ms: UnixMs) -> Loaded:
    """Read the file and all that it includes. `now_ms` decides only which warnings about dates are due.

    Raises PolicyError with one line a problem: `file:line: path: what was expected, got ...; did you mean ...`.
    """
    tree = read_policy(os.fspath(path))
    if tree.broken:
        raise PolicyError(_in_order(tree, tree.problems))
    names = _names(tree)
    _check_values(tree, names)
    document = validate(Document, tree, (), tree.data, names)
    settings = {name: _settings(tree, name, raw) for name, raw in _section(tree, "providers").items()}
    if document is not None:
        _check_floors(tree, document)
    if document is None or tree.problems:
        raise PolicyError(_in_order(tree, tree.problems))
    canonical = json.dumps(tree.data, sort_keys=True, separators=(",", ":"))
    policy_hash = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    policy = compile_policy(document, policy_hash, names.kinds)
    catalogues = {name: _catalogue(policy, name, settings[name]) for name in policy.providers}
    add_warnings(tree, policy, catalogues, now_ms)
    return Loaded(
        policy, tuple(_in_order(tree, tree.warnings)), {name: settings[name] for name in policy.providers}
    )


def provider_config(policy: Policy, name: str, settings: Any, fleet: str) -> ProviderConfig:
    """What a kind needs to build that provider. `settings` as in `Loaded.settings`."""
    provider = policy.providers[name]
    needs = {
        rtype.name: rtype.hardware
        for rtype in policy.runner_types.values()
        if rtype.selectors is None or any(entry.provider == name for entry in rtype.selectors)
    }
    cluster = provider.from_cluster
    return ProviderConfig(name, fleet, provider.regions, provider.endpoint, settings, needs, cluster)


def _section(tree: Tree, name: str) -> dict[str, Any]:
    section = tree.data.get(name)
    return section if isinstance(section, dict) else {}


def _names(tree: Tree) -> Names:
    kinds = frozenset(registry.kinds())
    return Names(
        providers=frozenset(_section(tree, "providers")),
        images=frozenset(_section(tree, "images")),
        kinds=kinds,
    )


def _check_values(tree: Tree, names: Names) -> None:
    """What the models cannot see: keys without a value, and whom an image is for."""
    for path, value in tree.walk():
        if value is None and not (path[0] == "providers" and path[2:3] == ("settings",) and len(path) > 3):
            tree.blame(path, EMPTY)
    known = names.providers | names.kinds | {"trial"}
    for name, image in _section(tree, "images").items():
        for key in image if isinstance(image, dict) else ():
            if key not in known:
                tree.blame(("images", name, key), f"{show(key)} is no provider and no kind{nearest(key, known)}")


def _check_floors(tree: Tree, document: Document) -> None:
    """A machine that has its configuration from the start cannot wait until somebody wants it."""
    for name, rtype in document.runner_types.items():
        if rtype.ready and (rtype.bootstrap or document.defaults.bootstrap) == "userdata":
            tree.blame(
                ("runner_types", name, "ready"), "a type with `bootstrap: userdata` can have no `ready` floor"
            )


def _settings(tree: Tree, name: str, raw: Any) -> Any:
    """The provider's settings by its kind's own model; None where they cannot be checked."""
    kind = raw.get("kind") if isinstance(raw, dict) else None
    value = raw.get("settings", {}) if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in registry.kinds() or not isinstance(value, dict):
        return None  # the document's own models say so
    try:
        return validate(registry.kind(kind).settings, tree, ("providers", name, "settings"), value)
    except Exception as error:  # whatever an installed package does when it is imported or asked
        tree.blame(("providers", name, "kind"), f"kind {show(kind)} is installed but cannot be used: {error}")
    return None


def _catalogue(policy: Policy, name: str, settings: Any) -> Sequence[Offer]:
    kind = registry.kind(policy.providers[name].kind)
    try:
        return kind.catalogue(provider_config(policy, name, settings, fleet=""))
    except Exception:  # a kind's fault costs a warning, never the policy
        return ()


def _in_order(tree: Tree, problems: list[Problem]) -> list[Problem]:
    """The main file first, then by place; each problem once."""
    return sorted(
        dict.fromkeys(problems), key=lambda each: (each.mark.file != tree.file, each.mark.file, each.mark.line)
    )
