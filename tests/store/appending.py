"""A daemon in small, to be killed: opens `embedded:DIR`, appends for ever, prints how much was acknowledged.

    python appending.py DIR [orphan]

With `orphan` the server is not told to die with its parent, as on systems other than Linux.
"""

from __future__ import annotations

import asyncio
import sys

from autoscaler.store import embedded
from autoscaler.store.store import Store
from scheduling.messages import Stage, StageReported


async def main(directory: str, orphan: bool) -> None:
    if orphan:
        embedded._die_with_parent = lambda: None
    store = Store(f"embedded:{directory}", "test", bytes(32))
    await store.open()
    assert store._embedded
    print(store._embedded.pid, flush=True)
    number = 0
    while True:
        events = [StageReported(number + i, "r" + "a" * 20, Stage.BOOTED) for i in range(10)]
        await asyncio.gather(*(store.append([event]) for event in events))
        number += 10
        print(number, flush=True)


asyncio.run(main(sys.argv[1], "orphan" in sys.argv[2:]))
