"""Whatever happens in whatever order: caps hold, no fund is overdrawn, the indices are what the records say."""

from __future__ import annotations

import random

import pytest

from scheduling import ledger
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.model import Purchase
from scheduling.policy import Fund, ProviderPolicy, ReadyFloor
from scheduling.world import World
from tests.core.fleet import HOUR, MINUTE, NOON, SECOND, USD, Fleet, credit, offer, policy, runner_type

CASH = Fund("cash", cash=True, limit=40 * USD, pays=frozenset({"west"}), spent=0, spent_as_of_ms=NOON)


def walked_fleet() -> Fleet:
    small = runner_type("small", labels=("self-hosted", "linux", "small"), max_runners=6, ready=(ReadyFloor(2),))
    other = runner_type("other", labels=("self-hosted", "linux", "other"), max_runners=5)
    providers = {
        "east": ProviderPolicy("east", "sim", max_runners=4),
        "west": ProviderPolicy("west", "sim", max_runners=5),
    }
    funds = (credit("short", 15, "east", days=1), credit("grant", 20), CASH)
    rules = policy(small, other, providers=providers, funds=funds, max_runners=8)
    offers = {
        "east": (offer("east"), offer("east", USD // 5, zone="r1-b", count=2)),
        "west": (offer("west", USD), offer("west", 0, instance_type="gift", count=1, purchase=Purchase.ON_DEMAND)),
    }
    return Fleet(rules, offers)


def check(fleet: Fleet) -> None:
    world, rules = fleet.world, fleet.policy
    assert world.live_count("") <= 8
    for name, cap in (("type:small", 6), ("type:other", 5), ("provider:east", 4), ("provider:west", 5)):
        assert world.live_count(name) <= cap
    for name, fund in rules.funds.items():
        account = world.funds[name]
        for period in {*account.held, *account.settled}:
            assert ledger.used(account, period) <= fund.limit
    held = sum(part.amount for r in fleet.runners() if r.state is not RunnerState.GONE for part in r.hold)
    assert held == sum(sum(account.held.values()) for account in world.funds.values())
    again = World(world.fleet)
    tables = ("job", "tombstone", "runner", "pool", "cooldown", "fund", "switch")
    names = {"switch": "switches"}
    again.restore(
        (kind, key, record)
        for kind in tables
        for key, record in getattr(world, names.get(kind, f"{kind}s")).items()
    )
    for index in ("supply", "free", "live", "by_state", "runs"):
        assert normal(getattr(again, index)) == normal(getattr(world, index)), index
    assert {k: set(v) for k, v in again.unmet.items()} == {k: set(v) for k, v in world.unmet.items()}
    assert set(again.surplus) == set(world.surplus)
    assert {k: set(v) for k, v in again.queued.items()} == {k: set(v) for k, v in world.queued.items()}


def normal(index: dict[object, object]) -> dict[object, object]:
    return {k: frozenset(v) if isinstance(v, dict | set) else v for k, v in index.items() if v}


def step(fleet: Fleet, dice: random.Random, number: int) -> None:
    labels = ("self-hosted", "linux", *dice.choice(((), ("small",), ("other",))))
    queued = [job for job in fleet.world.jobs.values() if job.state == "queued"]
    match dice.randrange(12):
        case 0 | 1 | 2:
            fleet.job(number, labels=labels, repository=dice.choice(("acme/app", "acme/lib")))
        case 3 if queued:
            fleet.finish(dice.choice(queued).job_id, conclusion="cancelled")
        case 4:
            fleet.boot(
                *dice.sample(
                    fleet.runners(RunnerState.STARTING), k=min(1, len(fleet.runners(RunnerState.STARTING)))
                )
            )
        case 5:
            fleet.register()
        case 6 | 7 if queued and (idle := fleet.runners(RunnerState.IDLE)):
            fleet.start(dice.choice(queued).job_id, dice.choice(idle))
        case 8 if busy := [r for r in fleet.runners(RunnerState.BUSY) if r.running]:
            runner = dice.choice(busy)
            fleet.finish(int(runner.running.split(".")[0]), runner)
        case 9:
            key = dice.choice(("east/r1-a/big/on_demand", "east/r1-b/big/on_demand", "west/r1-a/big/on_demand"))
            if fleet.cloud.refuse.pop(key, None) is None:
                fleet.cloud.refuse[key] = dice.choice([t for t in m.Trouble if t is not m.Trouble.OBSERVED])
            fleet.cloud.lost_answers ^= {key}
        case 10 if fleet.cloud.machines:
            gone = dice.choice(sorted(fleet.cloud.machines))
            fleet.cloud.machines.pop(gone)
            fleet.busy.discard(gone)
        case _:
            fleet.inventory()
    fleet.step(dice.choice((0, SECOND, 20 * SECOND, 3 * MINUTE)))


@pytest.mark.parametrize("seed", range(25))
def test_a_random_life_keeps_every_promise(seed: int) -> None:
    dice, fleet = random.Random(seed), walked_fleet()
    for number in range(1, 250):
        step(fleet, dice, number)
        check(fleet)
    fleet.cloud.refuse.clear()
    fleet.cloud.lost_answers.clear()
    for job in list(fleet.world.jobs.values()):
        if job.state != "completed":
            runner = fleet.world.runners.get(job.runner)
            fleet.finish(job.job_id, runner, repository=job.repository)
    fleet.busy.clear()
    fleet.run(5 * HOUR, every=30 * SECOND)
    check(fleet)
    live = [runner for runner in fleet.runners() if runner.state is not RunnerState.GONE]
    floor = [runner for runner in live if runner.state is not RunnerState.STOPPING]  # one may just be replaced
    assert {r.state for r in floor} <= {RunnerState.READY, RunnerState.STARTING}
    assert len(floor) <= 2
    assert not any(runner.registration_id for runner in live)
