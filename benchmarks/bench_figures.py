"""Which benchmarks there are, at which sizes they run, and which figures of their documents make the table.

A run is a command line of one module that prints one JSON document. Aims are those of the issues that asked for
the benchmark. Runs of one benchmark differ in size, so that growth shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Document = Any
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `floor` has the same unit and comes from the same run; no more than `at_most` is wanted."""

    what: str
    size: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    floor: float | None = None
    floor_is: str = ""

    @property
    def missed(self) -> bool:
        """Whether there is an aim and the figure is not within it."""
        above = self.at_most is not None and self.value > self.at_most
        return above or (self.at_least is not None and self.value < self.at_least)


@dataclass(frozen=True, slots=True)
class Run:
    """Arguments of one run, and the real seconds after which it counts as failed."""

    arguments: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`figures` reads the document that each of the runs prints; `name` is the module's."""

    name: str
    figures: Callable[[Document], Iterator[Figure]]
    quick: tuple[Run, ...]
    full: tuple[Run, ...]


def ingest(found: Document) -> Iterator[Figure]:
    size = found["client"].rpartition(", ")[2].replace("keep-alive ", "")
    judged = size.startswith("32 ")
    noop = found["results"]["noop"]["matched"]
    for mode, least in (("everysec", 0.8), ("always", 0.65)):
        mine, floor_is = found["results"][mode]["matched"], "nothing stored"
        what = f"signed webhooks, append {mode}"
        yield Figure(
            f"{what}: stored", size, mine["requests_per_s"], "/s",
            at_least=round(least * noop["requests_per_s"]) if judged else None,
            floor=noop["requests_per_s"], floor_is=floor_is,
        )  # fmt: skip
        yield Figure(
            f"{what}: p99", size, mine["p99_ms"], "ms", 15 if judged else None, floor=noop["p99_ms"],
            floor_is=floor_is,
        )  # fmt: skip
    kinds = found["results"]["everysec"]
    good, forged = kinds["matched"]["cpu_ms"], kinds["forged"]["cpu_ms"]
    yield Figure("a forged one: CPU", size, forged, "ms", at_most=good, floor=good, floor_is="a good one")


BURST = 256
"""Of the runs of `reaction` the one that sends jobs one by one, too."""


def reaction(found: Document) -> Iterator[Figure]:
    idle, burst = found["idle"], found["burst"]
    if burst["jobs"] == BURST:
        size, floor, floor_is = f"{idle['jobs']} one by one", idle["answer_p50_ms"], "p50 of the answer"
        yield Figure("webhook to launch: p50", size, idle["p50_ms"], "ms", floor=floor, floor_is=floor_is)
        yield Figure("webhook to launch: p99", size, idle["p99_ms"], "ms", 50, floor=floor, floor_is=floor_is)
    yield Figure(
        "all launches begun", f"{burst['jobs']} jobs at once", burst["all_entered_s"], "s",
        1.0, floor=burst["all_answered_s"], floor_is="all answered",
    )  # fmt: skip


def launch(found: Document) -> Iterator[Figure]:
    size, floor = f"{found['machines']} machines, API calls of {found['latency_ms']} ms", found["floor_s"]
    yield Figure(
        "queued to registered, all", size, found["all_registered_s"], "s", round(1.3 * floor, 2), floor=floor,
        floor_is=f"calls / {found['concurrency']} at once",
    )  # fmt: skip


def plan(found: Document) -> Iterator[Figure]:
    floor = found["sizes"][0]
    for each in found["sizes"]:
        size, last = f"{each['queued']:,} queued, {each['live']:,} live", each is found["sizes"][-1]
        floor_is = f"at {floor['queued']:,} queued"
        flat = min(5.0, round(1.3 * floor["p50_ms"], 2))
        yield Figure(
            "one look at the world: p50", size, each["p50_ms"], "ms", flat if last else None,
            floor=floor["p50_ms"], floor_is=floor_is,
        )  # fmt: skip
        yield Figure(
            "one look at the world: p99", size, each["p99_ms"], "ms", 20 if last else None,
            floor=floor["p99_ms"], floor_is=floor_is,
        )  # fmt: skip


def regret(found: Document) -> Iterator[Figure]:
    summary = found["summary"]
    ours, *others = summary["strategies"].values()
    size = "1 month" if summary["months"] == 1 else f"{summary['months']} months"
    least = min(each["median_regret"] for each in others)
    yield Figure(
        "cash beyond the clairvoyant's, of the price list's: median", size, ours["median_regret"], "", 0.10,
        floor=least, floor_is="the best rival",
    )  # fmt: skip
    worst = min(each["worst_regret"] for each in others)
    yield Figure(
        "the same: worst month", size, ours["worst_regret"], "", 0.20, floor=worst, floor_is="the best rival"
    )
    p99 = min(each["worst_p99_s"] for each in others)
    yield Figure("p99 wait, worst month", size, ours["worst_p99_s"], "s", p99, floor=p99, floor_is="best rival")
    if (share := summary["abundant_cash_of_list_bill"]) is not None:
        yield Figure("credits abound: cash of the list bill", "1 month", 100 * share, "%", 1)


def backtest(found: Document) -> Iterator[Figure]:
    days = "weekday" if found["days"] == 1 else f"{found['days']} days"
    for each in found["sizes"]:
        jobs, floor, floor_is = each["jobs"], each["floor_s"], "3 M dictionary steps"
        whole = jobs > 60_000 if found["days"] == 1 else jobs > 1_500_000
        size, limit_s = f"{days}, {jobs:,} jobs", 12 if found["days"] == 1 else 240
        yield Figure(
            "backtest, CPU", size, each["backtest_s"], "s", limit_s if whole else None,
            floor=floor, floor_is=floor_is,
        )  # fmt: skip
        yield Figure("reading the event file, CPU", size, each["read_s"], "s", floor=floor, floor_is=floor_is)
        yield Figure("memory at most", size, each["max_rss_mb"], "MB", 1000 if whole else None)
    if len(found["sizes"]) > 1:
        sizes = f"{found['sizes'][0]['jobs']:,} to {found['sizes'][-1]['jobs']:,} jobs"
        yield Figure("growth of the time a job", sizes, found["growth_per_job"], "x", 1.1)


def start(found: Document) -> Iterator[Figure]:
    floor, floor_is = found["floor_s"], "Python that imports aiohttp"
    yield Figure(
        "`serve` until ready", "one aws provider", found["ready_s"], "s", 2, floor=floor, floor_is=floor_is
    )
    yield Figure("memory at rest", "one aws provider", found["daemon_mb"], "MB", 150)


def starvation(found: Document) -> Iterator[Figure]:
    seeds = found["seeds"]
    worst = max(seeds, key=lambda each: each["p99_ratio"])  # type: ignore[no-any-return]
    size = f"{found['flood']:,} jobs of another, {found['runners']} runners, worst of {len(seeds)}"
    alone = worst["alone_s"]["p99"]
    yield Figure(
        "p99 wait beside a flood", size, worst["beside_flood_s"]["p99"], "s", round(2 * alone, 1),
        floor=alone, floor_is="alone",
    )  # fmt: skip


def soak(found: Document) -> Iterator[Figure]:
    empty = found[0]
    for each in found:
        size = f"{each['jobs']:,} queued, {each['never']:,} never run"
        floor_is = f"at {empty['jobs']:,}"
        for key, what, unit in (
            ("reaction_p50_ms", "reaction of a healthy pool: p50", "ms"),
            ("idle_cpu_percent", "CPU of a daemon that waits", "%"),
            ("daemon_mb", "memory of the daemon", "MB"),
            ("redis_mb", "memory of Redis", "MB"),
        ):
            yield Figure(what, size, each[key], unit, floor=empty[key], floor_is=floor_is)
    if found[-1]["jobs"]:
        size = f"{found[-1]['jobs']:,} queued"
        yield Figure("a job in the daemon", size, found[-1]["daemon_bytes_a_job"], "B")
        yield Figure("a job in Redis", size, found[-1]["redis_bytes_a_job"], "B")


def storm(found: Document) -> Iterator[Figure]:
    size = f"{found['jobs']:,} jobs, {found['leader_kills']} leaders and {found['server_kills']} servers killed"
    promises = (
        "lost",
        "doubled",
        "leaked_machines",
        "leaked_registrations",
        "over_a_fund_micro_usd",
        "unfinished",
    )
    broken = sum(found[name] for name in promises)
    yield Figure("lost, doubled, leaked, overspent", size, broken, "", 0)
    yield Figure("time to repair: p50", size, found["repair_p50_s"], "s")
    yield Figure("time to repair: p99", size, found["repair_p99_s"], "s")


def infra_storm(found: Document) -> Iterator[Figure]:
    size = f"{found['jobs']:,} jobs, an hour of failures"
    broken = sum(found[name] for name in ("lost_or_killed", "unfinished", "doubled", "left"))
    yield Figure("lost, killed, doubled, left behind", size, broken, "", 0)
    yield Figure("until waits are as before", size, found["minutes_until_normal"], "min", 30)


def deliveries(found: Document) -> Iterator[Figure]:
    size = f"{found['jobs']:,} jobs, each webhook {found['webhooks_delivered'].partition(' x ')[2]} times or never"
    broken = sum(found[name] for name in ("never_ran", "doubled", "left"))
    yield Figure("never ran, doubled, left behind", size, broken, "", 0)
    yield Figure("wait: p99", size, found["queue_p99_s"], "s")


def weekday(found: Document) -> Iterator[Figure]:
    size = f"{found['jobs']:,} jobs, {found['apps']} App" + "s" * (found["apps"] > 1)
    yield Figure("lost, doubled", size, found["lost"] + found["doubled"], "", 0)
    for name in ("p50", "p99"):
        yield Figure(f"wait: {name}", size, found[f"queue_{name}_s"], "s")


def agreement(found: Document) -> Iterator[Figure]:
    size = f"{found['jobs']:,} jobs"
    yield Figure("live and backtest: same offer", size, 100 * found["same_offer"], "%", at_least=95)
    for name in ("p50", "p90"):
        yield Figure(f"live and backtest: {name} wait apart", size, 100 * found["apart"][name], "%", 10)


def _runs(limit_s: float, *arguments: str) -> tuple[Run, ...]:
    return tuple(Run(each, limit_s) for each in arguments)


BENCHMARKS = (
    Benchmark(
        "ingest", ingest,
        _runs(2 * MINUTE, *(f"--rounds 3 --requests 1000 --concurrency {n}" for n in (8, 32, 128))),
        _runs(10 * MINUTE, *(f"--rounds 9 --requests 2000 --concurrency {n}" for n in (8, 32, 128))),
    ),
    Benchmark(
        "reaction", reaction,
        _runs(2 * MINUTE, "--idle 1 --burst 64", "--idle 1 --burst 128", f"--idle 100 --burst {BURST}"),
        _runs(5 * MINUTE, "--idle 1 --burst 64", "--idle 1 --burst 128", f"--idle 300 --burst {BURST}"),
    ),
    Benchmark(
        "launch", launch,
        _runs(2 * MINUTE, "--machines 50", "--machines 100", "--machines 200"),
        _runs(5 * MINUTE, "--machines 50", "--machines 100", "--machines 200"),
    ),
    Benchmark("plan", plan, _runs(5 * MINUTE, "--ticks 50"), _runs(15 * MINUTE, "--ticks 200")),
    Benchmark(
        "regret", regret,
        _runs(10 * MINUTE, "--seeds 1"),
        _runs(90 * MINUTE, "--seeds 20"),
    ),
    Benchmark(
        "backtest", backtest,
        _runs(5 * MINUTE, "--days 1 --seed 1 --scales 0.05,0.1,0.2"),
        _runs(40 * MINUTE, "--days 1 --seed 1 --scales 0.25,0.5,1", "--days 28 --seed 1 --scales 0.25,0.5,1"),
    ),
    Benchmark(
        "starvation", starvation,
        _runs(3 * MINUTE, "--seeds 1 --runners 500"),
        _runs(15 * MINUTE, "--seeds 5 --runners 500"),
    ),
    Benchmark("start", start, _runs(2 * MINUTE, "--rest 5"), _runs(5 * MINUTE, "--rest 60")),
    Benchmark(
        "soak", soak,
        _runs(5 * MINUTE, "--jobs 0,1000,10000 --idle 10"),
        _runs(40 * MINUTE, "--jobs 0,10000,100000"),
    ),
    Benchmark(
        "storm", storm,
        _runs(9 * MINUTE, "--jobs 200 --kills 8 --seed 1 --minutes 8"),
        _runs(45 * MINUTE, "--jobs 5000 --kills 200 --seed 1"),
    ),
    Benchmark(
        "infra_storm", infra_storm,
        _runs(5 * MINUTE, "--seed 1 --jobs-a-minute 2"),
        _runs(60 * MINUTE, *(f"--seed 1 --jobs-a-minute {n}" for n in (5, 10, 20))),
    ),
    Benchmark(
        "deliveries", deliveries,
        _runs(5 * MINUTE, "--jobs 100 --seed 1 --minutes 4"),
        _runs(25 * MINUTE, *(f"--jobs {n} --seed 1" for n in (500, 1000, 2000))),
    ),
    Benchmark(
        "weekday", weekday,
        _runs(5 * MINUTE, "--apps 3 --seed 1 --from-hour 4 --hours 1"),
        _runs(90 * MINUTE, "--apps 1 --seed 1", "--apps 3 --seed 1"),
    ),
    Benchmark(
        "agreement", agreement,
        (),  # of a hundred jobs the percentiles of two worlds differ by chance alone
        _runs(60 * MINUTE, "--jobs 2000 --seed 1"),
    ),
)  # fmt: skip
"""In the order of the table."""

TELLING = (
    ("ingest", "signed webhooks, append everysec: stored", "318/s"),
    ("reaction", "webhook to launch: p99", ""),
    ("reaction", "all launches begun", "10-40 s"),
    ("launch", "queued to registered, all", "30-63 s"),
    ("plan", "one look at the world: p50", ""),
    ("regret", "cash beyond the clairvoyant's, of the price list's: median", ""),
    ("backtest", "backtest, CPU", ""),
)
"""Rows of the README, each at the size that has an aim: benchmark, figure, and GARM's on such a machine."""
