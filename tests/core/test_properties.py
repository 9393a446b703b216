"""Hypothesis over evolve and plan: any policy, any order of facts, and what must hold after each of them.

No hold beyond a fund, no cap exceeded, every refusal explained, the same input gives the same decisions, and once
the trouble is over nobody starves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduling import ledger
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState, RunnerState
from scheduling.matching import selected
from scheduling.model import Hardware, Job, Offer, Runner, Verdict
from scheduling.plan import Plan, plan
from scheduling.policy import Policy
from scheduling.world import PAUSED, World
from tests.core.drawn import PROVIDERS, REPOSITORIES, TYPES, moments, policies, sold
from tests.core.fleet import MINUTE, USD, Fleet, credit, offer

PATIENCE = 240
"""Minutes without any job's end after which those that wait starve: above all timeouts and cooldowns."""


class Watched(Fleet):
    """A fleet that remembers what it was told and when it planned, so that the same can be done again."""

    def __init__(self, policy: Policy, offers: dict[str, tuple[Offer, ...]]) -> None:
        self.script: list[Callable[[World], list[m.Event]]] = []
        self.planned_last = False
        super().__init__(policy, offers)

    def tell(self, *events: m.Event) -> None:
        for event in events:
            self.script.append(told(event, self.now))
        self.planned_last = False
        super().tell(*events)

    def step(self, ms: int = 0) -> Plan:
        rules, now = self.policy, self.now + ms
        self.script.append(lambda world: plan(world, rules, now).decisions)
        self.planned_last = True
        return super().step(ms)


def told(event: m.Event, now_ms: int) -> Callable[[World], list[m.Event]]:
    def act(world: World) -> list[m.Event]:
        evolve(world, event, now_ms)
        return []

    return act


class AnyLife(RuleBasedStateMachine):
    """One fleet under a drawn policy; rules are what GitHub, clouds, machines and operators may do."""

    fleet: Watched

    @initialize(rules=policies(), data=st.data())
    def found(self, rules: Policy, data: st.DataObject) -> None:
        self.fleet = Watched(rules, {name: data.draw(sold(name), label=name) for name in PROVIDERS})
        self.decisions: list[m.Event] = []
        self.numbers = 0
        self.now_and_then()

    # ---- what may happen -------------------------------------------------------------------------------------

    @rule(repository=st.sampled_from(REPOSITORIES), labels=st.sampled_from((*TYPES, "")), count=st.integers(1, 5))
    def jobs_arrive(self, repository: str, labels: str, count: int) -> None:
        for _ in range(count):
            self.numbers += 1
            wanted = ("self-hosted", "linux", *([labels] if labels else []))
            self.fleet.job(self.numbers, labels=wanted, repository=repository)
        self.now_and_then()

    @rule(ms=moments)
    def now_and_then(self, ms: int = 0) -> None:
        self.decisions += self.fleet.step(ms).decisions

    @rule()
    def machines_boot(self) -> None:
        self.fleet.boot()
        self.now_and_then()

    @rule(data=st.data())
    def github_gives_a_job(self, data: st.DataObject) -> None:
        self.fleet.register()
        self.now_and_then()
        idle, queued = self.fleet.runners(RunnerState.IDLE), self.queued()
        pairs = [(job, runner) for runner in idle for job in queued if job.repository == runner.repository]
        if pairs:
            job, runner = data.draw(st.sampled_from(pairs), label="job and runner")
            self.fleet.start(job.job_id, runner, repository=job.repository, labels=job.labels)
        self.now_and_then()

    @rule(data=st.data(), conclusion=st.sampled_from(("success", "cancelled")))
    def a_job_ends(self, data: st.DataObject, conclusion: str) -> None:
        busy = [runner for runner in self.fleet.runners(RunnerState.BUSY) if runner.running]
        if busy:
            self.ends(data.draw(st.sampled_from(busy), label="runner"), conclusion)
        self.now_and_then()

    @rule(data=st.data())
    def a_waiting_job_is_cancelled(self, data: st.DataObject) -> None:
        if queued := self.queued():
            job = data.draw(st.sampled_from(queued), label="job")
            self.fleet.finish(job.job_id, conclusion="cancelled", repository=job.repository)

    @rule(data=st.data(), trouble=st.sampled_from([t for t in m.Trouble if t is not m.Trouble.OBSERVED]))
    def an_offer_refuses_or_recovers(self, data: st.DataObject, trouble: m.Trouble) -> None:
        key = data.draw(st.sampled_from(self.offer_keys()), label="offer")
        if self.fleet.cloud.refuse.pop(key, None) is None:
            self.fleet.cloud.refuse[key] = trouble

    @rule(data=st.data())
    def answers_are_lost_or_heard_again(self, data: st.DataObject) -> None:
        self.fleet.cloud.lost_answers ^= {data.draw(st.sampled_from(self.offer_keys()), label="offer")}

    @precondition(lambda self: self.fleet.cloud.machines)
    @rule(data=st.data())
    def a_machine_vanishes(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.fleet.cloud.machines)), label="machine")
        self.fleet.cloud.machines.pop(gone)
        self.fleet.busy.discard(gone)

    @rule()
    def an_inventory(self) -> None:
        self.fleet.inventory()

    @rule(name=st.sampled_from((PAUSED, "all", "provider:east", "type:small")))
    def an_operator_switches(self, name: str) -> None:
        self.switch(name, on=name not in self.fleet.world.switches)

    # ---- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def no_fund_is_held_beyond_its_limit(self) -> None:
        for name, fund in self.fleet.policy.funds.items():
            account = self.fleet.world.funds[name]
            for period in {*account.held, *account.settled}:
                assert ledger.used(account, period) <= fund.limit, f"{name} {period}"

    @invariant()
    def what_is_held_is_what_live_runners_hold(self) -> None:
        held = sum(part.amount for runner in self.live() for part in runner.hold)
        assert held == sum(sum(account.held.values()) for account in self.fleet.world.funds.values())

    @invariant()
    def no_cap_is_exceeded(self) -> None:
        rules, live = self.fleet.policy, self.live()
        assert rules.max_runners is None or len(live) <= rules.max_runners
        for provider in rules.providers.values():
            mine = [runner for runner in live if runner.offer.provider == provider.name]
            assert provider.max_runners is None or len(mine) <= provider.max_runners
            for each in self.fleet.world.offers[provider.name]:
                here = [runner for runner in mine if runner.offer.key == each.key]
                assert each.count is None or len(here) <= each.count
        for rtype in rules.runner_types.values():
            mine = [runner for runner in live if runner.runner_type == rtype.name]
            assert rtype.max_runners is None or len(mine) <= rtype.max_runners
        for repository, cap in rules.fair_share.max_runners.items():
            assert len([runner for runner in live if runner.repository == repository]) <= cap

    @invariant()
    def unmet_demand_is_explained(self) -> None:
        world, refusals = self.fleet.world, self.fleet.plan.refusals
        assert all(verdicts and all(each.offer for each in verdicts) for verdicts in refusals.values())
        for pool, queue in world.queued.items() if self.fleet.planned_last else ():
            if len(queue) > len(world.supply.get(pool, ())):
                assert any(each.refusal for each in refusals[pool]), pool
                self.names_every_offer(refusals[pool], pool)

    def names_every_offer(self, verdicts: tuple[Verdict, ...], pool: str) -> None:
        """A pool that no offer serves lists each of them; one that a cap stops names the cap."""
        if not any("/" in each.offer for each in verdicts):
            return
        world = self.fleet.world
        named = {each.offer for each in verdicts}
        rtype = self.fleet.policy.runner_types[world.pools[pool].runner_type]
        for name in PROVIDERS:
            assert {each.key for each in selected(rtype, world.offers[name])} <= named

    # ---- the end ---------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        self.the_same_again()
        self.nobody_starves()

    def the_same_again(self) -> None:
        """A second world that is told the same at the same times decides the same."""
        world, decisions = World("acme"), []
        for act in self.fleet.script:
            decisions += act(world)
        assert decisions == self.decisions

    def nobody_starves(self) -> None:
        """With clouds, operators and one rich sponsor at peace again, every job gets its runner and ends."""
        fleet = self.fleet
        fleet.cloud.refuse.clear()
        fleet.cloud.lost_answers.clear()
        for target in list(fleet.world.switches):
            self.switch(target, on=False)
        rich = credit("rich", 10**6, days=3000, spent_as_of_ms=fleet.now)
        types = fleet.policy.runner_types.values()
        wide = [replace(each, hardware=Hardware(cpus=4), max_price=None) for each in types]
        fleet.policy = replace(
            fleet.policy,
            hash="p2",
            funds={**fleet.policy.funds, "rich": rich},
            runner_types={each.name: each for each in wide},
            memo={},
        )
        fleet.tell(m.PolicyActivated(fleet.now, "p2"))
        for name in PROVIDERS:
            plenty = (*fleet.world.offers[name], offer(name, USD // 2, zone="r1-z"))
            fleet.tell(m.OffersListed(fleet.now, name, plenty))
        patience, before = PATIENCE, len(self.unfinished())
        while before and patience:
            self.a_quiet_minute()
            left = len(self.unfinished())
            patience, before = (PATIENCE if left < before else patience - 1), left
        assert not self.unfinished(), f"{self.unfinished()} never ran: {fleet.plan.refusals}"

    def a_quiet_minute(self) -> None:
        fleet = self.fleet
        for runner in fleet.runners(RunnerState.BUSY):
            if runner.running:
                self.ends(runner, "success")
        for job in fleet.world.jobs.values():
            if job.state is JobState.IN_PROGRESS and job.runner not in fleet.cloud.machines:
                fleet.finish(job.job_id, conclusion="failure", repository=job.repository)
        fleet.busy &= fleet.cloud.machines.keys()  # GitHub has noticed that the others are gone
        fleet.boot()
        fleet.register()
        for runner in fleet.runners(RunnerState.IDLE):
            fits = (job for job in self.queued() if job.repository == runner.repository)
            job = next((job for job in fits if self.carries(runner, job.labels)), None)
            if job:
                fleet.start(job.job_id, runner, repository=job.repository, labels=job.labels)
        fleet.inventory()
        fleet.step(MINUTE)

    # ---- helpers ---------------------------------------------------------------------------------------------

    def carries(self, runner: Runner, labels: tuple[str, ...]) -> bool:
        have = {label.casefold() for label in self.fleet.policy.runner_types[runner.runner_type].labels}
        return {label.casefold() for label in labels} <= have

    def unfinished(self) -> list[str]:
        return [job.key for job in self.fleet.world.jobs.values() if job.state is not JobState.COMPLETED]

    def queued(self) -> list[Job]:
        return [job for job in self.fleet.world.jobs.values() if job.state is JobState.QUEUED]

    def live(self) -> list[Runner]:
        return [runner for runner in self.fleet.runners() if runner.state is not RunnerState.GONE]

    def ends(self, runner: Runner, conclusion: str) -> None:
        job = self.fleet.world.jobs.get(runner.running)
        if job is not None:
            self.fleet.finish(job.job_id, runner, conclusion=conclusion, repository=job.repository)

    def switch(self, target: str, *, on: bool) -> None:
        self.fleet.tell(m.SwitchSet(self.fleet.now, target, on))

    def offer_keys(self) -> list[str]:
        return [each.key for offers in self.fleet.world.offers.values() for each in offers]


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a whole life shrinks for minutes: add Phase.shrink to look at a failure
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
