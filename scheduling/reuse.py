"""Machines that exist already, and which pool may have them: free ones first, then some that boot for a flood."""

from __future__ import annotations

from scheduling import messages as m
from scheduling import placement
from scheduling.draft import Draft
from scheduling.fairness import Turns
from scheduling.lifecycle import RunnerState
from scheduling.matching import Taste
from scheduling.model import Job, Pool, Runner, Verdict
from scheduling.placement import Wish
from scheduling.policy import Policy
from scheduling.world import is_supply


def take_free(draft: Draft, pool_key: str, job: Job) -> bool:
    """Assign a free machine of the pool's type whose provider and payers this pool may use, the readiest first."""
    world = draft.world
    pool = world.pools[pool_key]
    found: Runner | None = None
    for runner_id in world.free.get(pool.runner_type, ()):
        runner = world.runners[runner_id]
        if not _usable(draft, pool, runner):
            continue
        if runner.state is RunnerState.READY:
            found = runner
            break
        found = found or runner
    if found is None:
        return False
    draft.decide(m.RunnerAssigned(draft.now_ms, found.id, pool.key, pool.target, pool.repository, job.queued_ms))
    return True


def _usable(draft: Draft, pool: Pool, runner: Runner) -> bool:
    """Whether this pool may have the machine: its provider, its payers, and that nobody wants it gone."""
    if pool.providers is not None and runner.offer.provider not in pool.providers:
        return False
    return not drained(draft, runner) and _payable(draft.policy, pool, runner)


class Booting:
    """Machines that boot for sharers of many machines, taken over by those of few when no other can be had.

    A machine gets its registration late, so this costs nothing; and a flood that was there first keeps nobody
    waiting for longer than a boot while its own machines still come up.
    """

    def __init__(self, draft: Draft, turns: Turns) -> None:
        self._draft, self._turns = draft, turns
        self._types: dict[str, dict[str, list[Runner]]] | None = None

    def _of(self, runner_type: str) -> dict[str, list[Runner]]:
        """By repository, the machine that boots longest last."""
        if self._types is None:
            self._types = {}
            runners, starting = self._draft.world.runners, self._draft.world.by_state[RunnerState.STARTING]
            for runner in map(runners.__getitem__, reversed(starting)):
                if runner.pool and is_supply(runner) and not runner.terms.userdata:  # those are registered there
                    by_repository = self._types.setdefault(runner.runner_type, {})
                    by_repository.setdefault(runner.repository, []).append(runner)
        return self._types.get(runner_type, {})

    def has(self, runner_type: str) -> bool:
        return bool(self._of(runner_type))

    def owed(self, pool: Pool) -> str:
        """Whose booting machine this pool's sharer may take; empty when nobody has two more by weight."""
        turns = self._turns
        rivals = [name for name, runners in self._of(pool.runner_type).items() if runners]
        richest = max(rivals, key=turns.machines, default="")
        if not richest or turns.machines(richest, -1) < turns.machines(pool.repository, 1):
            return ""
        return richest

    def take_over(self, pool_key: str, job: Job) -> bool:
        draft = self._draft
        pool = draft.world.pools[pool_key]
        repository = self.owed(pool)
        runners = self._of(pool.runner_type).get(repository, []) if repository else []
        runner = next((runner for runner in reversed(runners) if _usable(draft, pool, runner)), None)
        if runner is None:
            return False
        runners.remove(runner)
        self._turns.launched(repository, -1)
        given = f"its machine went to {pool.repository}, which has fewer: fair share"
        draft.plan.refusals[runner.pool] = (Verdict(pool.runner_type, refusal=given),)
        draft.decide(m.RunnerReleased(draft.now_ms, runner.id))
        assigned = m.RunnerAssigned(draft.now_ms, runner.id, pool.key, pool.target, pool.repository, job.queued_ms)
        draft.decide(assigned)
        draft.plan.refusals.pop(pool.key, None)
        return True


def _payable(policy: Policy, pool: Pool, runner: Runner) -> bool:
    """Whether every fund that holds money for the runner may pay for the pool's repository."""
    wish = Wish(policy.runner_types[pool.runner_type], pool.repository, pool.providers, Taste())
    funds = [policy.funds.get(part.fund) for part in runner.hold]
    return all(fund is not None and placement.pays(fund, wish, runner.offer) for fund in funds)


def drained(draft: Draft, runner: Runner) -> bool:
    """Whether an operator, or the policy by no longer naming its provider or type, wants no more of it.

    Nobody may use a free machine that is paid by a fund which the policy does not name any more.
    """
    provider, rtype = runner.offer.provider, runner.runner_type
    if runner.adopted and runner.state is RunnerState.STARTING:
        return False  # it may run a job that nobody has told of yet
    if provider not in draft.policy.providers or rtype not in draft.policy.runner_types:
        return True
    if not runner.pool and any(part.fund not in draft.policy.funds for part in runner.hold):
        return True
    switches = draft.world.switches
    return bool(switches) and any(name in switches for name in ("all", f"provider:{provider}", f"type:{rtype}"))
