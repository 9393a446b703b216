"""Registration targets: where a runner is registered, in a policy's words and in GitHub's paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_NAME = r"(?!\.{1,2}(?:/|$))[\w.-]+"
_OWNER = rf"(?P<owner>{_NAME})"
_FORMS = {
    "repo": re.compile(rf"{_OWNER}/(?P<repo>{_NAME})"),
    "org": re.compile(_OWNER),
    "group": re.compile(rf"{_OWNER}/(?P<group>.+)"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """`path`: REST path of the repository or organisation; `group`: a runner group's name, if one is meant."""

    path: str
    owner: str
    group: str = ""

    @property
    def runners(self) -> str:
        return f"{self.path}/actions/runners"


def parse_target(text: str) -> Target:
    """`repo:OWNER/REPO`, `org:OWNER` or `group:OWNER/NAME`. Raises ValueError."""
    kind, _, place = text.partition(":")
    found = _FORMS[kind].fullmatch(place) if kind in _FORMS else None
    if found is None:
        raise ValueError(f"{text!r} is no registration target: repo:OWNER/REPO, org:OWNER or group:OWNER/NAME")
    owner = found["owner"]
    if kind == "repo":
        return Target(f"/repos/{quote(owner)}/{quote(found['repo'])}", owner)
    return Target(f"/orgs/{quote(owner)}", owner, found["group"] if kind == "group" else "")
