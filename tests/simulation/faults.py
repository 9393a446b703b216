"""The fault catalogue: every kind, how it begins and ends, and what a seed draws from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from providers.sim.settings import Fault as LaunchFault
from tests.simulation.replica import LEASE_S, Replica

if TYPE_CHECKING:
    from tests.simulation.world import SimWorld

LATEST_S = 420.0
"""Faults begin before this and none lasts beyond `LATEST_S + LONGEST_S`."""
LONGEST_S = 150.0

CHANCES: dict[str, tuple[float, float]] = {
    # kind -> least and greatest probability of a call while it lasts
    "redis_answer_lost": (0.02, 0.2),
    **{f"cloud_{fault}": (0.1, 0.7) for fault in LaunchFault},
    "cloud_forgets_key": (0.3, 1.0),
    "cloud_preempted": (0.2, 0.8),
    "cloud_zombie": (0.3, 1.0),
    "cloud_orphan": (0.3, 1.0),
    "cloud_stale_list": (0.2, 0.9),
    "cloud_partial_list": (0.2, 0.9),
    "cloud_429": (0.2, 0.9),
    "cloud_5xx": (0.2, 1.0),
    "cloud_hangs": (0.05, 0.4),
    "cloud_stop_answer_lost": (0.3, 1.0),
    "github_409": (0.1, 0.6),
    "github_422": (0.3, 0.9),
    "github_limit": (0.1, 0.8),
    "github_retry_after": (0.1, 0.9),
    "github_5xx": (0.1, 1.0),
    "github_token": (0.1, 0.7),
    "github_jit_answer_lost": (0.2, 0.9),
    "github_success_then_error": (0.2, 0.9),
    "github_stale_busy": (0.5, 1.0),
    "github_false_busy": (0.2, 0.9),
    "github_omits": (0.1, 0.8),
    "callback_lost": (0.3, 1.0),
    "webhook_lost": (0.2, 1.0),
    "webhook_doubled": (0.3, 1.0),
    "webhook_late": (0.3, 1.0),
    "webhook_forged": (0.3, 0.8),
    "webhook_malformed": (0.3, 0.8),
    "webhook_oversize": (0.3, 0.8),
    "webhook_other": (0.3, 0.8),
}
EFFECTS = ("create", "stop", "jit", "delete", "commit", "append", "put_jit")


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault of a schedule. `chance` counts for the kinds of `CHANCES`."""

    at_s: float
    kind: str
    lasts_s: float
    chance: float = 1.0


def draw(dice: random.Random, kinds: Sequence[str]) -> list[Strike]:
    """Three to eight faults of these kinds."""
    strikes: list[Strike] = []
    for _ in range(dice.randint(3, 8) if kinds else 0):
        kind = dice.choice(kinds)
        least, most = CHANCES.get(kind, (1.0, 1.0))
        strikes.append(
            Strike(dice.uniform(2, LATEST_S), kind, dice.uniform(10, LONGEST_S), dice.uniform(least, most))
        )
    return sorted(strikes, key=lambda strike: strike.at_s)


def begin(world: SimWorld, strike: Strike) -> None:
    """Let it happen now."""
    world.checker.tell(f"FAULT {strike.kind} for {strike.lasts_s:.0f} s at {strike.chance:.0%}")
    if strike.kind in CHANCES:
        world.weather.begin(strike.kind, strike.chance)
        world.loop.call_later(strike.lasts_s, world.weather.end, strike.kind)
    else:
        EVENTS[strike.kind](world, strike)


# ---- processes ---------------------------------------------------------------------------------------------


def _victim(world: SimWorld) -> Replica | None:
    """The leader, mostly."""
    alive = [replica for replica in world.replicas if not replica.dead]
    leaders = [replica for replica in alive if replica.leads]
    return world.dice.choice(leaders if leaders and world.dice.random() < 0.8 else alive) if alive else None


def _kill(world: SimWorld, strike: Strike) -> None:
    if victim := _victim(world):
        world.weather.hits["kill"] += 1
        victim.process.kill()


def _kill_in_work(world: SimWorld, strike: Strike) -> None:
    """At some await of whatever it does then."""
    if victim := _victim(world):
        world.weather.hits["kill_in_work"] += 1
        victim.process.fuse = world.dice.randint(1, 120)


def _kill_at(when: str, effect: str) -> Callable[[SimWorld, Strike], None]:
    def act(world: SimWorld, strike: Strike) -> None:
        armed = world.wire.kill_before if when == "before" else world.wire.kill_after
        armed.append(effect)

    return act


def _pause(world: SimWorld, strike: Strike) -> None:
    if victim := _victim(world):
        world.weather.hits["pause"] += 1
        victim.process.stop()
        process = victim.process

        def resume() -> None:
            if not process.dead and any(other.leads for other in world.replicas if other is not victim):
                world.weather.hits["two_leaders"] += victim.leads
            process.resume()

        world.loop.call_later(LEASE_S + strike.lasts_s / 3, resume)


def _sigterm(world: SimWorld, strike: Strike) -> None:
    if victim := _victim(world):
        world.weather.hits["sigterm"] += 1
        victim.drain()


# ---- Redis -------------------------------------------------------------------------------------------------


def _stall(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["redis_stall"] += 1
    world.redis.stalled_until_s = world.loop.now + strike.lasts_s / 8


def _restart(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["redis_restart"] += 1
    world.server.restart()
    world.redis.disconnect(strike.lasts_s / 15)


def _fail_over(world: SimWorld, strike: Strike) -> None:
    replica = world.server.snapshot()

    def lose() -> None:
        world.weather.hits["redis_failover"] += 1
        world.server.fail_over(replica)
        world.checker.store_lost()
        world.redis.disconnect(1.0)

    world.loop.call_later(strike.lasts_s / 10, lose)


def _wipe(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["redis_wipe"] += 1
    world.server.wipe()
    world.checker.store_lost()
    world.redis.disconnect(1.0)


def _refuse(how: str) -> Callable[[SimWorld, Strike], None]:
    def act(world: SimWorld, strike: Strike) -> None:
        world.weather.hits[f"redis_{how}"] += 1
        world.server.refuse = how
        world.loop.call_later(strike.lasts_s / 3, setattr, world.server, "refuse", "")

    return act


def _slow(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["redis_slow"] += 1
    world.redis.slow_s = world.dice.uniform(0.1, 1.2)
    world.loop.call_later(strike.lasts_s, setattr, world.redis, "slow_s", 0.0)


# ---- the rest ----------------------------------------------------------------------------------------------


def _skew(world: SimWorld, strike: Strike) -> None:
    """A clock steps by up to ten minutes, and back when the fault ends."""
    world.weather.hits["clock_step"] += 1
    replica = world.dice.choice(world.replicas)
    replica.clock.skew_ms = world.dice.choice((-1, 1)) * world.dice.randrange(1_000, 600_000)
    world.loop.call_later(strike.lasts_s, setattr, replica.clock, "skew_ms", 0)


def _wrong(world: SimWorld, strike: Strike) -> None:
    """A clock is ten minutes wrong until the faults stop."""
    world.weather.hits["clock_wrong"] += 1
    world.dice.choice(world.replicas).clock.skew_ms = world.dice.choice((-600_000, 600_000))


def _vanish(world: SimWorld, strike: Strike) -> None:
    """As soon as there is a registration without a job."""
    if world.weather.over:
        return
    if world.truth.vanish():
        world.weather.hits["github_vanished"] += 1
    else:
        world.loop.call_later(0.1, _vanish, world, strike)


def _reload(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["policy_reload"] += 1
    world.checker.policy_reloaded()
    world.activate(world.scenario.other_policy)
    world.loop.call_later(strike.lasts_s, world.activate, world.scenario.policy)


def _bad_reload(world: SimWorld, strike: Strike) -> None:
    world.weather.hits["policy_bad_reload"] += world.read_bad_policy()


EVENTS: dict[str, Callable[[SimWorld, Strike], None]] = {
    "kill": _kill,
    "kill_in_work": _kill_in_work,
    **{f"kill_{when}_{effect}": _kill_at(when, effect) for when in ("before", "after") for effect in EFFECTS},
    "pause": _pause,
    "sigterm": _sigterm,
    "redis_stall": _stall,
    "redis_restart": _restart,
    "redis_failover": _fail_over,
    "redis_wipe": _wipe,
    **{f"redis_{how}": _refuse(how) for how in ("readonly", "oom", "disk_full")},
    "redis_slow": _slow,
    "clock_step": _skew,
    "clock_wrong": _wrong,
    "github_vanished": _vanish,
    "policy_reload": _reload,
    "policy_bad_reload": _bad_reload,
}
KINDS = (*CHANCES, *EVENTS)
MEASURED = (*KINDS, "two_leaders")
"""Two leaders come of a pause: the old one goes on where it was stopped, and another leads by then."""
DRAWN = (*KINDS, *3 * ("github_422", "github_false_busy", "github_vanished"))
"""What schedules draw from: kinds that few calls can meet more often."""
