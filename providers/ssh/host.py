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
import stat
import sys
import time
from typing import Any

from providers.ssh.hardware import gpu_memory, holders, probe
from providers.ssh.launchers import PATH, Bubblewrap, No, Systemd, remove, write

REMEMBERED_S = 86_400
COOLED_S = 1_800

Lease = dict[str, Any]


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
                failed, keep_s = self.failed(number, lease), self.request.get("keep_s", 0)
                if failed and keep_s:
                    why = self.keep(number, lease, failed, keep_s)
                elif why := self.clean(number, lease):
                    self.cool(number, COOLED_S, why)
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
        has = probe(self.folder, {device for slot in self.slots for device in slot["devices"]})
        cooled = {str(number): why for number in range(len(self.slots)) if (why := self.cooled(number))}
        missing = [name for name in self.launcher.needs if shutil.which(name, path=PATH) is None]
        return {**has, "cooled": cooled, "no_launcher": missing, "time_ms": int(time.time() * 1000)}

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
        lease["proof"] = request.get("proof", "")  # the daemon's, that it asked for this machine
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
            plan = {
                **request["plan"],
                "home": f"{work}/actions-runner",
                "socket": f"{work}/hook.sock",
                "stages": f"{work}/stages.txt",
            }
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
        self.launcher.wipe(home, lease["name"])
        remove(home)
        if pids := self.launcher.left(home, lease["name"]):
            return f"processes {pids[:5]} would not end"
        if why := self.held(number):
            return why
        return f"{home} could not be removed" if os.path.exists(home) else ""

    def held(self, number: int) -> str:
        """What still uses the slot's own devices."""
        own = self.own(number)
        pids = holders(own)
        return f"processes {pids[:5]} still hold its devices" if pids else gpu_memory(own)

    def failed(self, number: int, lease: Lease) -> str:
        """Why the machine is worth a look, by the stages that its program wrote down; empty when all went well."""
        home = f"{self.folder}/slots/{number}/{lease['name']}"
        stages = stages_in(f"{self.launcher.work(home, lease['name'])}/stages.txt")
        if stages & {"failed", "too_old"}:
            return "its machine failed"
        if "booted" not in stages:
            return "its machine never came up"
        over = "exited" in stages or lease["name"] in self.launcher.running()
        return "" if over else "its machine ended without a word"

    def keep(self, number: int, lease: Lease, failed: str, keep_s: int) -> str:
        """For debugging: end what runs, keep what it wrote but no secret, and take the slot out meanwhile."""
        home = f"{self.folder}/slots/{number}/{lease['name']}"
        self.launcher.stop(home, lease["name"])
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{home}/boot.json")
        work = self.launcher.work(home, lease["name"])
        why = f"{failed}; kept for debugging: {work}"
        self.cool(number, keep_s, why, kept=lease["name"])
        return why

    def cool(self, number: int, seconds: int, why: str, kept: str = "") -> None:
        cooled = {"until": int(time.time()) + seconds, "why": why, "kept": kept}
        write(f"{self.folder}/slots/{number}/cooled.json", json.dumps(cooled))

    def cooled(self, number: int) -> str:
        """Why the slot is out of use; it is in use again when its time is over and nothing holds its devices."""
        file = f"{self.folder}/slots/{number}/cooled.json"
        try:
            with open(file, encoding="utf-8") as text:
                cooled = json.load(text)
        except FileNotFoundError:
            return ""
        if cooled["until"] > time.time():
            return str(cooled["why"])
        if name := cooled.get("kept"):
            self.launcher.wipe(f"{self.folder}/slots/{number}/{name}", name)
            remove(f"{self.folder}/slots/{number}/{name}")
        if why := self.held(number):
            return why
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


def stages_in(path: str) -> set[str]:
    """Words of a file that a job may have replaced by anything."""
    with (
        contextlib.suppress(OSError),
        open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file,
    ):
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return set(file.read(4096).decode(errors="replace").split())
    return set()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """One call, after those before it."""
    try:
        try:
            os.makedirs(request["folder"], exist_ok=True)
            lock = open(f"{request['folder']}/lock", "w", encoding="ascii")  # noqa: SIM115 - held until the end
        except OSError as error:
            raise No("refused", f"{request['folder']} cannot be used: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            host = Host(request)
            call = {"launch": host.launch, "terminate": host.terminate, "list": host.list_all, "probe": host.probe}
            return call[request["call"]]()
    except No as no:
        return {"error": no.kind, "text": str(no)}


def main() -> None:
    print(json.dumps(answer(json.loads(sys.stdin.buffer.read()))), flush=True)


if __name__ == "__main__":
    main()
