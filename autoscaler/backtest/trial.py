"""One policy tried on one recording: what a report needs of it, picklable."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscaler.backtest import tally as t
from autoscaler.backtest import world_model
from autoscaler.backtest.driver import AFTER_MS, ASSUMED, LATER_MS, TICK_MS, Driver
from autoscaler.backtest.recording import Recording
from autoscaler.backtest.tally import Tally
from autoscaler.policy.file import load, provider_config
from autoscaler.sandbox.money import cheapest_list_price, expired, fund_lines
from autoscaler.sandbox.summary import Costs, FundLine, RunnerCounts, figures, quantiles
from providers import registry
from scheduling import ledger
from scheduling.lifecycle import RunnerState
from scheduling.matching import matcher
from scheduling.model import MicroUSD, Offer, UnixMs

NOT_MODELLED = (
    "GitHub's rate limits, outages and lost webhooks",
    "create calls without an answer, machines that never boot, quotas",
    "prices and spot capacity that change with time or with our own demand",
    "whatever people would have done otherwise: a job that waits less may bring the next push earlier",
)


@dataclass(frozen=True, slots=True)
class FundStory:
    """What a fund was at the beginning. `left`: micro-dollars then, of its period."""

    name: str
    cash: bool
    limit: MicroUSD
    left: MicroUSD
    until_ms: UnixMs | None


@dataclass(slots=True)
class Trial:
    """`document` is the policy's part of the JSON."""

    name: str
    document: dict[str, Any]
    tally: Tally
    funds: list[FundStory]
    lines: list[FundLine]
    assumptions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def offers_of(policy_path: Path, now_ms: UnixMs) -> tuple[Any, dict[str, tuple[Offer, ...]], list[str]]:
    """The loaded policy, what its providers sell by their catalogues, and warnings. Raises PolicyError."""
    loaded = load(policy_path, now_ms)
    offers, warnings = {}, list[str]()
    for name, provider in loaded.policy.providers.items():
        config = provider_config(loaded.policy, name, loaded.settings[name], fleet="backtest")
        offers[name] = tuple(registry.kind(provider.kind).catalogue(config))
        if not offers[name]:
            warnings.append(f"{policy_path}: provider {name}: nothing is known of what it sells; it gets no jobs")
    return loaded, offers, warnings


def run(
    recording: Recording,
    policy_path: Path,
    world_path: Path | None,
    seed: int,
    told: Callable[[float], None] = lambda share: None,
) -> Trial:
    """Try it. Raises PolicyError and WorldFileError; `told` hears the share of jobs that were queued so far."""
    loaded, offers, warnings = offers_of(policy_path, recording.last_ms)
    model = world_model.load(world_path, loaded.settings, recording.live)
    driver = Driver(recording, loaded.policy, offers, model, seed)
    collecting = gc.isenabled()
    gc.disable()  # records make no cycles, and there are many of them
    try:
        found = driver.run(told)
    finally:
        if collecting:
            gc.enable()
    trial = Trial(policy_path.name, _document(driver, found), found, _funds(driver), [])
    trial.lines = fund_lines(driver.world, loaded.policy, found.end_ms)
    trial.warnings = warnings + _fund_warnings(driver)
    trial.assumptions = _assumptions(driver, model)
    return trial


def _document(driver: Driver, found: Tally) -> dict[str, Any]:
    world, policy, totals = driver.world, driver.policy, driver.world.totals
    fates = Counter({t.FATES[number]: count for number, count in Counter(found.fate).items()})
    not_ours = fates.pop("foreign", 0)
    fates.pop("missed", None)
    ran = Counter(
        found.offer_provider[offer]
        for offer, fate in zip(found.offer, found.fate, strict=True)
        if fate == t.COMPLETED and offer != t.NONE
    )
    by_provider, by_fund = Counter[str](), Counter[str]()
    for (_, name), cost in found.by_provider.items():
        by_provider[name] += cost
    for (_, name), cost in found.by_fund.items():
        by_fund[name] += cost
    waits = sorted(wait for wait in found.wait if wait != t.NONE)
    document = figures(
        fates,
        ran,
        quantiles(waits),
        RunnerCounts(totals.launched, totals.failed_launches, totals.reaped_unused, _leaked(driver)),
        Costs(
            list=_list_cost(driver, found),
            by_provider=by_provider,
            by_fund=by_fund,
            cash_funds=frozenset(fund.name for fund in policy.funds.values() if fund.cash),
            expired_credits=expired(world, policy, found.end_ms),
            boot=totals.boot,
            idle=totals.idle,
            overrun=ledger.overrun_of_all(policy.funds, world.funds),
        ),
        0,  # a document says nothing about the computer that made it: the same trace gives the same bytes
        found.end_ms - found.first_ms,
    )
    document["not_ours"] = not_ours
    document["queue_seconds"]["mean"] = round(sum(waits) / len(waits) / 1000, 3) if waits else None
    document["queue_stage_seconds"] = {
        name: round(sum(column) / len(waits) / 1000, 3) if waits else 0.0 for name, column in found.stages.items()
    }
    document["runners"] |= {"interrupted": found.interrupted, "refused_at_start": found.admission}
    return document


def _leaked(driver: Driver) -> int:
    """Machines that are up although their runner has ended."""
    runners = driver.world.runners
    return sum(
        machine.runner_id not in runners or runners[machine.runner_id].state is RunnerState.GONE
        for machine in driver.machines.alive.values()
    )


def _list_cost(driver: Driver, found: Tally) -> MicroUSD:
    prices = [
        cheapest_list_price(matcher(driver.policy).types(tuple(sorted(labels))), driver.world)
        for labels in driver.folded
    ]
    rows = zip(driver.recording.labels, found.ran, strict=True)
    return sum(ledger.price_of(prices[labels], ran) for labels, ran in rows if ran)


def _funds(driver: Driver) -> list[FundStory]:
    now_ms, stories = driver.recording.first_ms, []
    for fund in driver.policy.funds.values():
        account = driver.world.funds[fund.name]
        spent = account.spent_before.get(ledger.period(fund, now_ms), 0)
        stories.append(FundStory(fund.name, fund.cash, fund.limit, fund.limit - spent, fund.until_ms))
    return stories


def _fund_warnings(driver: Driver) -> list[str]:
    first_ms, last_ms = driver.recording.first_ms, driver.recording.last_ms
    return [
        f"fund {fund.name} is outside its dates for all of the recording and pays nothing"
        for fund in driver.policy.funds.values()
        if not any(ledger.open_at(fund, at_ms) for at_ms in (first_ms, last_ms))
    ]


def _assumptions(driver: Driver, model: world_model.WorldModel) -> list[str]:
    recording = driver.recording
    found = [
        "Every job runs as long as it did when it was recorded, whatever machine it gets.",
        "What was cancelled while it was queued is cancelled at that time.",
        *model.assumptions(),
        "Each fund begins with what the policy says was spent, however old that is.",
        f"Decisions come at most once in {TICK_MS / 1000:g} s, what no job needs within {LATER_MS / 1000:g} s.",
        f"The simulation ends {AFTER_MS // 3_600_000} h after the last event at the latest.",
    ]
    if driver.assumed_facts:
        found.append(
            f"{driver.assumed_facts} runs are recorded without their event and origin: "
            f"taken as `{ASSUMED.event}`, not from a fork."
        )
    if recording.unfinished:
        found.append(
            f"{recording.unfinished} jobs had not ended when the recording ended: each is taken to last as "
            "long as was seen, or as is usual for its labels."
        )
    if recording.began_before:
        found.append(f"{recording.began_before} jobs were queued before the recording began and are left out.")
    return found
