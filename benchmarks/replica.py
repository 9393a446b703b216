"""One replica as a process that a storm may kill: `autoscaler serve` on a shared fast clock, with a short lease.

    python -m benchmarks.replica --epoch-ms MS --speed 5 --lease 1.0 [--die commit:after] [--stop commit:before]

Settings come from the environment, as for `serve`. It says `holder ID` on stdout once it listens. With `--die` it
kills itself (SIGKILL) at that boundary of an effect or write, in a quarter of the times that it gets there while
it leads. With `--stop` it stops itself (SIGSTOP) there, the first time after SIGUSR1. It says so before.
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
from typing import Any, get_args

import uvloop

from autoscaler import logs
from autoscaler.clock import Clock
from autoscaler.effects import Effects
from autoscaler.policy.file import load
from autoscaler.serve import Replica
from autoscaler.settings import from_env
from autoscaler.store.store import Store
from scheduling import messages as m

EFFECTS = tuple(effect.__name__ for effect in get_args(m.Command))
WRITES = ("commit", "append", "put_jit")
"""Methods of the store that write; who appends may also be a receiver of webhooks in the leader's process."""
BOUNDARIES = tuple(f"{name}:{when}" for name in (*EFFECTS, *WRITES) for when in ("before", "after"))
CHANCE = 0.25


def shared_clock(epoch_ms: int, speed: float) -> Clock:
    """The same time in every process that names the same epoch (real Unix ms) and speed."""
    past_ms = time.time() * 1000 - epoch_ms
    return Clock(speed, epoch_ms + int(past_ms * speed))


def end_at(boundary: str, ends: Callable[[], bool], end: Callable[[], None]) -> None:
    """From now on `end` is called there, whenever `ends` says so."""
    name, _, when = boundary.partition(":")

    def around(real: Callable[..., Awaitable[Any]], hit: Callable[..., bool]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **options: Any) -> Any:
            now = hit(*args) and ends()
            if now and when == "before":
                end()
            result = await real(*args, **options)
            if now and when == "after":
                end()
            return result

        return wrapped

    if name in WRITES:
        setattr(Store, name, around(getattr(Store, name), lambda *_: True))
    else:
        Effects.perform = around(  # type: ignore[method-assign, assignment]
            Effects.perform, lambda _, command: type(command).__name__ == name
        )


def die_at(boundary: str, replica: Replica) -> None:
    def die() -> None:
        os.write(1, f"dies {boundary}\n".encode())  # straight to the pipe: nothing is flushed any more
        os.kill(os.getpid(), signal.SIGKILL)

    end_at(boundary, lambda: replica.daemon.leader is not None and random.random() < CHANCE, die)


def stop_at(boundary: str) -> None:
    armed = False

    def arm() -> None:
        nonlocal armed
        armed = True

    def stop() -> None:
        nonlocal armed
        if armed:
            armed = False
            os.write(1, f"stops {boundary}\n".encode())
            os.kill(os.getpid(), signal.SIGSTOP)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, arm)
    end_at(boundary, lambda: armed, stop)


async def run(clock: Clock, lease_s: float, die: str, stop: str) -> None:
    env = dict(os.environ)
    replica = Replica(from_env(env), load(Path(env["AUTOSCALER_POLICY"]), clock.now_ms()), clock)
    replica.daemon.lease_s = lease_s
    if die:
        die_at(die, replica)
    if stop:
        stop_at(stop)
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
    parser.add_argument("--die", choices=BOUNDARIES, default="", help="where this process kills itself")
    parser.add_argument("--stop", choices=BOUNDARIES, default="", help="where it stops itself")
    args = parser.parse_args()
    logs.set_up()
    uvloop.run(run(shared_clock(args.epoch_ms, args.speed), args.lease, args.die, args.stop))


if __name__ == "__main__":
    main()
