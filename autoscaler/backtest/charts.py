"""Charts as inline SVG: lines, stacked areas, signed bars. Colours are classes `s0` to `s7` of the page's style.

Numbers come in, text goes out; every label from outside is escaped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 10, 26
LETTER = 6.5
"""How wide a letter of a label is at the most, about."""
COLOURS = 8

Point = tuple[float, float]
Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """`dashed`: a forecast."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """`ticks` in data units; `words` writes one."""

    low: float
    high: float
    ticks: Sequence[float]
    words: Format


def lines(series: Sequence[Series], x: Axis, y: Axis, marks: Sequence[tuple[float, str]] = ()) -> str:
    """A line a series; `marks` are upright lines with a word."""
    plot = _Plot(x, y)
    body, notes = [plot.frame()], []
    for number, (at, words) in enumerate(marks):
        px = plot.x(at)
        body.append(f'<line class="mark" x1="{px:.1f}" x2="{px:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        anchor = "end" if px > WIDTH / 2 else "start"
        shift = -4 if anchor == "end" else 4
        place = f'x="{px + shift:.1f}" y="{TOP + 10 + 13 * (number % 4)}" text-anchor="{anchor}"'
        notes.append(f'<text class="note" {place}>{escape(words)}</text>')
    for each in series:
        path = plot.path(each.points)
        dashed = ' stroke-dasharray="5 4"' if each.dashed else ""
        body.append(
            f'<path class="line s{each.colour}" d="{path}"{dashed}><title>{escape(each.name)}</title></path>'
        )
    return _svg([*body, *notes])


def stacked(series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Areas on top of each other; all have the same x."""
    plot = _Plot(x, y)
    body, base = [plot.frame()], [0.0] * (len(series[0].points) if series else 0)
    for each in series:
        top = [low + value for low, (_, value) in zip(base, each.points, strict=True)]
        xs = [at for at, _ in each.points]
        outline = [*zip(xs, top, strict=True), *reversed(list(zip(xs, base, strict=True)))]
        name = escape(each.name)
        body.append(f'<path class="area s{each.colour}" d="{plot.path(outline)}Z"><title>{name}</title></path>')
        base = top
    return _svg(body)


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Signed bars around a middle line: (words, value, the value in words). Table rows, so that text wraps."""
    most = max((abs(value) for _, value, _ in rows), default=0) or 1
    found = []
    for words, value, shown in rows:
        share = 50 * abs(value) / most
        left = 50 - share if value < 0 else 50
        kind = "less" if value < 0 else "more"
        bar = f'<i class="{kind}" style="left:{left:.2f}%;width:{share:.2f}%"></i>' if value else ""
        found.append(
            f'<tr><td>{escape(words)}</td><td class="bar"><span>{bar}</span></td>'
            f'<td class="n">{escape(shown)}</td></tr>'
        )
    return f'<table class="bars">{"".join(found)}</table>'


def legend(series: Sequence[Series]) -> str:
    names = dict.fromkeys((each.colour, each.name) for each in series if not each.dashed)
    return "".join(f'<span class="key"><i class="s{colour}"></i>{escape(name)}</span>' for colour, name in names)


def steps(high: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / count
    size = 10.0 ** (len(str(int(raw))) - 1) if raw >= 1 else 10.0 ** -_zeros(raw)
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    return [step * n for n in range(int(-(-high // step)) + 1)]


def _zeros(small: float) -> int:
    places = 0
    while small < 1 and places < 12:
        small, places = small * 10, places + 1
    return places


class _Plot:
    def __init__(self, x: Axis, y: Axis) -> None:
        self._x, self._y = x, y

    def x(self, value: float) -> float:
        span = (self._x.high - self._x.low) or 1
        return LEFT + (value - self._x.low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = (self._y.high - self._y.low) or 1
        return HEIGHT - BOTTOM - (value - self._y.low) / span * (HEIGHT - TOP - BOTTOM)

    def path(self, points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points) if points else ""

    def frame(self) -> str:
        found = []
        for value in self._y.ticks:
            at = self.y(value)
            found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            words = escape(self._y.words(value))
            found.append(f'<text x="{LEFT - 7}" y="{at + 3.5:.1f}" text-anchor="end">{words}</text>')
        right = 0.0
        for value in self._x.ticks:
            at, words = self.x(value), self._x.words(value)
            half = len(words) * LETTER / 2
            if at - half < right:
                continue  # its label would stand on the one before
            right = at + half + LETTER
            found.append(f'<text x="{at:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(words)}</text>')
        return "".join(found)


def _svg(body: Sequence[str]) -> str:
    return f'<div class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(body)}</svg></div>'
