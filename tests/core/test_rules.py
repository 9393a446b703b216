"""Rules by ref or event: what waits for GitHub's facts, how long, and whose jobs; answers kept are bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling import matching
from scheduling import messages as m
from scheduling.matching import Matcher
from scheduling.model import RunFacts
from scheduling.policy import Rule
from scheduling.world import NEEDS_FACTS
from tests.core.fleet import MINUTE, SECOND, Fleet, policy

RELEASE = ("refs/heads/release/*",)


def fleet_with(**rule: tuple[str, ...]) -> Fleet:
    return Fleet(policy(rules=(Rule(repository=("acme/app",), ref=RELEASE, **rule),)))


def test_a_preference_by_ref_concerns_its_own_repository_only() -> None:
    fleet = fleet_with(prefer=("west",))
    fleet.job(1, repository="acme/other")
    fleet.step()
    assert fleet.cloud.created == 1
    assert not fleet.world.facts_wanted


def test_a_preference_by_ref_waits_a_moment_for_facts_and_then_does_without() -> None:
    fleet = fleet_with(prefer=("west",))
    fleet.job(1)
    fleet.step()
    assert fleet.record(1).blocked == NEEDS_FACTS
    assert fleet.world.facts_wanted
    assert fleet.now < fleet.plan.next_wake_ms <= fleet.now + 20 * SECOND
    fleet.step(20 * SECOND)
    assert [planned.offer.provider for planned in fleet.planned()] == ["east"]


def test_a_preference_by_ref_is_followed_where_the_facts_come_in_time() -> None:
    fleet = fleet_with(prefer=("west",))
    fleet.job(1)
    fleet.step()
    fleet.tell(m.RunFactsLearned(fleet.now, "acme/app", 10, RunFacts("push", False, "refs/heads/release/1")))
    fleet.step(SECOND)
    assert [planned.offer.provider for planned in fleet.planned()] == ["west"]


@pytest.mark.parametrize("rule", [{"only": ("west",)}, {"deny": ("east",)}])
def test_a_restriction_by_ref_waits_for_the_facts_however_long(rule: dict[str, tuple[str, ...]]) -> None:
    fleet = fleet_with(**rule)
    fleet.job(1)
    fleet.run(10 * MINUTE)
    assert fleet.cloud.created == 0
    assert fleet.record(1).blocked == NEEDS_FACTS
    fleet.tell(m.RunFactsLearned(fleet.now, "acme/app", 10, RunFacts("push", False, "refs/heads/release/1")))
    fleet.step()
    assert [planned.offer.provider for planned in fleet.planned()] == ["west"]


def test_labels_and_refs_without_number_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "KEPT", 100)
    fleet = fleet_with(prefer=("west",))
    kept = Matcher(fleet.policy)
    fleet.job(1)
    for number in range(1000):
        assert not kept.types((f"run-{number}",))
        job = replace(fleet.record(1), facts=RunFacts("push", False, f"refs/heads/{number}"))
        assert kept.taste(job).prefer == ()
    assert kept.types.cache_info().currsize == kept._taste_of.cache_info().currsize == 100


def test_after_a_change_of_the_policy_the_oldest_jobs_are_served_first() -> None:
    fleet = Fleet(policy())
    fleet.job(1, labels=("self-hosted", "nothing"))  # blocked: no type has its labels
    fleet.now += SECOND
    fleet.policy = replace(fleet.policy, max_runners=0, hash="p2", memo={})
    fleet.job(3)
    fleet.step()
    fleet.now += SECOND
    fleet.job(2)
    fleet.step()
    (linux,) = fleet.policy.runner_types.values()
    wider = replace(linux, labels=(*linux.labels, "nothing"))
    fleet.policy = replace(fleet.policy, runner_types={"linux": wider}, hash="p3", memo={})
    fleet.tell(m.PolicyActivated(fleet.now, "p3"))
    fleet.step()
    assert list(fleet.world.queued["linux@repo:acme/app"]) == ["1.1", "3.1", "2.1"]
