"""The bench of kind ssh: one host behind a real OpenSSH server, with the launcher that needs no systemd."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from providers.base import TAG_FLEET, TAG_RUNNER, Instance, LaunchSpec, ProviderConfig
from providers.conformance import TOKEN, Fault
from providers.ssh import KIND, SshSettings
from providers.ssh.hardware import command_lines
from tests.providers.ssh_server import Sshd

WORDS = {
    Fault.REFUSED: "bare",  # its launcher is not installed
    Fault.ANSWER_LOST: "answer_lost",
    Fault.REQUEST_LOST: "request_lost",
    Fault.APPLIED_LATE: "late",
    Fault.LIST_THROTTLED_ONCE: "request_lost once",
    Fault.LIST_BREAKS: "request_lost",
}
SKIPPED = {
    Fault.QUOTA: "a donated host has no quota",
    Fault.THROTTLED: "sshd throttles nobody; a host that is away has no capacity",
    Fault.LIST_STALE: "a host answers for itself: its list is never stale",
}


class SshBench:
    kind = KIND

    def __init__(self, sshd: Sshd, clock: Any, folder: Path, **settings: Any) -> None:
        self.sshd = sshd
        self.clock: Any = clock
        self.folder = folder / "state"
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._nobody = socket.create_server(("127.0.0.1", 0))  # accepts nothing: machines wait for it
        nowhere = f"http://127.0.0.1:{self._nobody.getsockname()[1]}"
        self.boot = {
            "fleet": "fleet",
            "runner_id": "r0",
            "url": nowhere,
            "token": TOKEN,
            "ready_seconds": 3600,
            "lifetime_seconds": 3600,
            "access": {"repositories": ["*"], "forks": "allow", "events": []},
        }
        self.host: dict[str, Any] = {
            "name": "attic",
            "address": "127.0.0.1",
            "port": sshd.port,
            "user": sshd.user,
            "host_key": sshd.host_key,
            "slots": 2,
            "cpus": 1,
            "memory_gib": 1,
        }
        chosen = {
            "hosts": [self.host],
            "key_file": sshd.key_file,
            "launcher": "bubblewrap",
            "folder": self.folder,
            "runner": {"url": f"{nowhere}/runner.tar.gz"},
        }
        self.config = ProviderConfig(
            name="lab",
            fleet="fleet",
            regions=(),
            endpoint=None,
            settings=SshSettings.model_validate({**chosen, **settings}),
            needs={},
        )

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux", **changes: Any) -> LaunchSpec:
        spec = LaunchSpec(
            fleet=fleet,
            runner_id=f"r{number:020}",
            runner_type=runner_type,
            offer=KIND.catalogue(self.config)[0],
            price=0,
            fund="gift",
            hold=0,
            image="",
            disk_gib=0,
            boot=json.dumps(self.boot),
            lifetime_ms=600_000,
        )
        return replace(spec, **changes)

    def leases(self) -> list[dict[str, Any]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("slots/*/lease.json"))]

    def running(self) -> set[str]:
        """Names of machines with a live process."""
        words = {word for line in command_lines().values() for word in line}
        return {Path(word).name for word in words if word.startswith(str(self.folder))}

    async def machines(self) -> list[str]:
        running = self.running()
        return [lease["runner_id"] for lease in self.leases() if lease["name"] in running]

    async def inject(self, fault: Fault) -> None:
        if fault in SKIPPED:
            pytest.skip(SKIPPED[fault])
        if fault is Fault.NO_CAPACITY:
            for number in range(self.host["slots"]):
                slot = self.folder / f"slots/{number}"
                slot.mkdir(parents=True, exist_ok=True)
                (slot / "cooled.json").write_text(json.dumps({"until": 2**33, "why": "test"}))
        elif fault in (Fault.UNAUTHORIZED, Fault.LIST_UNAUTHORIZED):
            self.sshd.admit(False)
        else:
            self.sshd.fault = WORDS[fault]

    async def clear(self) -> None:
        self.sshd.fault = ""
        self.sshd.admit(True)
        for file in self.folder.glob("slots/*/cooled.json"):
            file.unlink()

    async def arrive(self) -> None:
        self.sshd.arrive()

    async def fill(self, count: int) -> None:
        """Leases as the program writes them, and one process that stands for all their machines."""
        homes = []
        for number in range(count):
            runner = f"r{number:020}"
            slot = self.folder / f"slots/{number}"
            slot.mkdir(parents=True)
            lease = {
                "name": f"fleet-{runner}",
                "fleet": "fleet",
                "runner_id": runner,
                "tags": {TAG_FLEET: "fleet", TAG_RUNNER: runner},
                "instance_type": "slot-1c-1g",
                "launched_ms": 1,
                "lifetime_s": 600,
                "started": True,
            }
            (slot / "lease.json").write_text(json.dumps(lease))
            homes.append(str(slot / lease["name"]))
        self._sleeper(*homes)

    async def strangers(self) -> None:
        """Somebody else's process on the host."""
        self._sleeper()

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        runner_id = instance.ref.partition("/")[2]
        while pids := [
            pid for pid, line in command_lines().items() if any(word.endswith(runner_id) for word in line)
        ]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _sleeper(self, *words: str) -> None:
        self._helpers.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *words]))

    def close(self) -> None:
        self.sshd.fault = ""
        self.sshd.admit(True)
        self._nobody.close()
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        while pids := [
            pid
            for pid, line in command_lines().items()
            if line[0] in ("timeout", "bwrap") and any(word.startswith(str(self.folder)) for word in line)
        ]:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
