"""The policy file as JSON Schema (draft 2020-12), for editors: completion, hover text, red lines while typing."""

from __future__ import annotations

from typing import Any

from autoscaler.policy.model import Document
from providers import registry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
IGNORED = {"^x-": True}
"""Keys that a policy may carry anywhere for its own use, such as anchors."""
NAMED = ("properties", "patternProperties", "$defs")
"""Where a schema holds schemas by the operator's names: no keywords there."""


def policy_schema() -> dict[str, Any]:
    """One schema for the policy and for the files it includes; settings of every kind that can be loaded.

    Only `version` is required, because providers and runner types may stand in other files.
    """
    schema: dict[str, Any] = _plain(Document.model_json_schema(by_alias=True))
    schema = {"$schema": DIALECT, "title": "autoscaler policy"} | schema
    schema["required"] = ["version"]
    provider = schema["$defs"]["Provider"]
    kinds = sorted(registry.kinds())
    provider["properties"]["kind"]["enum"] = kinds
    provider["allOf"] = [rule for kind in kinds if (rule := _settings_rule(kind, schema["$defs"]))]
    return schema


def _settings_rule(kind: str, definitions: dict[str, Any]) -> dict[str, Any] | None:
    try:
        model = registry.kind(kind).settings
    except Exception:  # a kind that cannot be loaded has no say; `policy check` names it
        return None
    template = f"#/$defs/{kind}.{{model}}"
    schema = _plain(model.model_json_schema(by_alias=True, ref_template=template))
    for name, definition in schema.pop("$defs", {}).items():
        definitions[f"{kind}.{name}"] = definition
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"properties": {"settings": schema}},
    }


def _plain(part: Any) -> Any:
    """The schema `part` without `null` (a key without a value is an error), without defaults that are not written
    as an operator would and titles that repeat the key; with room for `x-` keys in every mapping."""
    if isinstance(part, list):
        return [_plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    plain: dict[str, Any] = {
        key: _by_name(value) if key in NAMED else _plain(value) for key, value in part.items()
    }
    plain.pop("title", None)
    if "pattern" in plain or isinstance(plain.get("default"), dict | type(None)):
        plain.pop("default", None)
    choices = [each for each in plain.pop("anyOf", ()) if each != {"type": "null"}]
    plain |= {"anyOf": choices} if len(choices) > 1 else choices[0] if choices else {}
    if plain.get("type") == "object":
        if "patternProperties" in plain:  # names of a certain shape and no others
            plain.setdefault("additionalProperties", False)
        plain["patternProperties"] = plain.get("patternProperties", {}) | IGNORED
    return plain


def _by_name(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(part) for name, part in parts.items()}
