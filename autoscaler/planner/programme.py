"""The planner's linear programme: which fund pays which machine hours, so that the least cash is spent.

Variables are machine hours of (lane, segment, level, offer, fund). A *lane* is demand that the same funds may pay
for: a runner type, for one group of repositories. A *segment* lies between two dates at which some fund opens or
closes or a month ends. A *level* is a group of week slots of similar load, so that caps bind at the peaks only.

The dual of a fund's row is the cash that one more of its dollars would save: its worth. The dual of a cap's row is
what one more machine there would save in an hour: its premium. Floats live in here only; what leaves is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scheduling.model import HOUR_MS, MicroUSD, UnixMs

UNSERVED = 3.0
"""An hour that nobody serves counts as that many times the dearest offer: served before all else."""


THRIFT = 1e-4
"""Credit that would be left over has a price too, so that none is wasted and the cheaper offer is taken."""


@dataclass(frozen=True, slots=True)
class Option:
    """One place to run a lane, and who may pay there. `scopes`: caps that it counts against. No payers: free."""

    scopes: tuple[str, ...]
    price: MicroUSD  # an hour
    payers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """`hours`: machine hours wanted a week at each level."""

    name: str
    hours: tuple[float, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Purse:
    """Money of one fund that may be spent in the segments from `first` to `last`, both included.

    `cash` counts in the objective. A cash fund is one purse a month; `daily` bounds each day.
    """

    name: str
    amount: MicroUSD
    first: int
    last: int
    cash: bool = False
    daily: MicroUSD | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """`hours` of each level that lie in it."""

    start_ms: UnixMs
    end_ms: UnixMs
    hours: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """`caps`: machines at once by scope, a number for each level. `weeks`: of one level, its hours a week."""

    lanes: tuple[Lane, ...]
    segments: tuple[Segment, ...]
    purses: tuple[Purse, ...]
    caps: dict[str, tuple[float, ...]]
    week_hours: tuple[float, ...]


@dataclass(slots=True)
class Solution:
    """Worth of a purse's dollar by its place in `Problem.purses`, dollars spent of it, and premiums in dollars an
    hour of (scope, segment, level).
    """

    worth: list[float]
    spent: list[float]
    premium: dict[tuple[str, int, int], float] = field(default_factory=dict)


class Unsolvable(Exception):
    """The solver gave up; the text is its own."""


class _Rows:
    """Inequalities by name: sum of coefficient x variable <= limit."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self.numbers: dict[Any, int] = {}
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []

    def add(self, name: Any, limit: float, variable: int, coefficient: float) -> None:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.limits)
            self.limits.append(limit)
        self.row.append(number)
        self.column.append(variable)
        self.value.append(coefficient)


def solve(problem: Problem) -> Solution:
    """The cheapest spending. Raises `Unsolvable`, ImportError without SciPy."""
    from scipy.optimize import linprog  # type: ignore[import-untyped]
    from scipy.sparse import coo_array  # type: ignore[import-untyped]

    costs: list[float] = []
    rows = _Rows()
    paid: list[tuple[int, int, float]] = []  # (purse, variable, dollars an hour)
    for lane in problem.lanes:
        dearest = max((option.price for option in lane.options), default=0) / 1e6 + 0.01
        for number, segment in enumerate(problem.segments):
            purses = _open(problem.purses, number)
            for level, hours in enumerate(segment.hours):
                want = lane.hours[level] * hours / problem.week_hours[level] if hours else 0.0
                if want <= 0:
                    continue
                demand = ("demand", lane.name, number, level)
                rows.add(demand, -want, len(costs), -1.0)
                costs.append(UNSERVED * dearest)
                for option in lane.options:
                    for purse in _payers(option, purses):
                        x = len(costs)
                        dollars = option.price / 1e6
                        costs.append(dollars if purse is None or problem.purses[purse].cash else dollars * THRIFT)
                        rows.add(demand, -want, x, -1.0)
                        for scope in option.scopes:
                            cap = problem.caps.get(scope)
                            if cap is not None:
                                rows.add((scope, number, level), cap[level] * hours, x, 1.0)
                        if purse is not None:
                            paid.append((purse, x, dollars))
                            _charge(rows, problem.purses[purse], purse, number, segment, x, dollars)
    if not costs:
        return Solution([0.0] * len(problem.purses), [0.0] * len(problem.purses))
    matrix = coo_array((rows.value, (rows.row, rows.column)), shape=(len(rows.limits), len(costs))).tocsr()
    found = linprog(costs, A_ub=matrix, b_ub=rows.limits, method="highs-ds")
    if found.status != 0:
        raise Unsolvable(str(found.message))
    return _solution(problem, rows, paid, found)


def _open(purses: tuple[Purse, ...], segment: int) -> dict[str, int]:
    return {purse.name: n for n, purse in enumerate(purses) if purse.first <= segment <= purse.last}


def _payers(option: Option, purses: dict[str, int]) -> Iterable[int | None]:
    if not option.price:
        return (None,)
    return [purses[name] for name in option.payers if name in purses]


def _charge(
    rows: _Rows, purse: Purse, number: int, segment: int, span: Segment, variable: int, dollars: float
) -> None:
    rows.add(("purse", number), max(0, purse.amount) / 1e6, variable, dollars)
    if purse.daily is not None:
        days = (span.end_ms - span.start_ms) / (24 * HOUR_MS)
        rows.add(("daily", number, segment), purse.daily / 1e6 * days, variable, dollars)


def _solution(problem: Problem, rows: _Rows, paid: list[tuple[int, int, float]], found: Any) -> Solution:
    duals = found.ineqlin.marginals
    worth = [0.0] * len(problem.purses)
    premium: dict[tuple[str, int, int], float] = {}
    for name, row in rows.numbers.items():
        dual = max(0.0, -float(duals[row]))
        if name[0] == "purse":
            worth[name[1]] = dual
        elif name[0] in problem.caps and dual:
            premium[name] = dual
    spent = [0.0] * len(problem.purses)
    for purse, x, dollars in paid:
        spent[purse] += dollars * float(found.x[x])
    return Solution(worth, spent, premium)
