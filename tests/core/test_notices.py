"""Notice runners: a job past the deadline is ended by a machine that says why, where an offer takes it."""

from __future__ import annotations

from dataclasses import replace

from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from scheduling.model import RunFacts
from scheduling.notices import AT_ONCE, LIFE_MS
from scheduling.plan import plan
from scheduling.policy import Access, FairShare, Forks, OnDeadline, Policy
from tests.core.fleet import HOUR, MINUTE, Fleet, credit, policy, runner_type

EXPLAIN = OnDeadline(2 * HOUR, "explain")


def forks_denied(**changes: object) -> Policy:
    access = Access(("acme/*",), Forks.DENY)
    return policy(runner_type(access=access), on_deadline=EXPLAIN, **changes)


def fork(fleet: Fleet, number: int = 1) -> None:
    fleet.job(number)
    fleet.tell(m.RunFactsLearned(fleet.now, "acme/app", number * 10, RunFacts("pull_request", fork=True)))
    fleet.step()


def test_a_job_that_access_keeps_out_is_told_once_after_the_deadline() -> None:
    fleet = Fleet(forks_denied())
    fork(fleet)
    fleet.run(2 * HOUR - MINUTE, every=10 * MINUTE)
    assert fleet.cloud.created == 0
    fleet.step(2 * MINUTE)
    (runner,) = fleet.runners(RunnerState.STARTING)
    assert runner.terms.notice
    assert runner.terms.labels == ("linux", "self-hosted")
    assert runner.terms.max_lifetime_ms == LIFE_MS
    assert fleet.record(1).notice == runner.id
    fleet.boot()
    fleet.step()
    assert runner.state is RunnerState.REGISTERING
    assert runner.target == "repo:acme/app"
    fleet.register()
    fleet.start(1, runner)
    fleet.finish(1, runner, "failure")
    fleet.run(5 * MINUTE)
    assert fleet.at_rest()
    assert fleet.cloud.created == 1
    assert not [name for name in fleet.world.learned if name.startswith("job/")]


def test_alert_alone_launches_nothing() -> None:
    fleet = Fleet(replace(forks_denied(), on_deadline=OnDeadline(2 * HOUR), memo={}))
    fork(fleet)
    fleet.run(3 * HOUR, every=10 * MINUTE)
    assert fleet.cloud.created == 0


def test_a_fund_too_small_for_a_job_may_pay_for_its_explanation() -> None:
    fleet = Fleet(policy(on_deadline=EXPLAIN, funds=(credit("grant", 1),)))
    fleet.job(1)
    fleet.run(2 * HOUR + MINUTE, every=10 * MINUTE)
    assert [runner.terms.notice for runner in fleet.runners()] == [True]


def test_without_any_offer_it_stays_an_alert_and_says_so() -> None:
    fleet = Fleet(policy(on_deadline=EXPLAIN, funds=()))
    fleet.job(1)
    fleet.job(2, labels=("solaris",))
    fleet.job(3, repository="stranger/app")
    fleet.run(3 * HOUR, every=10 * MINUTE)
    assert fleet.cloud.created == 0
    assert "notice:1.1" in fleet.plan.refusals
    assert not {"notice:2.1", "notice:3.1"} & fleet.plan.refusals.keys()


def test_caps_hold_and_only_a_few_live_at_a_time() -> None:
    fleet = Fleet(forks_denied())
    for number in range(1, 9):
        fork(fleet, number)
    fleet.step(3 * HOUR)
    assert len(fleet.runners(RunnerState.STARTING)) == AT_ONCE
    fleet = Fleet(replace(forks_denied(), max_runners=1, memo={}))
    for number in range(1, 9):
        fork(fleet, number)
    fleet.step(3 * HOUR)
    assert len(fleet.runners(RunnerState.STARTING)) == 1


def test_it_goes_when_its_job_waits_no_longer_and_serves_no_other_demand() -> None:
    fleet = Fleet(forks_denied())
    fork(fleet)
    fleet.step(3 * HOUR)
    (notice,) = fleet.runners(RunnerState.STARTING)
    fleet.job(2)
    fleet.tell(m.RunFactsLearned(fleet.now, "acme/app", 20, RunFacts("push", fork=False)))
    fleet.step()
    assert len(fleet.runners(RunnerState.STARTING)) == 2
    fleet.boot(notice)
    fleet.step()
    fleet.register(notice)
    fleet.job(1, JobState.COMPLETED, conclusion="cancelled")
    fleet.step()
    assert notice.reason is GoneReason.SURPLUS
    fleet.run(3 * MINUTE)
    assert notice.state is RunnerState.GONE


def test_one_with_its_configuration_in_user_data_registers_where_its_job_waits() -> None:
    access = Access(("acme/*",), Forks.DENY)
    fleet = Fleet(policy(runner_type(access=access, bootstrap="userdata"), on_deadline=EXPLAIN))
    fork(fleet)
    fleet.now += 3 * HOUR
    plan(fleet.world, fleet.policy, fleet.now)
    (runner,) = fleet.runners(RunnerState.PLANNED)
    assert runner.terms.userdata
    assert runner.target == "repo:acme/app"
    fleet.step()
    fleet.step()
    fleet.register(runner)
    fleet.start(1, runner)
    fleet.finish(1, runner, "failure")
    fleet.run(5 * MINUTE)
    assert fleet.at_rest()


def test_a_repository_at_its_fair_share_cap_gets_no_machine_for_an_explanation_either() -> None:
    fleet = Fleet(policy(on_deadline=EXPLAIN, fair_share=FairShare(max_runners={"acme/*": 1})))
    fleet.job(1)
    fleet.job(2)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.step(2 * HOUR + MINUTE)
    assert fleet.world.live_count("repository:acme/app") == 1
