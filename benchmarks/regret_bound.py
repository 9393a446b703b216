"""The least cash that a month could have cost somebody who knew it all: a linear programme over job x offer x
payer, solved by HiGHS. (A job is finer than type x hour, and gives a higher, truer bound.)

It is a lower bound on what can be done while every job starts when it is queued: jobs may be split over offers and
payers, machines boot as fast as any, caps are looked at every twenty minutes, and what jobs cost after their
payer's end is paid by the best of the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from benchmarks.regret_month import BOOT_MS, Month, SimJob
from scheduling import ledger
from scheduling.matching import Taste, selected
from scheduling.model import HOUR_MS, MicroUSD, Offer, UnixMs
from scheduling.placement import Wish, pays
from scheduling.policy import Fund

LOOK_MS = 1_200_000


class Rows:
    """Inequalities that are found by their name: sum of coefficient x variable <= limit."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._numbers: dict[Any, int] = {}
        self.entries: list[tuple[int, int, float]] = []

    def add(self, name: Any, limit: float, variable: int, coefficient: float) -> None:
        row = self._numbers.get(name)
        if row is None:
            row = self._numbers[name] = len(self.limits)
            self.limits.append(limit)
        self.entries.append((row, variable, coefficient))

    def has(self, name: Any) -> bool:
        return name in self._numbers

    def matrix(self, width: int) -> Any:
        rows, columns, values = zip(*self.entries, strict=True)
        return coo_array((values, (rows, columns)), shape=(len(self.limits), width)).tocsr()


class Bound:
    """The programme of one month."""

    def __init__(self, month: Month) -> None:
        self.month, self.policy = month, month.policy
        self.costs: list[float] = []
        self.rows = Rows()
        self._choices: dict[tuple[str, str], list[Choice]] = {}
        for job in month.jobs:
            self._add(job)

    def least_cash(self) -> MicroUSD:
        """Micro-dollars."""
        matrix, limits = self.rows.matrix(len(self.costs)), np.array(self.rows.limits)
        found = linprog(np.array(self.costs), A_ub=matrix, b_ub=limits, method="highs-ipm")
        if found.status != 0:
            raise RuntimeError(f"the bound of {self.month.name} was not found: {found.message}")
        return round(float(found.fun) * 1e6)

    def _variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def _add(self, job: SimJob) -> None:
        kind = (job.runner_type, job.repository)
        if kind not in self._choices:
            self._choices[kind] = _choices(self.month, *kind)
        start, end = job.queued_ms, job.queued_ms + min(BOOT_MS.values()) + job.lasts_ms
        looks = range(-(-start // LOOK_MS), -(-end // LOOK_MS))
        cheapest = float("inf")
        for offer, funds in self._choices[kind]:
            if self.month.is_out(offer.provider, start):
                continue
            price = self.month.price(offer, start) / 1e6
            cap = self.policy.providers[offer.provider].max_runners
            payers: list[Fund | None] = [fund for fund in funds if ledger.open_at(fund, start)]
            for fund in payers if funds else [None]:
                if fund is not None and fund.cash and cap is None:
                    if price >= cheapest:
                        continue  # dearer cash without a cap: never better
                    cheapest = price
                stop = min(end, fund.until_ms or end) if fund else end
                dollars = price * (stop - start) / HOUR_MS
                x = self._variable(dollars if fund is not None and fund.cash else 0.0)
                self.rows.add(("job", job.job_id), -1.0, x, -1.0)
                for instant in looks:
                    if cap is not None:
                        self.rows.add((offer.provider, instant), cap, x, 1.0)
                    if offer.count is not None:
                        self.rows.add((offer.key, instant), offer.count, x, 1.0)
                if fund is not None:
                    self._charge(fund, start, x, dollars)
                    if stop < end:
                        self._tail(fund, funds, x, price * (end - stop) / HOUR_MS)

    def _charge(self, fund: Fund, at_ms: UnixMs, variable: int, dollars: float) -> None:
        self.rows.add((fund.name, ledger.period(fund, at_ms)), fund.limit / 1e6, variable, dollars)

    def _tail(self, ended: Fund, funds: list[Fund], variable: int, dollars: float) -> None:
        """What a job costs after its payer's end is paid by whoever is open then."""
        name = ("tail", ended.name, tuple(fund.name for fund in funds))
        if not self.rows.has(name):
            at_ms = ended.until_ms or 0
            for heir in funds:
                if ledger.open_at(heir, at_ms):
                    y = self._variable(1.0 if heir.cash else 0.0)
                    self.rows.add(name, 0.0, y, -1.0)
                    self._charge(heir, at_ms, y, 1.0)
        self.rows.add(name, 0.0, variable, dollars)


def least_cash(month: Month) -> MicroUSD:
    """Micro-dollars of cash."""
    return Bound(month).least_cash()


Choice = tuple[Offer, list[Fund]]


def _choices(month: Month, runner_type: str, repository: str) -> list[Choice]:
    """Offers that the type may use, each with its payers; none for a free one."""
    policy, found = month.policy, []
    wish = Wish(policy.runner_types[runner_type], repository, None, Taste())
    for offer in selected(wish.rtype, month.offers_at[0][1]):
        funds = [fund for fund in policy.funds.values() if pays(fund, wish, offer)] if offer.list_price else []
        found.append((offer, funds))
    return found
