"""Tags in labels. A label takes 63 characters of a-z, 0-9, `-` and `_`; our tags are longer and richer.

What does not fit is written as `_` and two hexadecimal digits a byte; a long value goes on in KEY_2, KEY_3, ...
Everything is in labels, so one filtered list tells what adoption needs.
Source: Compute Engine documentation, "Label requirements" (64 labels a resource).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

OURS = "autoscaler-"
LONGEST = 63
_PLAIN = re.compile(r"[a-z0-9-]")
_ESCAPED = re.compile(rb"_([0-9a-f]{2})")


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Labels that carry these tags, whose keys begin with `autoscaler-`."""
    labels = {}
    for key, value in tags.items():
        text = escape(value)
        labels[key] = text[:LONGEST]
        for part in range(1, -(-len(text) // LONGEST)):
            labels[f"{key}_{part + 1}"] = text[part * LONGEST : (part + 1) * LONGEST]
    return labels


def tags_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The tags back from labels; labels that are not ours stay as they are."""
    tags = {key: value for key, value in labels.items() if not key.startswith(OURS)}
    for key, value in labels.items():
        if key.startswith(OURS) and "_" not in key:
            text, part = value, 2
            while more := labels.get(f"{key}_{part}"):
                text, part = text + more, part + 1
            tags[key] = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()).decode(
                errors="replace"
            )
    return tags


def escape(value: str) -> str:
    """One tag's value as label text, as it also stands in a filter."""
    return "".join(
        character if _PLAIN.fullmatch(character) else "".join(f"_{byte:02x}" for byte in character.encode("utf-8"))
        for character in value
    )
