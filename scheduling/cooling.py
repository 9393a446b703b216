"""Cooldowns: scopes that we have stopped asking for. The only "disabled" state there is.

A scope cools for 3 minutes, doubling to 30, then lets one probe through; the probe's success closes the case.
"""

from __future__ import annotations

from scheduling.lifecycle import SUPPLY
from scheduling.messages import Trouble
from scheduling.model import Cooldown, DurationMs, Offer, Runner, UnixMs
from scheduling.world import Key, World

FIRST_MS: DurationMs = 180_000
LONGEST_MS: DurationMs = 1_800_000

BOOT_FAILURES = 3
"""Machines of one image in a row that never booted before the image cools."""


def image_scope(image: str, offer: Offer) -> str:
    """The scope of an image by the provider's reference; machines without one share their provider's."""
    return f"image:{image or offer.provider}"


def _scope(runner: Runner, trouble: Trouble | None) -> str:
    offer, region, provider = runner.offer.scopes
    match trouble:
        case Trouble.REFUSED if runner.terms.trial:  # the main image may be taken there
            return image_scope(runner.terms.image, runner.offer)
        case None:
            return image_scope(runner.terms.image, runner.offer)
        case Trouble.NO_CAPACITY | Trouble.REFUSED:
            return offer
        case Trouble.QUOTA:
            return region
        case Trouble.UNAUTHORIZED | Trouble.TRANSIENT | Trouble.OBSERVED:
            return provider


def cool(
    world: World, runner: Runner, trouble: Trouble | None, why: str, now_ms: UnixMs, changed: set[Key]
) -> None:
    """Cool the scope that this failure names (None: the image, whose machine never booted).

    Failures of launches that were under way when the scope cooled say nothing new and do not double the time.
    """
    clear_probes(world, runner, changed)
    if trouble is Trouble.OBSERVED:
        return
    scope = _scope(runner, trouble)
    cooldown = world.cooldowns.get(scope)
    if cooldown is None:
        cooldown = world.cooldowns[scope] = Cooldown(scope, 0, why, failures=0)
    changed.add(("cooldown", scope))
    if now_ms < cooldown.until_ms:
        return
    cooldown.failures += 1
    cooldown.why = why
    rounds = cooldown.failures - (BOOT_FAILURES - 1 if trouble is None else 0)
    if rounds > 0:
        cooldown.until_ms = now_ms + min(FIRST_MS * 2 ** (rounds - 1), LONGEST_MS)
        world.wake_at(cooldown.until_ms, "cooldown", scope)


def clear_probes(world: World, runner: Runner, changed: set[Key]) -> None:
    for cooldown in world.cooldowns.values():
        if cooldown.probe == runner.id:
            cooldown.probe = ""
            changed.add(("cooldown", cooldown.scope))


def warm(world: World, runner: Runner, changed: set[Key]) -> None:
    """The machine exists: every scope that it probed is open again, save the image, which must boot."""
    probed = [c.scope for c in world.cooldowns.values() if c.probe == runner.id]
    for scope in probed:
        if not scope.startswith("image:"):
            del world.cooldowns[scope]
            changed.add(("cooldown", scope))


def boots(world: World, runner: Runner, changed: set[Key]) -> None:
    """The machine was heard of, however late: its scopes and its image are good."""
    warm(world, runner, changed)
    scope = image_scope(runner.terms.image, runner.offer)
    if world.cooldowns.pop(scope, None):
        changed.add(("cooldown", scope))


def closed(world: World, scope: str, now_ms: UnixMs) -> str:
    """Why this scope is closed now; empty when it is open or would let a probe through."""
    cooldown = world.cooldowns.get(scope)
    if cooldown is None:
        return ""
    if now_ms < cooldown.until_ms:
        return f"cooling: {cooldown.why}"
    probe = world.runners.get(cooldown.probe)
    if cooldown.until_ms and probe is not None and probe.state in SUPPLY:
        return f"one launch is probing it after: {cooldown.why}"
    return ""


def probing(world: World, scopes: tuple[str, ...], now_ms: UnixMs) -> tuple[str, ...]:
    """The scopes that a launch now would probe."""
    return tuple(
        scope for scope in scopes if scope in world.cooldowns and 0 < world.cooldowns[scope].until_ms <= now_ms
    )
