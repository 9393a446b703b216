"""`provider check`: settings and policy in, one line a thing tried, exit code out."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable, Sequence

from autoscaler import logs
from autoscaler.cli.client import print_json
from autoscaler.cli.commands import run_loop, settings_and_policy
from autoscaler.cli.usage import OK, PROBLEMS, Unusable
from autoscaler.clock import Clock
from autoscaler.effects import Fleet
from autoscaler.onboarding.canary import Canary
from autoscaler.onboarding.check import Sample, build, check
from autoscaler.policy.file import Loaded, load
from autoscaler.settings import Settings
from providers.base import CheckLine, Provider
from scheduling.model import Purchase


def provider_check(
    name: str, policy: str | None, canary: bool, listen: tuple[str, int] | None, url: str, as_json: bool
) -> int:
    """1 when any line failed."""
    logs.set_up(level=logs.WARNING)
    settings, path = settings_and_policy(policy)
    clock = Clock()
    loaded = load(path, clock.now_ms())
    if name not in loaded.policy.providers:
        known = ", ".join(sorted(loaded.policy.providers))
        raise Unusable(f"{path} has no provider {name!r}; it names {known}")
    if canary:
        settings.require("fleet_key")
    where = (listen or (settings.host, settings.port), url or settings.public_url)
    lines: list[CheckLine] = []

    def told(line: CheckLine) -> None:
        lines.append(line)
        if not as_json:
            show(line)

    try:
        run_loop(_check(loaded, name, settings, told, where if canary else None))
    except asyncio.CancelledError:
        print("autoscaler: stopped", file=sys.stderr)
        return PROBLEMS
    bad = sum(not line.ok for line in lines)
    if as_json:
        print_json({"provider": name, "ok": not bad, "lines": [dataclasses.asdict(line) for line in lines]})
    else:
        print(f"{bad} of {len(lines)} failed" if bad else f"all {len(lines)} ok", flush=True)
    return PROBLEMS if bad else OK


def show(line: CheckLine) -> None:
    """One line; what failed is followed by what to do."""
    detail = f": {line.detail}" if line.detail else ""
    print(f"{'ok    ' if line.ok else 'FAILED'}  {line.what}{detail}", flush=True)
    if line.mend:
        print(f"        -> {line.mend}", flush=True)


async def _check(
    loaded: Loaded,
    name: str,
    settings: Settings,
    told: Callable[[CheckLine], None],
    canary: tuple[tuple[str, int], str] | None,
) -> None:
    clock = Clock()
    provider = build(loaded, name, settings.fleet, clock)
    try:
        lines, samples = await check(loaded, name, provider, settings.fleet, clock)
        for line in lines:
            told(line)
        if canary:
            (host, port), url = canary
            fleet = Fleet(settings.fleet, settings.require("fleet_key"), url)
            await _canary(provider, samples, fleet, clock, told, host, port)
    finally:
        await provider.close()


def _stop(canary: asyncio.Task[object]) -> None:
    """Once: a second signal would leave the machine behind."""
    if not canary.cancelling():
        print("destroying the canary, please wait", file=sys.stderr, flush=True)
        canary.cancel()


async def _canary(
    provider: Provider,
    samples: Sequence[Sample],
    fleet: Fleet,
    clock: Clock,
    told: Callable[[CheckLine], None],
    host: str,
    port: int,
) -> None:
    """The cheapest sample that cannot be taken away. Ctrl-C and SIGTERM end it: the machine goes first."""
    samples = [each for each in samples if not each.spec.offer.refusal]
    if not samples:
        told(CheckLine("canary", False, "the policy has nothing to launch here", "see the lines above"))
        return
    sample = min(samples, key=lambda each: (each.spec.offer.purchase is Purchase.SPOT, each.spec.price))
    this = asyncio.current_task()
    assert this
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stop, this)
    try:
        await Canary(provider, sample, fleet, clock, told).run(host, port)
    except OSError as error:
        why = f"cannot listen on {host}:{port} for the machine's reports: {error.strerror or error}"
        told(CheckLine("canary", False, why, "name a free --listen HOST:PORT and the --url that leads there"))
