"""Weekly windows in the operator's time zone, through both daylight-saving changes."""

from __future__ import annotations

from datetime import datetime

from scheduling.model import UnixMs
from scheduling.policy import Window


def is_open(window: Window | None, at_ms: UnixMs) -> bool:
    """Whether the wall clock of the window's zone lies inside it. No window: always."""
    if window is None:
        return True
    local = datetime.fromtimestamp(at_ms / 1000, window.zone)
    minute, today = local.hour * 60 + local.minute, local.weekday()
    if window.start_min < window.end_min:
        return today in window.days and window.start_min <= minute < window.end_min
    yesterday = (today - 1) % 7
    return (today in window.days and minute >= window.start_min) or (
        yesterday in window.days and minute < window.end_min
    )
