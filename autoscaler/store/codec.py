"""Records and events to JSON and back.

An event is `["JobReported", {...}]`, a record is the bare object (its kind is the Redis hash that it lies in).
Fields at their default are left out and unknown fields are ignored, so that an older and a newer version can read
each other's records as long as a field keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args

import msgspec

from scheduling.lifecycle import RunnerState
from scheduling.messages import Event
from scheduling.model import (
    Bid,
    Cooldown,
    Demand,
    Estimate,
    FundAccount,
    Job,
    Pool,
    Rerun,
    Runner,
    Spend,
    Totals,
    UnixMs,
    Usage,
)

RECORD_TYPES: dict[str, type[Any]] = {
    "job": Job,
    "tombstone": int,
    "runner": Runner,
    "pool": Pool,
    "cooldown": Cooldown,
    "fund": FundAccount,
    "switch": str,
    "totals": Totals,
    "usage": Usage,
    "spend": Spend,
    "estimate": Estimate,
    "demand": Demand,
    "bid": Bid,
    "rerun": Rerun,
}
"""Type of each record kind. A tombstone is the Unix ms at which its job ended, a switch is who set it."""


class Undecodable(Exception):
    """Bytes that are no event or record of ours. `raw` is what was found, `why` says where it breaks."""

    def __init__(self, raw: bytes, why: str) -> None:
        super().__init__(f"{why}: {raw[:200]!r}")
        self.raw = raw
        self.why = why


def encode_event(event: Event) -> bytes:
    """One compact JSON array of the event's class name and its stated fields."""
    return _encode((type(event).__name__, _stated(event)))


def decode_event(raw: bytes) -> Event:
    """The event again; raises `Undecodable` for anything else."""
    try:
        name, body = _TAGGED.decode(raw)
        decoder = _EVENT_DECODERS.get(name)
        if decoder is None:
            raise Undecodable(raw, f"unknown event {name[:100]!r}")
        event: Event = decoder.decode(body)
        return event
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Undecodable(raw, str(error)) from error


def encode_record(record: object) -> bytes:
    """A dataclass of `RECORD_TYPES`, an int or a str."""
    return _encode(_stated(record) if is_dataclass(record) else record)


def decode_record(kind: str, raw: bytes) -> Any:
    """The record of that kind; raises `Undecodable` where the bytes are not one, KeyError for an unknown kind."""
    decoder = _RECORD_DECODERS[kind]
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Undecodable(raw, f"not a {kind} record: {error}") from error


def runner_state(raw: bytes) -> RunnerState:
    """Only the state of a runner record, at a fraction of the cost of all of it."""
    try:
        return _RUNNER_STATE.decode(raw).state
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Undecodable(raw, f"not a runner record: {error}") from error


def queued_ms(raw: bytes) -> UnixMs:
    """Only since when the runner's job waits."""
    try:
        return _RUNNER_STATE.decode(raw).queued_ms
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Undecodable(raw, f"not a runner record: {error}") from error


def encode_json(document: object) -> bytes:
    """JSON of plain values and our dataclasses, for the journal."""
    return _encode(document)


def decode_json(raw: bytes) -> Any:
    """Plain values; raises `Undecodable`."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Undecodable(raw, str(error)) from error


@dataclass(frozen=True, slots=True)
class _RunnerState:
    state: RunnerState
    queued_ms: UnixMs = 0


_encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
_TAGGED = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_RUNNER_STATE = msgspec.json.Decoder(_RunnerState)
_EVENT_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    event.__name__: msgspec.json.Decoder(event) for event in get_args(Event)
}
_RECORD_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(record) for kind, record in RECORD_TYPES.items()
}


def _stated(record: Any) -> dict[str, Any]:
    """The fields that differ from their default. Nested dataclasses stay whole."""
    return {
        name: value
        for name, default in _defaults(record.__class__)
        if (value := getattr(record, name)) != default or default is MISSING
    }


@cache
def _defaults(record: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (f.name, f.default_factory() if f.default_factory is not MISSING else f.default) for f in fields(record)
    )
