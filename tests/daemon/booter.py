"""Machines of the stand-ins come alive: those only keep records, and `Booter` runs the sandbox's program for each.

The program gets the launch data that the machine's user data carries. Its end is the machine's own shutdown, which
each vendor takes in its own way.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

from autoscaler.sandbox.machines import Machines
from tests.providers.arm_cloud import ArmCloud
from tests.providers.gce_cloud import GceCloud
from tests.providers.moto_cloud import MotoCloud

LOOK_S = 0.05
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Record:
    """One machine at a stand-in: its name there, its user data, and what its own shutdown does to it."""

    name: str
    user_data: bytes
    shut_down: Callable[[], object]


class Booter:
    """Starts the program for every machine in `records` (by kind), and ends it when the machine is gone."""

    def __init__(self) -> None:
        self.records: dict[str, Callable[[], Iterator[Record]]] = {}
        self._programs: Machines
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    def begin(self, programs: Machines) -> None:
        self._programs = programs
        self._looking = asyncio.create_task(self._look())

    async def pod(self, boot: str) -> None:
        """A container of the cluster."""
        await self._program("kubernetes", boot)

    async def close(self) -> None:
        """A program that failed in an unforeseen way raises here."""
        tasks = [*self._running.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    async def _look(self) -> None:
        while True:
            held = {(kind, each.name): each for kind, machines in self.records.items() for each in machines()}
            for key in held.keys() - self._running.keys():
                self._running[key] = asyncio.create_task(self._live(key[0], held[key]))
            for key in self._running.keys() - held.keys():
                self._running[key].cancel()
            await asyncio.sleep(LOOK_S)

    async def _live(self, kind: str, record: Record) -> None:
        await self._program(kind, boot_data(record.user_data))
        record.shut_down()

    async def _program(self, kind: str, boot: str) -> None:
        spec = SimpleNamespace(boot=boot, offer=SimpleNamespace(provider=kind))
        await self._programs.run(SimpleNamespace(spec=spec, boot_fails=False))  # type: ignore[arg-type]


def boot_data(user_data: bytes) -> str:
    """The launch data that cloud-init would write; it takes user data gzipped or plain."""
    text = gzip.decompress(user_data) if user_data.startswith(GZIP) else user_data
    plan = json.loads(text.partition(b"\n")[2])
    (boot,) = [file["content"] for file in plan["write_files"] if file["path"].endswith("/boot.json")]
    return str(boot)


def on_ec2(moto: MotoCloud) -> Iterator[Record]:
    """A guest's shutdown ends the machine: its shutdown behaviour is `terminate`."""
    backend = moto.backend()
    for machine in list(backend.all_instances()):
        if machine.state not in ("shutting-down", "terminated"):
            data = base64.b64decode(str(machine.user_data))
            yield Record(machine.id, data, partial(backend.terminate_instances, [machine.id]))


def on_compute_engine(cloud: GceCloud) -> Iterator[Record]:
    """A guest's shutdown stops the machine; it exists until it is deleted."""
    with cloud.lock:
        held = list(cloud.machines.items())
    for (zone, name), machine in held:
        items = {item["key"]: item["value"] for item in machine["metadata"]["items"]}
        yield Record(f"{zone}/{name}", items["user-data"].encode(), partial(machine.update, status="TERMINATED"))


def on_arm(cloud: ArmCloud) -> Iterator[Record]:
    """A guest's shutdown changes nothing: the machine is billed until it is deleted."""
    with cloud.lock:
        held = list(cloud.machines.items())
    for name, machine in held:
        if machine["properties"]["provisioningState"] == "Succeeded":
            data = base64.b64decode(machine["properties"]["osProfile"]["customData"])
            yield Record(name, data, bool)
