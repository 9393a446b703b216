"""What a schedule is about: a policy, its accounts' offers, and the jobs that people start and cancel."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from autoscaler.sandbox.github_records import JobRequest
from scheduling.model import Hardware, Offer, Purchase
from scheduling.policy import (
    Access,
    Forks,
    Fund,
    Policy,
    ProviderPolicy,
    ReadyFloor,
    Rule,
    RunnerType,
    Selector,
)
from tests.core.fleet import MINUTE, NOON, SECOND, USD, credit

ANY = (Purchase.ON_DEMAND, Purchase.SPOT)
BOOT_TIMEOUT_MS = 2 * MINUTE
MAX_LIFETIME_MS = 20 * MINUTE
LIFE_MS = BOOT_TIMEOUT_MS + 15 * MINUTE + MAX_LIFETIME_MS + 5 * MINUTE

REPOSITORIES = ("acme/app", "acme/app", "acme/lib", "acme/site")
FORKS_ONLY = "acme/site"


@dataclass(frozen=True, slots=True)
class Submission:
    """A run that somebody starts `at_s`, and when each of its jobs is cancelled (None: never)."""

    at_s: float
    repository: str
    fork: bool
    jobs: tuple[JobRequest, ...]
    cancels_s: tuple[float | None, ...]
    reruns: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    policy: Policy
    other_policy: Policy  # what a reload activates
    offers: Mapping[str, tuple[Offer, ...]]
    submissions: tuple[Submission, ...]
    floor: int

    @property
    def jobs(self) -> int:
        return sum(len(each.jobs) for each in self.submissions)


@cache
def _offers() -> dict[str, tuple[Offer, ...]]:
    def offer(provider: str, zone: str, kind: str, price: int, cpus: int, spot: bool, count: int | None) -> Offer:
        return Offer(
            provider,
            zone[:2],
            zone,
            kind,
            Purchase.SPOT if spot else Purchase.ON_DEMAND,
            price,
            Hardware(cpus=cpus, memory_mib=cpus * 2048),
            count=count,
        )

    return {
        "gift": (offer("gift", "g1-a", "slot", 0, 8, False, 3),),
        "east": (
            offer("east", "e1-a", "big", USD // 2, 8, False, None),
            offer("east", "e1-b", "big", USD // 5, 8, True, None),
            offer("east", "e1-a", "small", USD // 8, 4, False, None),
        ),
        "west": (
            offer("west", "w1-a", "large", USD, 16, False, None),
            offer("west", "w2-a", "large", USD // 3, 16, True, 4),
        ),
    }


def _type(name: str, **changes: object) -> RunnerType:
    base = RunnerType(
        name,
        ("self-hosted", "Linux", name),
        Hardware(cpus=4),
        selectors=tuple(Selector(provider, purchase=ANY) for provider in ("gift", "east", "west")),
        access=Access(("acme/*",), Forks.DENY),
        boot_timeout_ms=BOOT_TIMEOUT_MS,
        register_timeout_ms=MINUTE,
        idle_timeout_ms=2 * MINUTE,
        ready_max_age_ms=15 * MINUTE,
        max_lifetime_ms=MAX_LIFETIME_MS,
    )
    return replace(base, **changes)


@cache
def _policies(variant: int) -> tuple[Policy, Policy]:
    """The policy of this variant, and the one that a reload brings."""
    floor = variant & 1
    tight = variant & 2
    few = variant & 4
    small = _type("small", ready=(ReadyFloor(1 + (variant >> 3 & 1)),) if floor else ())
    big = _type("big", hardware=Hardware(cpus=8), max_runners=6 if few else None)
    early = _type("early", bootstrap="userdata")
    forks = _type("forks", access=Access((FORKS_ONLY,), Forks.ONLY))
    cash = Fund("cash", cash=True, limit=500 * USD, pays=frozenset({"west"}), spent=0, spent_as_of_ms=NOON)
    funds = (
        credit("sprint", 1 if tight else 40, "east", days=2),
        credit("grant", 400),
        cash,
    )
    providers = {
        "gift": ProviderPolicy("gift", "sim", max_runners=3),
        "east": ProviderPolicy("east", "sim", max_runners=8 if few else None, launch_rate=5.0),
        "west": ProviderPolicy("west", "sim"),
    }
    policy = Policy(
        hash=f"v{variant}",
        providers=providers,
        runner_types={rtype.name: rtype for rtype in (small, big, early, forks)},
        funds={fund.name: fund for fund in funds},
        rules=(
            Rule(repository=("acme/lib",), deny=("west",)),
            Rule(repository=("acme/app",), rerun=True),
            Rule(ref=("refs/heads/release/*",), prefer=("west",)),
        ),
        ignore_labels=("ubuntu-*",),
        max_runners=12 if few else 60,
    )
    slower = {name: replace(rtype, idle_timeout_ms=3 * MINUTE) for name, rtype in policy.runner_types.items()}
    other = replace(policy, hash=f"v{variant}-reloaded", runner_types=slower, memo={})
    return policy, other


def scenario(dice: random.Random) -> Scenario:
    """At least 20 jobs within five minutes, a few of them strange."""
    variant = dice.randrange(16)
    policy, other = _policies(variant)
    submissions: list[Submission] = []
    count, wanted = 0, dice.randint(20, 26)
    while count < wanted:
        repository = dice.choice(REPOSITORIES)
        fork = repository == FORKS_ONLY and dice.random() < 0.7
        jobs = tuple(_job(dice, fork) for _ in range(dice.randint(1, 6)))
        cancels = tuple(dice.uniform(0, 200) if dice.random() < 0.1 else None for _ in jobs)
        reruns = tuple(dice.random() < 0.05 for _ in jobs)
        submissions.append(Submission(dice.uniform(1, 300), repository, fork, jobs, cancels, reruns))
        count += len(jobs)
    submissions.sort(key=lambda each: each.at_s)
    floor = sum(rtype.ready[0].count for rtype in policy.runner_types.values() if rtype.ready)
    return Scenario(policy, other, _offers(), tuple(submissions), floor)


def _job(dice: random.Random, fork: bool) -> JobRequest:
    point = dice.random()
    if point < 0.03:
        labels: tuple[str, ...] = ("ubuntu-latest",)
    elif point < 0.06:
        labels = ("self-hosted", "solaris")
    elif fork and point < 0.9:
        labels = ("self-hosted", "linux", "forks")
    else:
        labels = (
            "self-hosted",
            dice.choice(("linux", "LINUX")),
            *dice.choice((("small",), ("small",), ("big",), ("early",), ())),
        )
    seconds = dice.randint(240, 400) if dice.random() < 0.08 else dice.randint(5, 150)
    return JobRequest("job", labels, seconds * SECOND)
