"""The safeguards, each taken away in turn: what the checker must notice, and by which oracle.

A mutant rewrites one piece of the source of the real code, inside the test process alone. A piece that is not
there any more is an error: the mutant then tests nothing.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from autoscaler import inventory
from autoscaler.daemon import Daemon
from autoscaler.effects import Effects
from autoscaler.http.runner_api import RunnerApi
from autoscaler.http.webhook import Receiver
from autoscaler.sweep import Sweep
from scheduling import job_facts, ledger, machine_facts, placement, reaping, supply, upkeep
from scheduling.world import World
from tests.simulation import redis_server
from tests.simulation.world import simulate


@dataclass(frozen=True, slots=True)
class Edit:
    """In the source of `function`, `old` becomes `new`."""

    function: Callable[..., Any]
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`kinds`: the faults of its schedules; `oracle`: the promise whose breach betrays it, with `seed`."""

    name: str
    edits: tuple[Edit, ...]
    kinds: tuple[str, ...]
    oracle: str
    seed: int


MUTANTS = (
    Mutant(
        "no fence: a commit is written whoever leads",
        (Edit(redis_server.Server.commit, "if not self.leads(keys[0], commit.lease):", "if False:"),),
        ("pause", "redis_stall", "redis_restart"),
        "I8",
        0,
    ),
    Mutant(
        "no gate: launches before the provider's machines are adopted",
        (Edit(placement.shut_reason, "if gate := world.gates.get(offer.provider):", "if gate := '':"),),
        ("redis_wipe", "redis_failover"),
        "I9",
        17,
    ),
    Mutant(
        "a delivery is marked as seen before it is stored",
        (
            Edit(
                Receiver._receive,
                "await self._store(job)",
                "seen = self.__dict__.setdefault('seen', set())\n"
                "    if job.delivery in seen:\n"
                "        return 'seen'\n"
                "    seen.add(job.delivery)\n"
                "    await self._store(job)",
            ),
            Edit(Sweep.sweep, "for repository in await self._repositories():", "for repository in ():"),
        ),
        ("redis_readonly", "redis_oom", "redis_disk_full"),
        "I1",
        1,
    ),
    Mutant(
        "the same key in another zone",
        (
            Edit(
                Effects._create,
                "await provider.launch(self.spec(runner))",
                "await provider.launch(elsewhere(self.spec(runner), runner.failures))",
            ),
        ),
        ("cloud_answer_lost", "cloud_applied_late"),
        "I2",
        0,
    ),
    Mutant(
        "no write-ahead: acts before the commit",
        (
            Edit(
                Daemon._commit,
                "puts = {",
                "leader.crew.start(pending(leader.world, self.clock.now_ms()).due)\n"
                "    await asyncio.sleep(0)\n"
                "    puts = {",
            ),
        ),
        ("kill_before_commit", "redis_slow"),
        "I3",
        0,
    ),
    Mutant(
        "counters instead of levels",
        (
            Edit(
                World.weigh,
                "if demand > supply:",
                "if sum(j.pool == pool for j in self.jobs.values()) > counted(self, pool):",
            ),
            Edit(
                supply.serve,
                "if len(world.queued.get(pool, ())) <= len(world.supply.get(pool, ())):",
                "if not world.queued.get(pool)"
                " or sum(j.pool == pool for j in world.jobs.values()) <= counted(world, pool):",
            ),
        ),
        ("cloud_boot_hang", "cloud_no_capacity", "cloud_boot_failure", "github_vanished"),
        "I1",
        0,
    ),
    Mutant(
        "unknown machines are killed, not adopted",
        (
            Edit(
                inventory.Inventory._compare,
                "return None if self.daemon.observe else self._adopt(instance, now_ms)",
                "return await self._remove(instance, now_ms, 'unknown', instance.ref)",
            ),
        ),
        ("redis_wipe",),
        "I6",
        5,
    ),
    Mutant(
        "a timeout counts as a failure",
        (
            Edit(
                Effects._create,
                "except (OutcomeUnknown, TimeoutError) as error:",
                "except (OutcomeUnknown, TimeoutError) as error:\n"
                "            return m.CreateFailed(self._now(), runner.id, m.Trouble.NO_CAPACITY, 'timeout')",
            ),
        ),
        ("cloud_answer_lost", "cloud_applied_late", "cloud_hangs"),
        "I3",
        0,
    ),
    Mutant(
        "one look at an idle runner is enough",
        (
            Edit(upkeep._judge_idle, "elif not runner.suspect_ms:", "elif False:"),
            Edit(upkeep._judge_idle, "elif now_ms >= runner.suspect_ms + CONFIRM_GAP_MS:", "else:"),
        ),
        ("webhook_lost", "kill"),
        "I6",
        6,
    ),
    Mutant(
        "a registration that GitHub calls busy is taken for idle",
        (
            Edit(
                machine_facts._registration_busy,
                "move(world, runner, RunnerFact.STILL_BUSY, now_ms, changed)",
                "move(world, runner, RunnerFact.DEREGISTERED, now_ms, changed)",
            ),
            Edit(Sweep.sweep, "for repository in await self._repositories():", "for repository in ():"),
            Edit(Sweep.redeliver, "count = await self.github.redeliver_failed(since_ms)", "count = 0"),
        ),
        ("webhook_lost", "callback_lost"),
        "I6",
        16,
    ),
    Mutant(
        "no settling time after an unanswered create call",
        (Edit(reaping.provably_absent, "+ SETTLING_MS", "+ 0"),),
        ("cloud_applied_late", "cloud_transient", "cloud_429"),
        "I3",
        49,
    ),
    Mutant(
        "one list proves absence",
        (
            Edit(machine_facts._machine_absent, "if not provably_absent(runner, event.at_ms):", "if False:"),
            Edit(machine_facts._machine_absent, "if runner.absences >= 2:", "runner.absences = 2\n    if True:"),
        ),
        ("cloud_stale_list",),
        "I3",
        0,
    ),
    Mutant(
        "ranks go down: a late webhook undoes a newer one",
        (Edit(job_facts._job_reported, "elif JOB_RANK[event.state] <= JOB_RANK[job.state]:", "elif False:"),),
        ("webhook_late", "webhook_doubled"),
        "I7",
        0,
    ),
    Mutant(
        "a hold is released when the stop is accepted",
        (
            Edit(
                machine_facts._stop_accepted,
                "runner.failures = 0",
                "changed |= ledger.release(world.funds, runner); runner.failures = 0",
            ),
        ),
        (),
        "I5",
        0,
    ),
    Mutant(
        "holds are not counted against a fund",
        (Edit(ledger.used, "+ account.held.get(name, 0)", "+ 0"),),
        (),
        "I5",
        7,
    ),
    Mutant(
        "the old registration is not deleted before another is made",
        (
            Edit(
                Effects._create_jit,
                "await self.github.delete_runner(runner.target, found.id)",
                "name += '-again'",
            ),
        ),
        ("github_jit_answer_lost", "github_success_then_error", "kill_after_jit"),
        "I2",
        0,
    ),
    Mutant(
        "the access rules of a type are not looked at",
        (
            Edit(
                supply.route,
                "found = matcher(draft.policy).route(job, draft.now_ms)",
                "found = open_to_all(draft, job)",
            ),
        ),
        (),
        "I10",
        0,
    ),
    Mutant(
        "a config is handed to every machine of a runner",
        (Edit(RunnerApi._only_machine, "if await self._store.claim(runner_id, nonce or _ANONYMOUS):", "if 1:"),),
        ("cloud_forgets_key",),
        "I2",
        12,
    ),
    Mutant(
        "a second machine of a runner is removed while its job may run on it",
        (Edit(inventory.Inventory._superfluous, "instance.ref not in self._unwanted", "True"),),
        ("cloud_forgets_key",),
        "I6",
        0,
    ),
    Mutant(
        "one list opens the gates of a store that lost its tail",
        (Edit(machine_facts.intents_lost, "world.proof_ms = world.taken_ms + CONSISTENCY_MS", "return"),),
        ("redis_wipe", "redis_failover", "cloud_stale_list"),
        "I9",
        3,
    ),
    Mutant(
        "a JIT config is written into an event",
        (
            Edit(
                Effects._create_jit,
                "return stored",
                "return m.EffectFailed(self._now(), runner.id, m.Trouble.TRANSIENT, jit.config)",
            ),
        ),
        (),
        "I11",
        0,
    ),
)


TRIES = 40


def caught(mutant: Mutant) -> tuple[int, str] | None:
    """The first seed, from the mutant's own on, with which its oracle speaks, and what it says."""
    for seed in dict.fromkeys((mutant.seed, *range(TRIES))):
        with switched_off(mutant):
            found = simulate(seed, mutant.kinds).violations
        for text in found:
            if text.startswith(f"{mutant.oracle}:"):
                return seed, text
    return None


@contextmanager
def switched_off(mutant: Mutant) -> Iterator[None]:
    """The safeguard is gone inside the block."""
    with ExitStack() as undo:
        sources: dict[Any, str] = {}
        for edit in mutant.edits:
            function = edit.function
            source = sources.get(function) or textwrap.dedent(inspect.getsource(function))
            if source.count(edit.old) != 1:
                raise AssertionError(f"{mutant.name}: {function.__qualname__} has no single {edit.old!r} any more")
            sources[function] = source.replace(edit.old, edit.new)
        for function, source in sources.items():
            undo.callback(setattr, function, "__code__", function.__code__)
            _replace(function, source)
        yield


def _replace(function: Any, source: str) -> None:
    made: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    code = compile(source, inspect.getfile(function), "exec", flags=flags, dont_inherit=True)
    exec(code, {**function.__globals__}, made)
    function.__globals__.update(_HELPERS)
    function.__code__ = made[function.__name__].__code__


def _elsewhere(spec: Any, failures: int) -> Any:
    from dataclasses import replace

    return replace(spec, offer=replace(spec.offer, zone=f"{spec.offer.zone}{failures or ''}"))


def _open_to_all(draft: Any, job: Any) -> Any:
    from scheduling.matching import Route, _pool, matcher

    rules = matcher(draft.policy)
    found = rules.route(job, draft.now_ms)
    if found.pools or not rules.types(job.labels):
        return found
    return Route(tuple(_pool(rtype, job, rules.taste(job), draft.policy) for rtype in rules.types(job.labels)))


def _counted(world: Any, pool: str) -> int:
    """Launches for this pool, failed ones too: what a counter of +1 and -1 believes."""
    return sum(runner.launched_for != "" and runner.pool == pool for runner in world.runners.values())


_HELPERS = {
    "counted": _counted,
    "elsewhere": _elsewhere,
    "open_to_all": _open_to_all,
    "ledger": ledger,
}
