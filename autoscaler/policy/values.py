"""The kinds of values that a policy is made of: each checks itself, converts itself and knows its JSON Schema.

References to providers, images and kinds are checked against `Names`, the validation context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationInfo,
    WithJsonSchema,
)

from autoscaler import units
from autoscaler.units import Unit, show
from scheduling.model import DurationMs, MicroUSD, UnixMs
from scheduling.policy import Window

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Names:
    """What the document may refer to."""

    providers: frozenset[str]
    images: frozenset[str]
    kinds: frozenset[str]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """`; did you mean `x`?` where something is near, else nothing."""
    near = get_close_matches(str(name), sorted(known), 1, 0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


def nearest(name: object, known: Iterable[str]) -> str:
    """The same, or else what there is to choose from."""
    choices = sorted(known)
    known_ones = f"; known here: {', '.join(choices[:15])}" if choices else ""
    return did_you_mean(name, choices) or known_ones


# ---- quantities --------------------------------------------------------------------------------------------


def _unit(unit: Unit[Any]) -> Any:
    schema = {"type": "string", "pattern": f"^{unit.pattern}$", "examples": list(unit.examples)}
    return PlainValidator(unit), WithJsonSchema(schema)


Money = Annotated[MicroUSD, *_unit(units.money)]
Price = Annotated[MicroUSD, *_unit(units.price)]
Monthly = Annotated[MicroUSD, *_unit(units.monthly)]
MemoryMib = Annotated[int, *_unit(units.memory)]
DiskGib = Annotated[int, *_unit(units.disk)]
RatePerHour = Annotated[int, *_unit(units.rate)]
Instant = Annotated[UnixMs, *_unit(units.instant)]
Weekly = Annotated[Window, *_unit(units.window)]
Duration = Annotated[DurationMs, *_unit(units.duration)]


def _lasting(value: DurationMs) -> DurationMs:
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return value


Lasting = Annotated[Duration, AfterValidator(_lasting)]
Count = Annotated[int, Field(ge=0)]
Percent = Annotated[int, Field(ge=0, le=100)]


def _cap(value: object) -> object:
    if value != "from_cluster" and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"expected a whole number or `from_cluster`, got {show(value)}")
    return value


Cap = Annotated[
    int | Literal["from_cluster"],
    PlainValidator(_cap),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "from_cluster"}]}),
]


# ---- text and names ----------------------------------------------------------------------------------------

_NAME = "^(?!x-)[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_LABEL = r"^[^,\s](?:[^,\n\r]{0,254}[^,\s])?$"


def _shaped(pattern: str, what: str) -> Any:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {what}, got {show(value)}")
        return value

    return AfterValidator(check), Field(json_schema_extra={"pattern": pattern})


Text = Annotated[str, Field(min_length=1, max_length=1000)]
Name = Annotated[str, *_shaped(_NAME, "a name of up to 100 letters, digits, `.`, `_` and `-`")]
Label = Annotated[str, *_shaped(_LABEL, "a label of up to 256 characters without a comma")]


def _distinct(labels: list[str]) -> list[str]:
    folded = [label.casefold() for label in labels]
    if twice := next((label for label in labels if folded.count(label.casefold()) > 1), ""):
        raise ValueError(f"lists {show(twice)} twice (case does not count)")
    return labels


Labels = Annotated[list[Label], Field(min_length=1, max_length=100), AfterValidator(_distinct)]
Purchase = Literal["on_demand", "spot", "reserved"]

Some = Annotated[list[T], Field(min_length=1)]
"""A list that says something: where an empty one would mean the opposite of a missing one, it is refused."""


def _repository(value: str) -> str:
    if value != "*" and "/" not in value:
        raise ValueError(f"expected OWNER/REPOSITORY, got {show(value)}; write `{value}/*` for all of an owner")
    return value


Repository = Annotated[Text, AfterValidator(_repository), Field(json_schema_extra={"pattern": "/|^[*]$"})]
"""A pattern of repositories, `pytorch/*`; `*` alone is every repository."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _one_or_more(pattern: str) -> Any:
    text = {"type": "string", "pattern": pattern}
    return BeforeValidator(_listed), WithJsonSchema(
        {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    )


Repositories = Annotated[Some[Repository], *_one_or_more("/|^[*]$")]
Patterns = Annotated[Some[Text], *_one_or_more(".")]
"""One pattern or a list of them."""


def form(value: object) -> str:
    """Which of two ways of writing was chosen; in brackets, so that no error path takes it for a key."""
    return "(mapping)" if isinstance(value, dict) else "(plain)"


ImageReference = Annotated[
    Annotated[Text, Tag("(plain)")] | Annotated[dict[str, Text], Tag("(mapping)")], Discriminator(form)
]


# ---- references --------------------------------------------------------------------------------------------


def _known(names: str, what: str) -> AfterValidator:
    def check(name: str, info: ValidationInfo) -> str:
        known: frozenset[str] = getattr(info.context, names)
        if name not in known:
            raise ValueError(f"there is no {what} {show(name)}{nearest(name, known)}")
        return name

    return AfterValidator(check)


ProviderName = Annotated[str, _known("providers", "provider")]
ImageName = Annotated[str, _known("images", "image")]


def _kind(name: str, info: ValidationInfo) -> str:
    names: Names = info.context  # type: ignore[assignment]
    if name not in names.kinds:
        installed = ", ".join(sorted(names.kinds)) or "none"
        guess = did_you_mean(name, names.kinds)
        raise ValueError(f"there is no provider kind {show(name)}; installed: {installed}{guess}")
    return name


KindName = Annotated[str, AfterValidator(_kind)]
