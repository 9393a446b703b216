"""How others choose, on the same months: a job takes the first offer and fund in its strategy's order.

They are flattered: a job's cost is known when it is placed, a fund needs to cover only that, no launch is lost
in an outage, and nothing is idle. Boots, caps, dates, price changes and teardown are those of the month.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count

from benchmarks.regret_drive import GRID_MS, Outcome
from benchmarks.regret_month import BOOT_MS, Month, SimJob
from scheduling import ledger
from scheduling.matching import Taste, selected
from scheduling.model import MicroUSD, Offer, UnixMs
from scheduling.placement import Wish, pays
from scheduling.policy import Fund

Option = tuple[Offer, MicroUSD, Fund | None]
Order = Callable[[Option, int], tuple[object, ...]]
"""(offer, price, payer) and the number of the job -> what sorts first."""

_PREFERRED = {name: place for place, name in enumerate(("aws", "gcp", "azure", "oci", "neo", "lab"))}
_RING = sorted(_PREFERRED)
OVERHEAD_MS = 6 * GRID_MS
"""Registration, hand-over and teardown, as the driver's machines have it."""


def _cash(fund: Fund | None) -> bool:
    return fund is not None and fund.cash


def _until(fund: Fund | None) -> float:
    return (fund.until_ms or 2**62) if fund else 0


STRATEGIES: dict[str, Order] = {
    "cheapest list price": lambda o, n: (o[1], _cash(o[2]), _until(o[2])),
    "cheapest with any credit": lambda o, n: (_cash(o[2]), o[1], _until(o[2])),
    "round robin": lambda o, n: ((_RING.index(o[0].provider) - n) % len(_RING), _cash(o[2]), _until(o[2])),
    "preferred then spill": lambda o, n: (_PREFERRED[o[0].provider], _cash(o[2]), _until(o[2])),
    "expiring first": lambda o, n: (o[1] > 0, _cash(o[2]), _until(o[2]), o[1]),
}


class Rival:
    """One month with one strategy."""

    def __init__(self, month: Month, order: Order) -> None:
        self.month, self.order = month, order
        self.live: dict[str, int] = defaultdict(int)
        self.spent: dict[tuple[str, str], MicroUSD] = defaultdict(int)
        self.waits: list[int] = []
        self.numbers = count()
        self.heap: list[tuple[UnixMs, int, SimJob | None, Offer | None]] = []

    def run(self) -> Outcome:
        waiting: deque[SimJob] = deque()
        self.heap = [(job.queued_ms, n, job, None) for n, job in enumerate(self.month.jobs)]
        self.numbers = count(len(self.heap))
        heapq.heapify(self.heap)
        while self.heap:
            now, _, job, offer = heapq.heappop(self.heap)
            if offer is not None:
                self.live[offer.provider] -= 1
                self.live[offer.key] -= 1
            if job is not None:
                waiting.append(job)
            waiting = deque(left for left in waiting if not self._place(left, now))
            if waiting and not self.heap:
                break
            if waiting and self.heap[0][0] > now + 60_000:
                heapq.heappush(self.heap, (now + 60_000, next(self.numbers), None, None))
            if now > self.month.jobs[-1].queued_ms + 5 * 86_400_000:
                break
        funds = self.month.policy.funds
        cash = sum(amount for (name, _), amount in self.spent.items() if funds[name].cash)
        credit = sum(self.spent.values()) - cash
        return Outcome(cash, credit, sorted(self.waits), len(self.month.jobs) - len(self.waits))

    def _place(self, job: SimJob, now: UnixMs) -> bool:
        policy = self.month.policy
        rtype = policy.runner_types[job.runner_type]
        wish = Wish(rtype, job.repository, None, Taste())
        offers = next(offers for since, offers in reversed(self.month.offers_at) if since <= now)
        options: list[Option] = []
        for offer in selected(rtype, offers):
            if self.month.is_out(offer.provider, now) or self._full(offer):
                continue
            price = offer.list_price or 0
            for fund in policy.funds.values() if price else (None,):
                if fund is None or (pays(fund, wish, offer) and ledger.open_at(fund, now)):
                    options.append((offer, price, fund))
        for offer, price, fund in sorted(options, key=lambda o: (*self.order(o, job.job_id), o[0].key)):
            if self._pay(offer, price, fund, job, now):
                return True
        return False

    def _full(self, offer: Offer) -> bool:
        cap = self.month.policy.providers[offer.provider].max_runners
        if cap is not None and self.live[offer.provider] >= cap:
            return True
        return offer.count is not None and self.live[offer.key] >= offer.count

    def _pay(self, offer: Offer, price: MicroUSD, fund: Fund | None, job: SimJob, now: UnixMs) -> bool:
        end = now + BOOT_MS[offer.provider] + job.lasts_ms + OVERHEAD_MS
        if fund is not None:
            stop = min(end, fund.until_ms or end)
            amount, period = ledger.price_of(price, stop - now), ledger.period(fund, now)
            if self.spent[fund.name, period] + amount > fund.limit:
                return False
            self.spent[fund.name, period] += amount
            if stop < end:
                heir = self.month.policy.funds["cash"]
                self.spent[heir.name, ledger.period(heir, stop)] += ledger.price_of(price, end - stop)
        self.live[offer.provider] += 1
        self.live[offer.key] += 1
        self.waits.append(now + BOOT_MS[offer.provider] + 3 * GRID_MS - job.queued_ms)
        heapq.heappush(self.heap, (end + 40_000, next(self.numbers), None, offer))
        return True
