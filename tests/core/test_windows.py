"""Windows and ready floors through both daylight-saving changes, in the operator's own zone."""

from __future__ import annotations

import pytest

from autoscaler import units
from scheduling.lifecycle import RunnerState
from scheduling.policy import ProviderPolicy, ReadyFloor
from scheduling.windows import is_open
from tests.core.fleet import HOUR, MINUTE, Fleet, credit, policy, runner_type


def opened(window: str, start: str, hours: int) -> list[str]:
    """The UTC minutes at which it opens (`+`) and closes (`-`), looked at each minute from `start` on."""
    parsed, begin, changes = units.window(window), units.instant(start), []
    before = is_open(parsed, begin - MINUTE)
    for at_ms in range(begin, begin + hours * HOUR, MINUTE):
        now = is_open(parsed, at_ms)
        if now is not before:
            minute = (at_ms - begin) // MINUTE
            changes.append(f"{'+' if now else '-'}{minute // 60:02}:{minute % 60:02}")
        before = now
    return changes


@pytest.mark.parametrize(
    ("window", "day", "changes"),
    [
        # Berlin: on 29 March 2026 02:00 becomes 03:00, on 25 October 03:00 becomes 02:00, both at 01:00 UTC.
        ("Sun 08:00-20:00 Europe/Berlin", "2026-03-29", ["+06:00", "-18:00"]),
        ("Sun 08:00-20:00 Europe/Berlin", "2026-10-25", ["+07:00", "-19:00"]),
        ("Sun 01:00-04:00 Europe/Berlin", "2026-03-29", ["+00:00", "-02:00"]),  # two hours long: one is skipped
        ("Sun 01:00-04:00 Europe/Berlin", "2026-10-24T23:00Z", ["+00:00", "-04:00"]),  # four: one comes twice
        ("Sun 02:15-02:45 Europe/Berlin", "2026-03-29", []),  # those minutes do not exist on that day
        ("Sun 02:15-02:45 Europe/Berlin", "2026-10-25", ["+00:15", "-00:45", "+01:15", "-01:45"]),
        ("Sat 19:00-08:00 Europe/Berlin", "2026-03-28T12:00Z", ["+06:00", "-18:00"]),  # a night of 12 hours
        ("Sat 19:00-08:00 Europe/Berlin", "2026-10-24T12:00Z", ["+05:00", "-19:00"]),  # a night of 14 hours
        # Los Angeles, 8 March 2026 at 10:00 UTC and 1 November 2026 at 09:00 UTC.
        ("Mon-Fri 08:00-20:00 America/Los_Angeles", "2026-03-06", ["-04:00", "+16:00"]),
        ("Mon-Fri 08:00-20:00 America/Los_Angeles", "2026-03-09", ["+15:00"]),
        ("Mon-Fri 08:00-20:00 America/Los_Angeles", "2026-11-02", ["+16:00"]),
        ("Sun 00:00-24:00 America/Los_Angeles", "2026-11-01", ["+07:00"]),
    ],
)
def test_a_window_follows_the_wall_clock_of_its_zone(window: str, day: str, changes: list[str]) -> None:
    assert opened(window, day, 24) == changes


@pytest.mark.parametrize(("day", "opens"), [("2026-03-29", 6), ("2026-10-25", 7)])
def test_a_ready_floor_is_kept_from_the_local_hour_on(day: str, opens: int) -> None:
    floor = ReadyFloor(2, units.window("Sun 08:00-20:00 Europe/Berlin"))
    fleet = Fleet(policy(runner_type(ready=(floor,)), funds=(credit("grant", 1_000, days=3000),)))
    midnight = units.instant(day)
    fleet.now = midnight + opens * HOUR - MINUTE
    fleet.step()
    assert not fleet.planned()
    fleet.step(MINUTE)
    assert len(fleet.planned()) == 2


@pytest.mark.parametrize(("day", "opens"), [("2026-03-29", 17), ("2026-10-25", 18)])
def test_a_provider_is_used_from_the_local_hour_on(day: str, opens: int) -> None:
    lab = ProviderPolicy("east", "sim", available=units.window("Sun 19:00-08:00 Europe/Berlin"))
    fleet = Fleet(policy(providers={"east": lab}, funds=(credit("grant", 1_000, days=3000),)))
    fleet.now = units.instant(day) + opens * HOUR - MINUTE
    fleet.job(1)
    assert [verdict.refusal for verdict in next(iter(fleet.step().refusals.values()))] == [
        "outside Sun 19:00-08:00 Europe/Berlin"
    ]
    fleet.step(MINUTE)
    assert [runner.state for runner in fleet.runners()] == [RunnerState.STARTING]
