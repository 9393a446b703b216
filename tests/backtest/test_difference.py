"""Two policies on one trace: what the report names as causes adds up, to the micro-dollar and the millisecond."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from autoscaler.backtest import recording, trial
from autoscaler.backtest.difference import STAGE_WORDS, difference
from autoscaler.backtest.tally import NONE
from tests.backtest.conftest import POLICY, Write, story

Policy = Callable[..., Path]

VARIANTS = {
    "dear": POLICY,
    "slow and spot": POLICY.replace("memory_gib: 8, on_demand: 0.40", "memory_gib: 8, spot: 0.09")
    .replace("settings: {instance_types: {m", "settings: {boot_seconds: 90, instance_types: {m")
    .replace("boot_seconds: 90", "boot_seconds: 90, faults: {preempted: 0.2}")
    .replace("provider: PROVIDER", "provider: PROVIDER, purchase: [spot]"),
    "poor": POLICY.replace("50 USD/month, pays: [big, small]", "3 USD/month, pays: [small]"),
    "few at once": POLICY.replace("version: 1", "version: 1\nlimits: {runners: 3}"),
    "none": POLICY.replace("linux: {labels: [self-hosted, linux]", "linux: {labels: [self-hosted, windows]"),
    "both": POLICY.replace("{provider: PROVIDER}", "{provider: small}, {provider: big}"),
}  # fmt: skip
PLACES = {
    "dear": "big",
    "slow and spot": "big",
    "poor": "small",
    "few at once": "small",
    "none": "big",
    "both": "big",
}


def trace(seed: int) -> list[dict[str, Any]]:
    """Matrices at random, of which some are cancelled while they wait."""
    dice, lines, job, at = random.Random(seed), [], 10, 0.0
    for _ in range(12):
        at += dice.expovariate(1 / 400)
        for _ in range(dice.choice((1, 1, 3, 12))):
            three = story(job, at=at, lasts=dice.uniform(5, 5000), conclusion=dice.choice(("success", "failure")))
            if dice.random() < 0.1:
                three = [three[0], story(job, at=at, waits=0, lasts=90, conclusion="cancelled", runner_name="")[2]]
            lines += three
            job += 10
    return lines


@pytest.mark.parametrize("seed", range(8))
def test_the_parts_are_the_whole_in_dollars_and_seconds(seed: int, write: Write, policy: Policy) -> None:
    a_name, b_name = random.Random(seed).sample(list(VARIANTS), 2)
    recorded = recording.read(write(trace(seed)))
    a, b = (
        trial.run(recorded, policy(PLACES[name], name=f"{name} {seed}", text=VARIANTS[name]), None, seed)
        for name in (a_name, b_name)
    )
    found = difference(recorded, a.tally, b.tally)
    document = found.document()
    paid = [
        Decimal(each.document["cost_usd"]["cash"]) + Decimal(each.document["cost_usd"]["credits"])
        for each in (a, b)
    ]
    money, time = document["cost_usd"], document["waited_seconds"]
    assert Decimal(money["whole"]) == paid[1] - paid[0], (a_name, b_name)
    assert sum(Decimal(part["usd"]) for part in money["parts"]) == Decimal(money["whole"])
    waits = [sum(wait for wait in each.tally.wait if wait != NONE) for each in (a, b)]
    assert found.seconds.total() == found.by_labels.total() == waits[1] - waits[0]
    assert sum(part["seconds"] for part in time["parts"]) == pytest.approx(time["whole"], abs=0.01)


def test_swapped_policies_swap_the_sign(write: Write, policy: Policy) -> None:
    recorded = recording.read(write(trace(1)))
    a, b = (
        trial.run(recorded, policy(PLACES[name], name=name, text=VARIANTS[name]), None, 0).tally
        for name in ("dear", "poor")
    )
    there, back = difference(recorded, a, b), difference(recorded, b, a)
    assert there.dollars.total() == -back.dollars.total() != 0
    assert {cause: there.seconds[cause] for cause in STAGE_WORDS.values()} == {
        cause: -back.seconds[cause] for cause in STAGE_WORDS.values()
    }


def test_free_jobs_that_ran_under_one_policy_only_are_counted(write: Write, policy: Policy) -> None:
    free = POLICY.replace("small: {kind: sim", "small: {kind: sim, price: 0 USD/h")
    recorded = recording.read(write([line for job in (10, 20, 30) for line in story(job, at=job)]))
    a = trial.run(recorded, policy("small", text=free), None, 0).tally
    b = trial.run(recorded, policy("big", name="none", text=VARIANTS["none"]), None, 0).tally
    found = difference(recorded, a, b)
    assert found.jobs == Counter({"jobs that ran under A only": 3})
    assert found.dollars["jobs that ran under A only"] == 0
    assert found.moved == Counter({("free", "not run"): 3})
