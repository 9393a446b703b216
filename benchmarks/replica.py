"""One replica as a process that a storm may kill: `autoscaler serve` on a shared fast clock, with a short lease.

    python -m benchmarks.replica --epoch-ms MS --speed 5 --lease 1.0 [--die CreateMachine:after]

Settings come from the environment, as for `serve`. It says `holder ID` on stdout once it listens. With `--die` it
kills itself (SIGKILL) at that boundary of an effect or commit, in a quarter of the times that it gets there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from autoscaler import logs
from autoscaler.clock import Clock
from autoscaler.effects import Effects
from autoscaler.policy.file import load
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from autoscaler.store.store import Store

EFFECTS = ("CreateMachine", "CreateJit", "DeleteRegistration", "StopMachine", "FetchRun")
BOUNDARIES = tuple(f"{name}:{when}" for name in (*EFFECTS, "commit") for when in ("before", "after"))
CHANCE = 0.25


def shared_clock(epoch_ms: int, speed: float) -> Clock:
    """The same time in every process that names the same epoch (real Unix ms) and speed."""
    past_ms = time.time() * 1000 - epoch_ms
    return Clock(speed, epoch_ms + int(past_ms * speed))


def die_at(boundary: str) -> None:
    """From now on this process may end there. What it says is flushed by a write to the pipe itself."""
    name, _, when = boundary.partition(":")

    def around(real: Callable[..., Awaitable[Any]], hit: Callable[..., bool]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **options: Any) -> Any:
            dies = hit(*args) and random.random() < CHANCE
            if dies and when == "before":
                _die(boundary)
            result = await real(*args, **options)
            if dies:
                _die(boundary)
            return result

        return wrapped

    if name == "commit":
        Store.commit = around(Store.commit, lambda *_: True)  # type: ignore[method-assign, assignment]
    else:
        Effects.perform = around(  # type: ignore[method-assign, assignment]
            Effects.perform, lambda _, command: type(command).__name__ == name
        )


def _die(boundary: str) -> None:
    os.write(1, f"dies {boundary}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)


async def run(clock: Clock, lease_s: float) -> None:
    env = dict(os.environ)
    replica = Replica(from_env(env), load(Path(env["AUTOSCALER_POLICY"]), clock.now_ms()), clock)
    replica.daemon.lease_s = lease_s
    await replica.start()
    os.write(1, f"holder {replica.daemon.holder}\n".encode())
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await replica.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epoch-ms", type=int, required=True, help="real Unix ms at which the fast clock began")
    parser.add_argument("--speed", type=float, default=1.0, help="of the clock")
    parser.add_argument("--lease", type=float, default=1.0, help="real seconds")
    parser.add_argument("--die", choices=BOUNDARIES, help="where this process kills itself")
    args = parser.parse_args()
    logs.set_up()
    if args.die:
        die_at(args.die)
    uvloop.run(run(shared_clock(args.epoch_ms, args.speed), args.lease))


if __name__ == "__main__":
    main()
