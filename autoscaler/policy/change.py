"""What a reloaded policy changes, in words, told at the moment when it begins to rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from scheduling import placement
from scheduling.matching import Taste
from scheduling.model import UnixMs
from scheduling.placement import Wish
from scheduling.policy import Policy
from scheduling.world import World

NAMED = 5
"""Names that a line tells before it only counts."""


def changes(world: World, old: Policy, new: Policy, now_ms: UnixMs) -> list[str]:
    """One line a kind of change; empty when jobs, money and machines are treated as before.

    Orders of providers are compared as they are now, with the offers, cooldowns aside, and funds of this moment.
    """
    lines: list[str] = []
    for title, before, after in (
        ("runner type", old.runner_types, new.runner_types),
        ("provider", old.providers, new.providers),
        ("fund", old.funds, new.funds),
    ):
        lines += _keys(title, before, after)
    common = old.runner_types.keys() & new.runner_types.keys()
    moved = [
        name for name in sorted(common) if _order(world, old, name, now_ms) != _order(world, new, name, now_ms)
    ]
    if moved:
        lines.append(f"{_count(len(moved), 'type')} {'change' if len(moved) > 1 else 'changes'} provider order: "
                     f"{_names(moved)}")  # fmt: skip
    opened = [name for name in sorted(common) if old.runner_types[name].access != new.runner_types[name].access]
    if opened:
        lines.append(f"access changes for {_names(opened)}")
    if old.rules != new.rules:
        lines.append("rules change")
    return lines


def _keys(title: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    for verb, names in (
        ("new", sorted(after.keys() - before.keys())),
        ("removed, drained now" if title != "fund" else "removed", sorted(before.keys() - after.keys())),
        ("changed", sorted(name for name in before.keys() & after.keys() if before[name] != after[name])),
    ):
        if names:
            yield f"{_count(len(names), title)} {verb}: {_names(names)}"


def _order(world: World, policy: Policy, name: str, now_ms: UnixMs) -> tuple[str, ...]:
    """Providers of the type in the order in which they would be asked."""
    rtype = policy.runner_types[name]
    repository = rtype.access.repositories[0].replace("*", "x") if rtype.access.repositories else ""
    probe = replace(policy, hash=f"{policy.hash}?")  # a rank of its own: the live ones stay as they are
    ranking = placement.rank(world, probe, Wish(rtype, repository, None, Taste()), now_ms)
    return tuple(dict.fromkeys(candidate.offer.provider for candidate in ranking.candidates))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
