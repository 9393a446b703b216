"""Months for `benchmarks.regret`: PyTorch's mix and rhythm, six providers, ten funds, and what happens to them.

Scale: one simulated job stands for 200 of PyTorch's and runs six times as long, so that 8,000 jobs a month keep 26
machines on average and 70 at the peaks. Bursts are thinned with the jobs (every sixteenth job of a trace sixteen
times as dense), else one matrix would fill an hour. Everything follows from the seed and the scenario.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

from benchmarks import trace
from scheduling.model import HOUR_MS, DurationMs, Hardware, MicroUSD, Offer, Purchase, UnixMs
from scheduling.policy import Access, Forks, Fund, Policy, ProviderPolicy, RunnerType, Selector

DAY_MS: DurationMs = 24 * HOUR_MS
HISTORY_DAYS, MONTH_DAYS = 14, 28
SCALE, THIN, STRETCH = 0.005, 16, 6
START: UnixMs = int(trace.START.timestamp() * 1000) + HISTORY_DAYS * DAY_MS
END: UnixMs = START + MONTH_DAYS * DAY_MS
USD = 1_000_000
MAX_LIFETIME_MS = trace.LONGEST_S * 1000 * STRETCH

SCENARIOS = ("mixed", "scarce", "overlap", "prices", "outage", "month_end")
"""`abundant` is apart: its bound is zero."""

CLASSES = (  # the first pattern that a label contains; list price in dollars an hour at the reference provider
    ("rocm", r"rocm|b200|xpu|tpu", 2.10),
    ("gpu-l", r"(12xlarge|48xlarge|metal).*nvidia|h100|a100", 5.67),
    ("gpu-s", r"nvidia|windows.g4dn", 1.62),
    ("windows", r"windows", 0.74),
    ("arm", r"arm64|macos|s390x", 0.65),
    ("cpu-l", r"(8|9|10|12|24)xl", 2.04),
    ("cpu-m", r"4xlarge|4x$", 0.68),
    ("cpu-s", r"", 0.34),
)
PRICES = {name: price for name, _, price in CLASSES}

SELLS: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {  # classes, and the range of its price factor
    "aws": (("cpu-s", "cpu-m", "cpu-l", "arm", "gpu-s", "gpu-l", "windows"), (1.0, 1.0)),
    "gcp": (("cpu-s", "cpu-m", "cpu-l", "arm", "gpu-s", "gpu-l", "windows"), (0.9, 1.1)),
    "azure": (("cpu-s", "cpu-m", "cpu-l", "gpu-l", "windows", "rocm"), (0.95, 1.2)),
    "oci": (("cpu-s", "cpu-m", "cpu-l", "arm"), (0.55, 0.75)),
    "neo": (("gpu-s", "gpu-l", "rocm"), (0.5, 0.7)),
    "lab": (("rocm", "cpu-m"), (0.0, 0.0)),
}
BOOT_MS = dict.fromkeys(SELLS, 60_000)  # alike everywhere: who waits longer here waits for a machine or for money


@dataclass(frozen=True, slots=True)
class SimJob:
    job_id: int
    repository: str
    runner_type: str
    queued_ms: UnixMs
    lasts_ms: DurationMs


@dataclass(slots=True)
class Month:
    """`outages`: (provider, from, until). `offers_at`: what is sold from that time on, in order of time."""

    name: str
    policy: Policy
    history: list[SimJob]
    jobs: list[SimJob]
    offers_at: list[tuple[UnixMs, tuple[Offer, ...]]]
    outages: list[tuple[str, UnixMs, UnixMs]] = field(default_factory=list)

    def price(self, offer: Offer, at_ms: UnixMs) -> MicroUSD:
        """Micro-dollars an hour at that time."""
        offers = next(offers for since, offers in reversed(self.offers_at) if since <= max(at_ms, START))
        return next(found.list_price or 0 for found in offers if found.key == offer.key)

    def is_out(self, provider: str, at_ms: UnixMs) -> bool:
        return any(name == provider and since <= at_ms < until for name, since, until in self.outages)


def month(scenario: str, seed: int) -> Month:
    dice = random.Random(f"{scenario}/{seed}")
    dense = trace.jobs(HISTORY_DAYS + MONTH_DAYS, seed, SCALE * THIN)
    jobs = [_job(job) for job in dense if job.job_id % THIN == seed % THIN]
    history = [job for job in jobs if job.queued_ms < START]
    jobs = [job for job in jobs if job.queued_ms >= START]
    offers = _offers(dice)
    need = sum(PRICES[job.runner_type] * job.lasts_ms / HOUR_MS for job in jobs)
    busy = sum(job.lasts_ms for job in jobs) / (END - START)
    providers = {
        name: ProviderPolicy(name, "sim", max_runners=cap) for name, cap in _caps(scenario, dice, busy).items()
    }
    funds = {fund.name: fund for fund in _funds(scenario, dice, need)}
    policy = Policy(f"{scenario}/{seed}", providers, _types(), funds)
    found = Month(f"{scenario}/{seed}", policy, history, jobs, [(START, offers)])
    if scenario == "prices":
        for day, provider, times in ((9, "oci", 1.2), (9, "gcp", 0.85), (18, "neo", 1.25), (20, "aws", 0.9)):
            offers = tuple(
                replace(offer, list_price=int((offer.list_price or 0) * times))
                if offer.provider == provider
                else offer
                for offer in offers
            )
            found.offers_at.append((START + day * DAY_MS, offers))
    if scenario == "outage":
        for provider, days in (("aws", 2), ("oci", 1.5), (dice.choice(("gcp", "neo")), 2)):
            since = START + int(dice.uniform(3, 24) * DAY_MS)
            found.outages.append((provider, since, since + int(days * DAY_MS)))
    return found


def _job(job: trace.TraceJob) -> SimJob:
    name = next(name for name, pattern, _ in CLASSES if re.search(pattern, job.label))
    begins = job.started_ms or job.completed_ms - 60_000
    lasts = max(60_000, (job.completed_ms - begins) * STRETCH)
    return SimJob(job.job_id, job.repository, name, job.queued_ms, min(lasts, MAX_LIFETIME_MS - HOUR_MS // 2))


def _offers(dice: random.Random) -> tuple[Offer, ...]:
    offers = []
    for provider, (classes, (low, high)) in SELLS.items():
        for name in classes:
            price = int(PRICES[name] * dice.uniform(low, high) * USD)
            count = 1 if provider == "lab" else None
            offers.append(Offer(provider, "r", "r-1", name, Purchase.ON_DEMAND, price, Hardware(), count=count))
    return tuple(offers)


def _types() -> dict[str, RunnerType]:
    return {
        name: RunnerType(
            name,
            (name,),
            Hardware(),
            selectors=tuple(Selector(provider, (name,)) for provider, (sold, _) in SELLS.items() if name in sold),
            access=Access(("*",), Forks.ALLOW),
            max_lifetime_ms=MAX_LIFETIME_MS,
        )
        for name in PRICES
    }


def _caps(scenario: str, dice: random.Random, busy: float) -> dict[str, int | None]:
    """`busy`: machines on average. The big ones sell what anybody wants, the cheap ones less than the peaks."""
    oci, neo = dice.uniform(0.7, 1.1), dice.uniform(0.4, 0.7)
    if scenario == "scarce":
        neo = dice.uniform(0.25, 0.4)
    return dict.fromkeys(SELLS) | {"oci": max(2, round(busy * oci)), "neo": max(2, round(busy * neo))}


def _funds(scenario: str, dice: random.Random, need: float) -> list[Fund]:
    """Nine credits of 60 % of the demand at reference prices together, and cash for everything."""
    end = MONTH_DAYS
    plan: list[tuple[str, tuple[str, ...], float, float, float, tuple[str, ...]]] = [
        # name, pays, weight, from day, until day, repositories
        ("aws-a", ("aws",), 3.0, 0, end, ()),
        ("aws-b", ("aws",), 1.5, 0, dice.uniform(8, 20), ()),
        ("gcp-a", ("gcp",), 2.0, 0, end, ()),
        ("gcp-b", ("gcp",), 1.0, dice.uniform(2, 8), dice.uniform(15, end), ("pytorch/pytorch",)),
        ("azure-a", ("azure",), 1.5, 0, dice.uniform(18, end), ()),
        ("oci-a", ("oci",), 1.0, 0, dice.uniform(14, end), ()),
        ("neo-a", ("neo",), 1.0, 0, end, ()),
        ("gift", ("gcp", "azure"), 1.0, dice.uniform(5, 12), end, ()),
        ("union", ("aws", "oci", "neo"), 1.0, dice.uniform(0, 10), dice.uniform(20, end), ()),
    ]
    match scenario:
        case "scarce":  # little money, few machines, and it ends soon
            plan[6] = ("neo-a", ("neo",), 0.35, 0, dice.uniform(5, 10), ())
            plan[5] = ("oci-a", ("oci",), 0.35, 0, dice.uniform(5, 10), ())
        case "overlap":
            for index, row in enumerate(plan):
                since = dice.uniform(0, 16)
                plan[index] = (*row[:3], since, min(end, since + dice.uniform(6, 16)), row[5])
        case "month_end":  # March ends on day 16
            for index, row in enumerate(plan):
                plan[index] = (*row[:3], *((0, 16) if index % 2 else (16, end)), row[5])
    whole = 2.5 if scenario == "abundant" else 0.6
    weights = [row[2] * dice.uniform(0.7, 1.3) for row in plan]
    funds = []
    for (name, pays, _, since, until, repositories), weight in zip(plan, weights, strict=True):
        limit = int(need * whole * weight / sum(weights) * USD)
        begins = START + int(since * DAY_MS)
        funds.append(
            Fund(
                name,
                False,
                limit,
                begins if since else None,
                START + int(until * DAY_MS),
                frozenset(pays),
                repositories=repositories,
                spent=None if since else 0,
                spent_as_of_ms=START,
            )
        )
    monthly = need * (0.3 if scenario == "month_end" else 5)
    funds.append(Fund("cash", True, int(monthly * USD), spent=0, spent_as_of_ms=START))
    return funds
