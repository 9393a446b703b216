"""How quantities are written in a policy, and what they become: integers of one fixed unit.

Every `Unit` here is called with a value from a YAML file and returns the converted one, or raises ValueError whose
text says what was expected, what was found and what to write instead. `pattern` is the same rule as a regular
expression that JSON Schema (ECMA 262) understands too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo, available_timezones

from scheduling.model import DurationMs, MicroUSD, UnixMs
from scheduling.policy import Window

T = TypeVar("T")

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY_MINUTES = 24 * 60
LONGEST_MS: DurationMs = 366 * 24 * 3_600_000
MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
SECOND_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def show(value: object) -> str:
    """A value as a reader of an error recognises it: short, on one line, nothing unprintable."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return f"`{text[:57]}...`" if len(text) > 60 else f"`{text}`"


def either(choices: Iterable[str]) -> str:
    """`a`, `b` or `c`."""
    *first, last = (f"`{choice}`" for choice in choices)
    return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """One way of writing a quantity. `suffixes` complete a bare number: the first thing to suggest."""

    what: str
    examples: tuple[str, ...]
    pattern: str
    convert: Callable[[re.Match[str]], T]
    suffixes: tuple[str, ...] = ()

    def __call__(self, value: object) -> T:
        """The value in the fixed unit. Raises ValueError."""
        found = re.fullmatch(self.pattern, value) if isinstance(value, str) else None
        if found is None:
            raise ValueError(
                f"expected {self.what} such as {either(self.examples)}, got {show(value)}{self._mend(value)}"
            )
        try:
            return self.convert(found)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"expected {self.what}, got {show(value)}: {error}") from None

    def _mend(self, value: object) -> str:
        """What to write instead, where only the unit is missing or misspelt (same first letter)."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return ""
        found = re.fullmatch(
            r"\$?([0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]+(?:\.[0-9]+)?)\s*(?:([A-Za-z]).*)?", str(value)
        )
        if found is None:
            return ""
        number, letter = re.sub("[,_]", "", found[1]), (found[2] or "").lower()
        written = [number + suffix for suffix in self.suffixes if letter in suffix.lower().lstrip(" /")[:1]]
        fitting = [text for text in written if re.fullmatch(self.pattern, text)]
        return f"; write {either(fitting)}" if fitting else ""


# ---- money -------------------------------------------------------------------------------------------------

_AMOUNT = r"([0-9]{1,12})(?:\.([0-9]{1,6}))?"


def _micro(found: re.Match[str]) -> MicroUSD:
    return int(found[1]) * 1_000_000 + int((found[2] or "").ljust(6, "0"))


money = Unit("an amount of money", ("2.00 USD",), _AMOUNT + r" ?USD", _micro, (" USD",))
"""-> micro-dollars."""

price = Unit("a price an hour", ("0.50 USD/h",), _AMOUNT + r" ?USD/h", _micro, (" USD/h",))
"""-> micro-dollars an hour."""

monthly = Unit("an amount a month", ("20000 USD/month",), _AMOUNT + r" ?USD/month", _micro, (" USD/month",))
"""-> micro-dollars a calendar month (UTC)."""


# ---- sizes, durations, rates -------------------------------------------------------------------------------


def _mib(found: re.Match[str]) -> int:
    mib, rest = divmod(int(found[1] + (found[2] or "").ljust(3, "0")) * MIB[found[3]], 1000)
    if rest:
        raise ValueError("write a whole number of MiB")
    return mib


def _gib(found: re.Match[str]) -> int:
    gib, rest = divmod(_mib(found), MIB["GiB"])
    if rest:
        raise ValueError("write a whole number of GiB")
    return gib


_SIZE = r"([0-9]{1,9})(?:\.([0-9]{1,3}))? ?(MiB|GiB|TiB)"

memory = Unit("a size", ("16 GiB",), _SIZE, _mib, (" GiB",))
"""-> MiB."""

disk = Unit("a size", ("150 GiB",), _SIZE, _gib, (" GiB",))
"""-> GiB."""


def _duration(found: re.Match[str]) -> DurationMs:
    total = sum(int(count or 0) * ms for count, ms in zip(found.groups(), SECOND_MS.values(), strict=True))
    if total > LONGEST_MS:
        raise ValueError("more than 366 days")
    return total


duration = Unit(
    "a duration",
    ("8m",),
    "(?=[0-9])" + "".join(f"(?:([0-9]{{1,9}}){unit})?" for unit in SECOND_MS),
    _duration,
    ("s", "m", "h"),
)
"""-> milliseconds. Parts may be joined from large to small: `1h30m`."""


def _rate(found: re.Match[str]) -> int:
    if not (count := int(found[1])):
        raise ValueError("write 1 or more")
    return count * {"s": 3600, "min": 60, "h": 1}[found[2]]


rate = Unit("a rate", ("2/s",), r"([0-9]{1,6})/(s|min|h)", _rate, ("/s", "/min", "/h"))
"""-> count an hour."""


# ---- points and windows of time ----------------------------------------------------------------------------


def _instant(found: re.Match[str]) -> UnixMs:
    moment = datetime.fromisoformat(found[0])
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1000


instant = Unit(
    "a date (midnight UTC) or a time with its zone",
    ("2026-12-31", "2026-12-31T18:00:00Z"),
    r"2[0-9]{3}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:Z|[-+][0-9]{2}:[0-9]{2}))?",
    _instant,
)
"""-> Unix milliseconds."""


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        day, end = DAYS.index(first), DAYS.index(last or first)
        while day != end:
            days.add(day)
            day = (day + 1) % 7
        days.add(end)
    return frozenset(days)


def _minute(hours: str, minutes: str) -> int:
    minute = int(hours) * 60 + int(minutes)
    if minute > DAY_MINUTES or int(minutes) > 59:
        raise ValueError(f"there is no {hours}:{minutes}")
    return minute


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = get_close_matches(name, available_timezones(), 1, 0.5)
        raise ValueError("unknown time zone" + (f"; did you mean `{near[0]}`?" if near else "")) from None


def _window(found: re.Match[str]) -> Window:
    start, end = _minute(found[2], found[3]), _minute(found[4], found[5])
    if start == DAY_MINUTES:
        raise ValueError("write 00:00 of the next day instead of a start at 24:00")
    return Window(_days(found[1]), start, end % DAY_MINUTES, _zone(found[6]), found[0])


_DAY = f"(?:{'|'.join(DAYS)})"
_SPAN = f"{_DAY}(?:-{_DAY})?"

window = Unit(
    "a weekly window (days, hours, time zone)",
    ("Mon-Fri 19:00-08:00 Europe/Berlin",),
    rf"({_SPAN}(?:,{_SPAN})*) ([0-9]{{2}}):([0-9]{{2}})-([0-9]{{2}}):([0-9]{{2}}) ([A-Za-z0-9_+/-]+)",
    _window,
)
"""-> `Window`. Past midnight it belongs to its first day; `24:00` is midnight at the day's end."""
