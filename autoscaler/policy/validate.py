"""Validates plain values against a pydantic model and says what is wrong in the operator's words."""

from __future__ import annotations

import re
import types
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from autoscaler.policy.tree import Path, Tree
from autoscaler.policy.values import did_you_mean, nearest
from autoscaler.units import either, show

M = TypeVar("M", bound=BaseModel)

EMPTY = "is empty: write a value, or remove the key"


def validate(model: type[M], tree: Tree, base: Path, value: object, context: object = None) -> M | None:
    """The model's instance for `value`, which stands at `base`; None after adding every problem to the tree."""
    try:
        return model.model_validate(value, context=context)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            path = _path(value, details)
            tree.blame((*base, *path), _text(details, model, path))
    return None


def _path(value: Any, details: ErrorDetails) -> Path:
    """pydantic's location without what is no key or index of the file: names of union members and the like."""
    path: list[str | int] = []
    for step in details["loc"]:
        indices = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
        if step in indices:
            value = value[step]
        elif details["type"] != "missing" or step != details["loc"][-1]:
            continue
        path.append(step)
    return tuple(path)


def _text(details: ErrorDetails, model: type[BaseModel], path: Path) -> str:
    kind, found, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return "is required" + _meaning(model, path)
    if kind == "extra_forbidden":
        known = _keys(_model_at(model, path[:-1]))
        return f"unknown key{nearest(path[-1] if path else '', known)}"
    if found is None:
        return EMPTY
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", details["msg"]))
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", context["expected"]) or [str(context["expected"])]
        mend = "; remove the quotes" if found in choices else did_you_mean(found, choices)
        return f"expected {either(choices)}, got {show(found)}{mend}"
    if kind == "too_short" and isinstance(found, list | dict):
        return "must not be empty: write at least one, or remove the key"
    return f"expected {_expected(kind, context, details['msg'])}, got {show(found)}{_mend(kind, found)}"


def _expected(kind: str, context: dict[str, Any], message: str) -> str:
    words = {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "string": "text",
        "list": "a list such as [a, b]",
        "tuple": "a list such as [a, b]",
        "dict": "a mapping such as {key: value}",
        "mapping": "a mapping such as {key: value}",
        "model": "a mapping such as {key: value}",
    }
    bounds = {
        "greater_than_equal": "{ge} or more",
        "greater_than": "more than {gt}",
        "less_than_equal": "{le} or less",
        "less_than": "less than {lt}",
        "string_too_short": "text of {min_length} or more characters",
        "string_too_long": "text of up to {max_length} characters",
        "string_pattern_mismatch": "text that matches {pattern}",
        "too_long": "at most {max_length} entries",
    }
    if kind in bounds:
        whole = {
            key: int(bound) if isinstance(bound, float) and bound.is_integer() else bound
            for key, bound in context.items()
        }
        return bounds[kind].format(**whole)
    first, _, rest = kind.partition("_")
    if first in words and rest in ("type", "parsing", "from_float", "attributes_type"):
        return words[first]
    return message.removeprefix("Input should be ").removeprefix("Value error, ")


def _mend(kind: str, found: object) -> str:
    if kind.startswith("string_type") and isinstance(found, bool | int | float):
        return "; put it in quotes"
    if kind.startswith(("int", "float")) and isinstance(found, str) and re.fullmatch(r"[0-9.]+", found):
        return "; remove the quotes"
    if kind.startswith("bool") and isinstance(found, str) and found.lower() in ("yes", "no", "on", "off"):
        return f"; write `{'true' if found.lower() in ('yes', 'on') else 'false'}`"
    if kind.startswith("list") and isinstance(found, str):
        return f"; write [{found[:40]}]"
    return ""


def _meaning(model: type[BaseModel], path: Path) -> str:
    parent = _model_at(model, path[:-1])
    for name, field in parent.model_fields.items() if parent else ():
        if path[-1] in (name, field.alias) and field.description:
            return f": {field.description[:1].lower()}{field.description[1:]}"
    return ""


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model of the mapping at that path of a document, by following annotations; None where there is none."""
    here: Any = model
    for step in path:
        for part in _members(here):
            if isinstance(part, type) and issubclass(part, BaseModel):
                named = [field for name, field in part.model_fields.items() if step in (name, field.alias)]
                if named:
                    here = named[0].annotation
                    break
            elif get_origin(part) in (list, tuple, dict):
                here = [arg for arg in get_args(part) if arg is not ...][-1]
                break
        else:
            return None
    return next((part for part in _members(here) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _members(annotation: Any) -> list[Any]:
    """What an annotation may stand for, without `Annotated` and unions around it."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for arg in get_args(annotation) for member in _members(arg)]
    return [annotation]
