"""Lines of a recording that tell of machines: `event: "runner"`, one for each that ended, written by the leader.

What a backtest measures its world by, and what it compares its figures with (`backtest --compare-live`). Nothing
in them needs redaction: names of offers and funds are the operators' own, jobs are ids.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scheduling import ledger
from scheduling import messages as m
from scheduling.model import MicroUSD, Runner, UnixMs
from scheduling.world import World

EVENT = "runner"


class MachineLine(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One machine that is gone, or a create call that was refused. Times are Unix ms, 0: did not come to that.

    `cost` in micro-dollars over its life; `job` is `ID.ATTEMPT` of what it ran; `trouble` of a refused create.
    """

    runner: str
    offer: str
    provider: str
    fund: str = ""
    job: str = ""
    trouble: str = ""
    taken: bool = False
    planned_ms: UnixMs = 0
    created_ms: UnixMs = 0
    booted_ms: UnixMs = 0
    jit_ms: UnixMs = 0
    registered_ms: UnixMs = 0
    life_ms: int = 0
    cost: MicroUSD = 0


DECODER = msgspec.json.Decoder(MachineLine)


def line_of(event: m.Event, world: World) -> MachineLine | None:
    """What there is to record of this event; None for most. `world` has evolved with it."""
    if isinstance(event, m.RunnerSettled):
        return _ended(world.runners[event.runner_id], event.cost)
    if isinstance(event, m.CreateFailed) and (runner := world.runners.get(event.runner_id)):
        return MachineLine(
            runner.id,
            runner.offer.key,
            runner.offer.provider,
            trouble=event.trouble.value,
            planned_ms=runner.planned_ms,
        )
    return None


def _ended(runner: Runner, cost: MicroUSD) -> MachineLine:
    start_ms, end_ms = ledger.lifetime(runner)
    return MachineLine(
        runner=runner.id,
        offer=runner.offer.key,
        provider=runner.offer.provider,
        fund=runner.fund,
        job=runner.running,
        taken=bool(runner.taken_ms),
        planned_ms=runner.planned_ms,
        created_ms=runner.created_ms,
        booted_ms=runner.booted_ms,
        jit_ms=runner.jit_ms,
        registered_ms=runner.registered_ms,
        life_ms=end_ms - start_ms,
        cost=cost,
    )


def recorded(line: MachineLine, at: str | None) -> dict[str, Any]:
    """As it stands in the file; its delivery id makes a second leader's line of the same end count once."""
    return {
        "at": at,
        "event": EVENT,
        "delivery": f"runner-{line.runner}-{line.trouble}",
        "payload": msgspec.to_builtins(line),
    }
