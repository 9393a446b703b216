from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler import units
from scheduling.windows import is_open

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        (units.money, "0.50 USD", 500_000),
        (units.money, "1000000 USD", 10**12),
        (units.money, "0.000001USD", 1),
        (units.price, "0.034 USD/h", 34_000),
        (units.price, "0 USD/h", 0),
        (units.monthly, "20000 USD/month", 20_000_000_000),
        (units.memory, "16 GiB", 16_384),
        (units.memory, "0.5 GiB", 512),
        (units.memory, "512 MiB", 512),
        (units.disk, "150 GiB", 150),
        (units.disk, "1.5 TiB", 1536),
        (units.duration, "8m", 480_000),
        (units.duration, "1h30m", 5_400_000),
        (units.duration, "7d", 7 * 24 * HOUR),
        (units.duration, "0s", 0),
        (units.rate, "2/s", 7200),
        (units.rate, "30/min", 1800),
        (units.rate, "500/h", 500),
        (units.instant, "2026-01-01", 1_767_225_600_000),
        (units.instant, "2026-01-01T01:30:00+01:30", 1_767_225_600_000),
        (units.instant, "2026-01-01 00:00Z", 1_767_225_600_000),
    ],
)
def test_quantities_become_integers(unit: units.Unit[Any], text: str, value: int) -> None:
    assert unit(text) == value


@pytest.mark.parametrize(
    ("unit", "value", "message"),
    [
        (units.money, 20, "expected an amount of money such as `2.00 USD`, got `20`; write `20 USD`"),
        (units.money, "$20", "got `$20`; write `20 USD`"),
        (units.money, "1,000 USD", "got `1,000 USD`; write `1000 USD`"),
        (units.money, "20 EUR", "such as `2.00 USD`, got `20 EUR`"),
        (units.money, "-5 USD", "got `-5 USD`"),
        (units.money, "0.0000001 USD", "got `0.0000001 USD`"),
        (
            units.price,
            "0.50 USD",
            "expected a price an hour such as `0.50 USD/h`, got `0.50 USD`; write `0.50 USD/h`",
        ),
        (units.monthly, "5 USD", "write `5 USD/month`"),
        (units.memory, "16 GB", "expected a size such as `16 GiB`, got `16 GB`; write `16 GiB`"),
        (units.disk, "100 MiB", "write a whole number of GiB"),
        (units.duration, 8, "got `8`; write `8s`, `8m` or `8h`"),
        (units.duration, "8 minutes", "write `8m`"),
        (units.duration, "30m1h", "got `30m1h`"),
        (units.duration, "999d", "more than 366 days"),
        (units.duration, True, "expected a duration such as `8m`, got `true`"),
        (units.duration, None, "got nothing"),
        (units.rate, 2, "write `2/s`, `2/min` or `2/h`"),
        (units.rate, "0/s", "write 1 or more"),
        (units.instant, "2026-13-01", "month must be in 1..12"),
        (
            units.instant,
            "2026-01-01T10:00:00",
            "a time with its zone such as `2026-12-31` or `2026-12-31T18:00:00Z`",
        ),
        (units.window, "Mon-Fri 19:00-08:00", "such as `Mon-Fri 19:00-08:00 Europe/Berlin`"),
        (units.window, "Mon 19:00-08:00 Europe/Berln", "unknown time zone; did you mean `Europe/Berlin`?"),
        (units.window, "Mon 25:00-08:00 UTC", "there is no 25:00"),
        (units.window, "Mon 08:61-09:00 UTC", "there is no 08:61"),
        (units.window, "Mon 24:00-09:00 UTC", "start at 24:00"),
    ],
)
def test_what_to_write_instead(unit: units.Unit[Any], value: object, message: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        unit(value)
    assert message in str(caught.value)


def test_windows() -> None:
    night = units.window("Mon-Fri 19:00-08:00 Europe/Berlin")
    assert (sorted(night.days), night.start_min, night.end_min) == ([0, 1, 2, 3, 4], 19 * 60, 8 * 60)
    assert str(night.zone) == "Europe/Berlin"
    assert night.text == "Mon-Fri 19:00-08:00 Europe/Berlin"
    assert sorted(units.window("Sat-Mon,Wed 08:00-20:00 UTC").days) == [0, 2, 5, 6]


def test_a_window_until_midnight_ends_there() -> None:
    sunday = units.window("Sun 00:00-24:00 UTC")
    midnight = units.instant("2026-11-29")  # a Sunday
    assert not is_open(sunday, midnight - 1)
    assert is_open(sunday, midnight)
    assert is_open(sunday, midnight + 24 * HOUR - 1)
    assert not is_open(sunday, midnight + 24 * HOUR)


@given(st.integers(0, 10**17))
def test_money_is_exact(micro: int) -> None:
    assert units.money(f"{micro // 10**6}.{micro % 10**6:06} USD") == micro


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none(), st.just({}), st.just([])))
def test_nothing_but_value_errors(value: object) -> None:
    for unit in (units.money, units.price, units.memory, units.duration, units.rate, units.instant, units.window):
        with suppress(ValueError):
            unit(value)
