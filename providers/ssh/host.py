"""The program on a donated host: leases its slots, starts a machine in one, lists them, ends them.

It travels with each call: the adapter sends its text and one JSON request over standard input, and it answers with
one JSON line. Nothing is installed and nothing is interpolated into a shell. One lock a host orders the calls.

FOLDER/slots/N/lease.json names the runner that has slot N, until `terminate` has cleaned up; FOLDER/slots/N/NAME
is its folder; FOLDER/slots/N/cooled.json says why a slot is out of use; FOLDER/ended/NAME remembers that a runner
shall not live here (again), so that a launch that comes late begins nothing.

Standard library only, Python 3.9 on.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PROGRAM = ["/usr/bin/python3", "-I"]
REMEMBERED_S = 86_400
COOLED_S = 1_800
GONE_S = 15

Lease = dict[str, Any]


class No(Exception):
    """The call failed and changed nothing. `kind` is what the adapter makes an error of."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Systemd:
    """A transient unit a machine: own user, empty folder, limits of the slot, a timer that needs no program."""

    def running(self) -> set[str]:
        states = "--state=active,activating,deactivating,reloading"
        done = run(["systemctl", "list-units", "--plain", "--no-legend", states, "autoscaler-*.service"])
        units = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        return {unit[len("autoscaler-") : -len(".service")] for unit in units}

    def folder(self, home: str, name: str) -> str:
        return f"/var/lib/autoscaler-{name}"

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

    def running(self) -> set[str]:
        words = {word for line in command_lines().values() for word in line}
        return {os.path.basename(word) for word in words if f"{os.sep}slots{os.sep}" in word}

    def folder(self, home: str, name: str) -> str:
        return "/run/work"

    def start(self, home: str, name: str, request: dict[str, Any]) -> None:
        for needed in ("bwrap", "timeout"):
            if shutil.which(needed) is None:
                raise No("refused", f"{needed} is not installed there")
        os.mkdir(f"{home}/work", 0o700)
        with open(f"{home}/log.txt", "wb") as log:
            subprocess.Popen(
                self.command(home, name, request),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH") or os.defpath},
            )

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

    def left(self, home: str, name: str) -> list[int]:
        return [pid for pid, line in command_lines().items() if home in line]


class Host:
    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.folder: str = request["folder"]
        self.slots: list[dict[str, list[str]]] = request["slots"]
        self.launcher = Systemd() if request["launcher"] == "systemd" else Bubblewrap()

    # ---- the four calls ------------------------------------------------------------------------------------

    def launch(self) -> dict[str, Any]:
        name = self.name()
        if os.path.exists(f"{self.folder}/ended/{name}"):
            raise No("ended", f"{name} has had its life here")
        for number, lease in self.leases():
            if lease["name"] == name:
                if name in self.launcher.running():
                    return {"lease": lease}
                if lease["started"]:
                    raise No("ended", f"{name} has ended")
                self.clean(number, lease)
                return {"lease": self.begin(number)}
        taken = {number for number, _ in self.leases()}
        for number in range(len(self.slots)):
            if number not in taken and not self.cooled(number):
                return {"lease": self.begin(number)}
        raise No("no_capacity", f"all {len(self.slots)} slots are in use or out of use")

    def terminate(self) -> dict[str, Any]:
        os.makedirs(f"{self.folder}/ended", exist_ok=True)
        write(f"{self.folder}/ended/{self.name()}", "")
        for number, lease in self.leases():
            if lease["name"] == self.name():
                if why := self.clean(number, lease):
                    until = int(time.time()) + COOLED_S
                    write(f"{self.folder}/slots/{number}/cooled.json", json.dumps({"until": until, "why": why}))
                with contextlib.suppress(FileNotFoundError):
                    os.remove(f"{self.folder}/slots/{number}/lease.json")
                return {"cooled": why}
        return {"cooled": ""}

    def list_all(self) -> dict[str, Any]:
        running = self.launcher.running()
        self.forget()
        ours = [lease for _, lease in self.leases() if lease["fleet"] == self.request["fleet"]]
        return {"leases": [{**lease, "running": lease["name"] in running} for lease in ours]}

    def probe(self) -> dict[str, Any]:
        """What the host really has, and which slots are out of use."""
        with open("/proc/meminfo", encoding="ascii") as file:
            memory_kib = next(int(line.split()[1]) for line in file if line.startswith("MemTotal:"))
        devices = {device for slot in self.slots for device in slot["devices"]}
        os.makedirs(self.folder, exist_ok=True)
        return {
            "cpus": os.cpu_count(),
            "memory_mib": memory_kib // 1024,
            "disk_gib": shutil.disk_usage(self.folder).total >> 30,
            "arch": {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "missing": sorted(device for device in devices if not os.path.exists(device)),
            "cooled": {number: why for number in range(len(self.slots)) if (why := self.cooled(number))},
        }

    # ---- slots ---------------------------------------------------------------------------------------------

    def name(self) -> str:
        return f"{self.request['fleet']}-{self.request['runner_id']}"

    def leases(self) -> list[tuple[int, Lease]]:
        found = []
        with contextlib.suppress(FileNotFoundError):
            for number in os.listdir(f"{self.folder}/slots"):
                with (
                    contextlib.suppress(FileNotFoundError),
                    open(f"{self.folder}/slots/{number}/lease.json", encoding="utf-8") as file,
                ):
                    found.append((int(number), json.load(file)))
        return sorted(found, key=lambda each: each[0])

    def begin(self, number: int) -> Lease:
        """Lease first: whatever happens next, a repeated call finds it."""
        request, name = self.request, self.name()
        home = f"{self.folder}/slots/{number}/{name}"
        os.makedirs(home)
        request["devices"] = self.slots[number]["devices"]
        lease = {key: request[key] for key in ("fleet", "runner_id", "tags", "instance_type")}
        lease.update(
            name=name, launched_ms=int(time.time() * 1000), lifetime_s=request["lifetime_s"], started=False
        )
        file = f"{self.folder}/slots/{number}/lease.json"
        write(file, json.dumps(lease))
        try:
            for program, text in request["programs"].items():
                write(f"{home}/{program}", text, 0o755)
            write(f"{home}/boot.json", request["boot"], 0o600)
            work = self.launcher.folder(home, name)
            plan = {**request["plan"], "home": f"{work}/actions-runner", "socket": f"{work}/hook.sock"}
            write(f"{home}/machine.json", json.dumps(plan))
            self.launcher.start(home, name, request)
        except No:
            self.clean(number, lease)
            os.remove(file)
            raise
        lease["started"] = True
        write(file, json.dumps(lease))
        return lease

    def clean(self, number: int, lease: Lease) -> str:
        """End what runs and remove what it wrote. Says what would not go; empty when all is clean."""
        home = f"{self.folder}/slots/{number}/{lease['name']}"
        self.launcher.stop(home, lease["name"])
        remove(home)
        if pids := self.launcher.left(home, lease["name"]):
            return f"processes {pids[:5]} would not end"
        if pids := holders(self.own(number)):
            return f"processes {pids[:5]} still hold its devices"
        return f"{home} could not be removed" if os.path.exists(home) else ""

    def cooled(self, number: int) -> str:
        """Why the slot is out of use; it is in use again when its time is over and nobody holds its devices."""
        file = f"{self.folder}/slots/{number}/cooled.json"
        try:
            with open(file, encoding="utf-8") as text:
                cooled = json.load(text)
        except FileNotFoundError:
            return ""
        if cooled["until"] > time.time() or holders(self.own(number)):
            return str(cooled["why"])
        os.remove(file)
        return ""

    def own(self, number: int) -> set[str]:
        """Devices that no other slot has."""
        others = [set(slot["devices"]) for other, slot in enumerate(self.slots) if other != number]
        return set(self.slots[number]["devices"] if number < len(self.slots) else ()).difference(*others)

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(f"{self.folder}/ended")):
                if entry.stat().st_mtime < time.time() - REMEMBERED_S:
                    os.remove(entry.path)


def command_lines() -> dict[int, list[str]]:
    """Arguments of every live process."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if words := file.read():
                found[int(pid)] = words.decode(errors="replace").split("\0")
    return found


def holders(devices: set[str]) -> list[int]:
    """Processes that have one of these devices open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if devices else ()):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{fd}") in devices:
                        found.append(int(pid))
                        break
    return found


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


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    try:
        try:
            os.makedirs(request["folder"], exist_ok=True)
            lock = open(f"{request['folder']}/lock", "w", encoding="ascii")  # noqa: SIM115 - held until the end
        except OSError as error:
            raise No("refused", f"{request['folder']} cannot be used: {error.strerror}") from error
        fcntl.flock(lock, fcntl.LOCK_EX)
        host = Host(request)
        call = {"launch": host.launch, "terminate": host.terminate, "list": host.list_all, "probe": host.probe}
        answer = call[request["call"]]()
    except No as no:
        answer = {"error": no.kind, "text": str(no)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
