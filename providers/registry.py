"""Finds kinds of providers by the entry-point group `autoscaler.providers`; other packages join the same way."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from providers.base import Kind

GROUP = "autoscaler.providers"


@cache
def kinds() -> dict[str, str]:
    """Names of all installed kinds and where each one lives."""
    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


@cache
def kind(name: str) -> Kind:
    """The kind of that name. KeyError when no installed package provides it."""
    for entry in entry_points(group=GROUP, name=name):
        found: Kind = entry.load()
        return found
    raise KeyError(f"no provider kind {name!r}; installed: {', '.join(sorted(kinds()))}")
