"""Dataclasses that nobody changes once they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Frozen for mypy alone: keeping it at run time costs a call for each field, and most of the core's time is
    spent on making events."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
