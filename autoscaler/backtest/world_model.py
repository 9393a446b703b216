"""What is assumed about clouds and GitHub: how long things take, what is sold out, what is taken away.

Defaults are below, a provider of kind `sim` has its own settings, machines that the recording tells of are
measured, and a file has the last word, by patterns of offers:

    create: 2s                        # every offer: from the create call to its answer
    offers:
      "aws/*/spot": {boot: 60s, capacity: 200, interrupted: 0.05, refused: 0.02, price: 0.12 USD/h}
      "rocm-lab/*": {boot: 10s}

Patterns match `PROVIDER/ZONE/INSTANCE TYPE/PURCHASE`; of several the last one that states a key counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from autoscaler import units
from autoscaler.backtest.live import ENOUGH, Live, measured
from providers.sim import Settings as SimSettings
from scheduling.model import DurationMs, MicroUSD, Offer, Purchase
from scheduling.policy import matches

SPOT_PERCENT = 35
"""Of the on-demand price, where the price of spot is known to nobody."""


@dataclass(frozen=True, slots=True)
class Place:
    """One offer's world.

    `spread`: create and boot vary by so much either way, evenly. `refused`: share of launches that find no
    capacity. `interrupted`: share of machines that are taken within an hour.
    """

    create_ms: DurationMs = 2_000
    boot_ms: DurationMs = 45_000
    spread: float = 0.25
    capacity: int | None = None
    refused: float = 0.0
    interrupted: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """What takes the same time everywhere."""

    register_ms: DurationMs = 5_000  # from the JIT config at the machine to the runner online at GitHub
    github_ms: DurationMs = 300  # one call to GitHub
    stop_ms: DurationMs = 1_000  # from the terminate call to the machine's end
    lost_ms: DurationMs = 600_000  # until GitHub fails a job whose machine vanished


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Span = Annotated[DurationMs, BeforeValidator(units.duration, json_schema_input_type=str)]
Price = Annotated[MicroUSD, BeforeValidator(units.price, json_schema_input_type=str)]
Share = Annotated[float, Field(ge=0, le=1)]


class PlaceFile(_Model):
    create: Span | None = None
    boot: Span | None = None
    spread: Share | None = None
    capacity: int | None = Field(None, ge=0)
    refused: Share | None = None
    interrupted: Share | None = None
    price: Price | None = None


class WorldFile(_Model):
    """The file given with `--world`."""

    create: Span | None = None
    boot: Span | None = None
    register_: Span | None = Field(None, alias="register")
    spread: Share | None = None
    offers: dict[str, PlaceFile] = Field(default_factory=dict)


class WorldFileError(Exception):
    """The world model's file cannot be used; the text names file and key."""


@dataclass(frozen=True, slots=True)
class WorldModel:
    """Answers for every offer; `assumptions` says in words what it is built on."""

    pace: Pace
    file: WorldFile
    sims: Mapping[str, SimSettings]
    source: str = ""
    live: Live = field(default_factory=Live)

    def place(self, offer: Offer) -> Place:
        found = Place()
        if sim := self.sims.get(offer.provider):
            sold = sim.instance_types.get(offer.instance_type)
            found = Place(
                create_ms=sim.latency_ms,
                boot_ms=int(sim.boot_seconds * 1000),
                spread=0.5,
                capacity=sold.capacity if sold and sold.capacity is not None else sim.capacity,
                refused=sim.faults.no_capacity,
                interrupted=sim.faults.preempted if offer.purchase is Purchase.SPOT else 0.0,
            )
        found = self._measured(offer, found)
        for part in (self.file, *self._matching(offer)):
            stated = {f"{name}_ms": getattr(part, name) for name in ("create", "boot")}
            stated |= {
                name: getattr(part, name, None) for name in ("spread", "capacity", "refused", "interrupted")
            }
            found = replace(found, **{name: value for name, value in stated.items() if value is not None})
        return found

    def _measured(self, offer: Offer, usual: Place) -> Place:
        """As the recording's own machines were at this offer, where it tells of enough of them."""
        at = self.live.offers.get(offer.key)
        if at is None or at.created + at.refused < ENOUGH:
            return usual
        create_ms, boot_ms = measured(at.create), measured(at.boot)
        return replace(
            usual,
            create_ms=usual.create_ms if create_ms is None else create_ms,
            boot_ms=usual.boot_ms if boot_ms is None else boot_ms,
            refused=at.refused_share,
            interrupted=at.taken_an_hour,
        )

    def priced(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """The offers with the prices that the file states; unknown spot prices as a share of on demand."""
        found = tuple(offers)
        on_demand = {(o.zone, o.instance_type): o.list_price for o in found if o.purchase is Purchase.ON_DEMAND}
        return tuple(self._priced(offer, on_demand.get((offer.zone, offer.instance_type))) for offer in found)

    def _priced(self, offer: Offer, on_demand: MicroUSD | None) -> Offer:
        price = offer.list_price
        if price is None and offer.purchase is Purchase.SPOT and on_demand is not None:
            price = on_demand * SPOT_PERCENT // 100
        for part in self._matching(offer):
            price = price if part.price is None else part.price
        return offer if price == offer.list_price else replace(offer, list_price=price)

    def _matching(self, offer: Offer) -> list[PlaceFile]:
        return [part for pattern, part in self.file.offers.items() if matches((pattern,), offer.key)]

    def assumptions(self) -> list[str]:
        """In words, for the report."""
        usual, stated, pace = Place(), self.file, self.pace
        create = usual.create_ms if stated.create is None else stated.create
        boot = usual.boot_ms if stated.boot is None else stated.boot
        spread = usual.spread if stated.spread is None else stated.spread
        return [
            f"A create call takes {create / 1000:g} s, a boot {boot / 1000:g} s, each up to {spread:.0%} more or "
            f"less; a runner is online {pace.register_ms / 1000:g} s after it has its configuration."
            + (f" {self.source} states otherwise for some offers." if self.file.offers else "")
            + (" Providers of kind sim: as their settings say." if self.sims else "")
            + (
                f" Measured on {self.live.machines:,} recorded machines where enough ran."
                if self.live.machines
                else ""
            ),
            "Nothing is sold out and no spot machine is taken away"
            + (" but where the world model says so." if self.file.offers or self.sims else "."),
            f"Prices stay as they are today; an unknown spot price is {SPOT_PERCENT}% of on demand.",
        ]


def load(path: Path | None, settings: Mapping[str, Any], live: Live | None = None) -> WorldModel:
    """Defaults, settings of `sim` providers, what was measured, the file's word. Raises WorldFileError."""
    sims = {name: each for name, each in settings.items() if isinstance(each, SimSettings)}
    file = WorldFile.model_validate({}) if path is None else _read(path)
    pace, live = Pace(), live or Live()
    register_ms = measured(live.register)
    if register_ms is not None:
        pace = replace(pace, register_ms=register_ms)
    if file.register_ is not None:
        pace = replace(pace, register_ms=file.register_)
    return WorldModel(pace, file, sims, str(path or ""), live)


def _read(path: Path) -> WorldFile:
    try:
        return WorldFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except OSError as error:
        raise WorldFileError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise WorldFileError(f"{path}: is not YAML: {error}") from None
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise WorldFileError("\n".join(lines)) from None
