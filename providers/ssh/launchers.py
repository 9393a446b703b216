"""How a machine is started in a slot of a donated host, and how it is ended: a systemd unit, or a sandbox.

Runs on the host: standard library only, Python 3.9 on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from typing import Any

from providers.ssh.hardware import command_lines

PROGRAM = ["/usr/bin/python3", "-I"]
GONE_S = 15
PATH = os.environ.get("PATH") or os.defpath


class No(Exception):
    """The call failed and changed nothing. `kind` is what the adapter makes an error of."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Systemd:
    """A transient unit a machine: own user, empty folder, limits of the slot, a timer that needs no program."""

    needs = ("systemd-run", "systemctl")

    def running(self) -> set[str]:
        states = "--state=active,activating,deactivating,reloading"
        done = run(["systemctl", "list-units", "--plain", "--no-legend", states, "autoscaler-*.service"])
        units = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        return {unit[len("autoscaler-") : -len(".service")] for unit in units}

    def folder(self, home: str, name: str) -> str:
        """The machine's own, as it sees it."""
        return f"/var/lib/autoscaler-{name}"

    def work(self, home: str, name: str) -> str:
        """The same, as the host sees it."""
        return f"/var/lib/private/autoscaler-{name}"

    def start(self, home: str, name: str, request: dict[str, Any]) -> None:
        done = run(self.command(home, name, request))
        if done.returncode:
            raise No("refused", f"systemd-run failed: {done.stderr.strip()[-300:]}")

    def command(self, home: str, name: str, request: dict[str, Any]) -> list[str]:
        unit = f"autoscaler-{name}"
        properties = [
            "Type=exec",
            "DynamicUser=yes",
            f"StateDirectory={unit}",
            f"WorkingDirectory=/var/lib/{unit}",
            f"LoadCredential=boot.json:{home}/boot.json",
            f"LoadCredential=machine.json:{home}/machine.json",
            f"RuntimeMaxSec={request['lifetime_s']}",
            "KillMode=control-group",
            "KillSignal=SIGKILL",  # the job is over, or shall be
            "TimeoutStopSec=10",
            "OOMPolicy=continue",
            f"CPUQuota={100 * request['cpus']}%",
            f"MemoryMax={request['memory_mib']}M",
            "MemorySwapMax=0",
            "TasksMax=infinity",
            "LimitNOFILE=1048576",
            "ProtectHome=yes",
            "ProtectKernelTunables=yes",
            "ProtectControlGroups=yes",
            "IPAddressDeny=169.254.169.254/32",
            "DevicePolicy=closed",
            *(f"DeviceAllow={device} rw" for device in request["devices"]),
        ]
        arguments = [f"--property={each}" for each in properties]
        program = [*PROGRAM, f"{home}/machine.py", f"/run/credentials/{unit}.service"]
        return ["systemd-run", "--quiet", "--collect", f"--unit={unit}", *arguments, "--", *program]

    def stop(self, home: str, name: str) -> None:
        run(["systemctl", "stop", f"autoscaler-{name}.service"])
        run(["systemctl", "reset-failed", f"autoscaler-{name}.service"])

    def wipe(self, home: str, name: str) -> None:
        for state in (f"/var/lib/private/autoscaler-{name}", f"/var/lib/autoscaler-{name}"):
            remove(state)

    def left(self, home: str, name: str) -> list[int]:
        with (
            contextlib.suppress(OSError),
            open(f"/sys/fs/cgroup/system.slice/autoscaler-{name}.service/cgroup.procs", encoding="ascii") as file,
        ):
            return [int(line) for line in file]
        return []


class Bubblewrap:
    """Where systemd is missing: own namespaces and an empty folder, but the login's user and no limits."""

    needs = ("bwrap", "timeout")

    def running(self) -> set[str]:
        words = {word for line in command_lines().values() for word in line}
        return {os.path.basename(word) for word in words if f"{os.sep}slots{os.sep}" in word}

    def folder(self, home: str, name: str) -> str:
        return "/run/work"

    def work(self, home: str, name: str) -> str:
        return f"{home}/work"

    def start(self, home: str, name: str, request: dict[str, Any]) -> None:
        for needed in self.needs:
            if shutil.which(needed, path=PATH) is None:
                raise No("refused", f"{needed} is not installed there")
        os.mkdir(f"{home}/work", 0o700)
        with open(f"{home}/log.txt", "wb") as log:
            started = subprocess.Popen(
                self.command(home, name, request),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH") or os.defpath},
            )
        deadline = time.monotonic() + GONE_S
        while name not in self.running() and started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)  # a process has no command line for a moment after its exec

    def command(self, home: str, name: str, request: dict[str, Any]) -> list[str]:
        """`timeout` is the dead-man switch: whoever ends it ends the sandbox."""
        folder = home.partition(f"{os.sep}slots{os.sep}")[0]  # with other machines' launch data
        hide = [word for path in ("/tmp", "/run", "/home", "/root", folder) for word in ("--tmpfs", path)]
        devices = [word for device in request["devices"] for word in ("--dev-bind", device, device)]
        return [
            *("timeout", "--signal=KILL", str(request["lifetime_s"])),
            *("bwrap", "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-user", "--uid", "1000", "--gid", "1000"),
            *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *devices, *hide),
            *("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"),
            *("--bind", f"{home}/work", "/run/work", "--ro-bind", home, "/run/autoscaler", "--chdir", "/run/work"),
            *(*PROGRAM, "/run/autoscaler/machine.py", "/run/autoscaler"),
        ]

    def stop(self, home: str, name: str) -> None:
        deadline = time.monotonic() + GONE_S
        while (pids := self.left(home, name)) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def wipe(self, home: str, name: str) -> None:
        """All of it lies in its home."""

    def left(self, home: str, name: str) -> list[int]:
        return [pid for pid, line in command_lines().items() if home in line]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise No("refused", f"{command[0]} is not installed there") from error


def remove(path: str) -> None:
    if os.path.islink(path):
        os.remove(path)
    shutil.rmtree(path, ignore_errors=True)


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Whole or not at all."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{path}.new")
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
