"""One provider's machines and offers against the world: adoption, absence, second machines, orphans."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from autoscaler.store.store import NOBODY
from providers import base
from providers.base import Instance, ProviderError
from scheduling import ledger
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.matching import access_json
from scheduling.model import DurationMs, Hardware, HoldPart, LaunchTerms, Offer, Purchase, Runner, UnixMs
from scheduling.policy import RunnerType

if TYPE_CHECKING:
    from autoscaler.daemon import Daemon, Leader

log = logging.getLogger(__name__)

BALANCE_MS: DurationMs = 12 * 3_600_000
"""Between questions to a provider's billing, whoever leads: it follows use by a day anyway."""
BILLING = "the provider's billing"


class Inventory:
    """The machines of one provider, listed again and again while this replica leads."""

    def __init__(self, daemon: Daemon, leader: Leader, provider: str) -> None:
        self.daemon, self.leader, self.world = daemon, leader, leader.world
        self.name = provider
        self._billing_ms: UnixMs = -BALANCE_MS  # when its billing was last asked
        self._unwanted: dict[str, UnixMs] = {}  # refs that no record stands behind, and when first seen

    async def offers(self) -> None:
        """What the provider sells now. Only this leader needs to know."""
        offers = tuple(await self.daemon.parts.providers[self.name].offers())
        self.leader.inject(m.OffersListed(self.daemon.clock.now_ms(), self.name, offers))

    async def balance(self) -> None:
        """What the provider's billing says of the fund that takes it, asked rarely: some bill each question.

        A failure is asked again as late as an answer.
        """
        now_ms = self.daemon.clock.now_ms()
        for fund in self.daemon.policy.funds.values():
            account = self.world.funds.get(fund.name)
            said_ms = account.spent_said_ms if account and account.spent_source == BILLING else 0
            if fund.balance != self.name or now_ms < max(said_ms, self._billing_ms) + BALANCE_MS:
                continue
            self._billing_ms = now_ms
            try:
                found = await self.daemon.parts.providers[self.name].balance()
            except ProviderError as error:
                log.warning("what is spent of %s cannot be learned from %s: %s", fund.name, self.name, error)
                continue
            if found is None:
                log.warning("fund %s names %s as its balance, which tells none", fund.name, self.name)
                continue
            stated = m.FundSpentStated(now_ms, fund.name, "", found.spent, found.as_of_ms, BILLING)
            await self.daemon.store.append([stated])

    async def take(self) -> None:
        """List everything, tell the differences, open the gate. An incomplete list raises and proves nothing."""
        began_ms = self.daemon.clock.now_ms()
        seen: set[str] = set()
        facts: list[m.Event] = []
        for instance in await self.daemon.parts.providers[self.name].instances():
            if instance.ref:
                seen.add(instance.runner_id)
            fact = await self._compare(instance, began_ms)
            if fact is not None:
                facts.append(fact)
        facts += [
            m.MachineAbsent(began_ms, runner.id)
            for state, keys in self.world.by_state.items()
            if state not in (RunnerState.GONE, RunnerState.PLANNED)
            for runner in (self.world.runners[key] for key in keys)
            if runner.offer.provider == self.name and runner.id not in seen and runner.absences < 3
        ]
        facts[:0] = await self._taken([fact.runner_id for fact in facts if isinstance(fact, m.MachineAbsent)])
        gate = [m.InventoryTaken(began_ms, self.name, self.leader.epoch)] if self.name in self.world.gates else []
        if facts or gate:
            await self.daemon.store.append([*facts, *gate])

    async def _taken(self, missing: list[str]) -> list[m.Event]:
        """Which of the missing spot machines, that we did not stop, the provider says that it took back."""
        provider = self.daemon.parts.providers[self.name]
        runners = [self.world.runners[key] for key in missing]
        asked = {
            runner.ref: runner.id
            for runner in runners
            if runner.offer.purchase is Purchase.SPOT and runner.ref and not (runner.stop_ms or runner.taken_ms)
        }
        if not asked or not isinstance(provider, base.TellsTaken):
            return []
        try:
            refs = await provider.taken(list(asked))
        except ProviderError as error:  # the absence is a fact all the same
            log.warning("cannot learn whether %s took spot machines back: %s", self.name, error)
            return []
        return [m.MachineTaken(self.daemon.clock.now_ms(), asked[ref]) for ref in refs if ref in asked]

    async def _compare(self, instance: Instance, now_ms: UnixMs) -> m.Event | None:
        runner = self.world.runners.get(instance.runner_id)
        if instance.orphans:
            await self._remove(instance, now_ms, "left behind by a machine that is gone", *instance.orphans)
            if not instance.ref:
                return None
        if runner is None:
            return None if self.daemon.observe else self._adopt(instance, now_ms)
        if runner.state is RunnerState.GONE:
            await self._remove(instance, now_ms, "its runner has ended", instance.ref)
        elif runner.ref and runner.ref != instance.ref:
            if await self._superfluous(runner, instance):
                await self._remove(instance, now_ms, f"a second machine beside {runner.ref}", instance.ref)
        elif not runner.ref or runner.absences:
            return m.MachineSeen(now_ms, runner.id, instance.ref)
        return None

    async def _superfluous(self, runner: Runner, instance: Instance) -> bool:
        """Whether this second machine of a runner can go: nobody knows which of the two works.

        The one that called first does; the other is told to go when it calls. While neither has called, both lose
        the right to, so that no job can begin on what is removed here. Where both had a config from the start,
        both stay as long as a job may run.
        """
        if runner.state is RunnerState.STOPPING or instance.ref not in self._unwanted or self.daemon.observe:
            return True
        if runner.adopted or runner.terms.userdata or runner.heard_ms:
            return False  # whoever called may run a job by now, for longer than the store remembers who it was
        return await self.daemon.store.claim(runner.id, NOBODY)

    async def _remove(self, instance: Instance, now_ms: UnixMs, why: str, *refs: str) -> None:
        """Terminate what no record stands behind, the second time that it is seen."""
        for ref in refs:
            if self._unwanted.setdefault(ref, now_ms) == now_ms or self.daemon.observe:
                continue
            log.warning("removing %s of %s: %s", ref, self.name, why, extra={"runner": instance.runner_id})
            self.daemon.metrics.duplicate_machine(self.name)
            try:
                await self.daemon.parts.providers[self.name].terminate(ref)
            except ProviderError as error:  # it must not hide what else the inventory tells
                log.warning("cannot remove %s of %s: %s", ref, self.name, error)
            else:
                del self._unwanted[ref]

    def _adopt(self, instance: Instance, now_ms: UnixMs) -> m.Event:
        """A machine with our tags that the store does not know gets a record and its hold back."""
        tags = instance.tags
        rtype = self.daemon.policy.runner_types.get(tags.get(base.TAG_TYPE, ""))
        terms = _terms(rtype, self.daemon.policy.hash)
        price, hold = _number(tags.get(base.TAG_PRICE)), _number(tags.get(base.TAG_HOLD))
        fund = tags.get(base.TAG_FUND, "")
        parts: tuple[HoldPart, ...] = ()
        if fund and hold:
            known = self.daemon.policy.funds.get(fund)
            period = ledger.period(known, now_ms) if known else ""
            life_ms = terms.boot_timeout_ms + terms.ready_max_age_ms + terms.max_lifetime_ms
            end_ms = instance.launched_ms + life_ms + ledger.REAPING_LAG_MS
            parts = (HoldPart(fund, period, instance.launched_ms, end_ms, hold),)
        log.warning("adopting machine %s of %s", instance.ref, self.name, extra={"runner": instance.runner_id})
        return m.MachineAdopted(
            now_ms,
            instance.runner_id,
            instance.ref,
            tags.get(base.TAG_TYPE, ""),
            self._offer(instance),
            price,
            fund,
            parts,
            terms,
            instance.launched_ms,
        )

    def _offer(self, instance: Instance) -> Offer:
        purchase = Purchase(instance.tags.get(base.TAG_PURCHASE, Purchase.ON_DEMAND))
        for offer in self.world.offers.get(self.name, ()):
            if (offer.zone, offer.instance_type, offer.purchase) == (
                instance.zone,
                instance.instance_type,
                purchase,
            ):
                return offer
        return Offer(self.name, instance.region, instance.zone, instance.instance_type, purchase, None, Hardware())


def _terms(rtype: RunnerType | None, policy_hash: str) -> LaunchTerms:
    """The present terms of the type: those of the lost record cannot be known."""
    known = rtype or RunnerType("", (), Hardware())
    return LaunchTerms(
        policy_hash=policy_hash,
        access=access_json(known),
        labels=known.labels,
        image="",
        boot_timeout_ms=known.boot_timeout_ms,
        register_timeout_ms=known.register_timeout_ms,
        idle_timeout_ms=known.idle_timeout_ms,
        ready_max_age_ms=known.ready_max_age_ms,
        max_lifetime_ms=known.max_lifetime_ms,
        userdata=known.bootstrap == "userdata",
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
