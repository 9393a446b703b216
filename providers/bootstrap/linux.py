#!/usr/bin/env python3
"""The program of a Linux machine: installs the GitHub runner, asks for work, runs one job, shuts down.

`machine.py FOLDER` (as root, by systemd) reads FOLDER/boot.json, the launch data with the callback token (0600),
and FOLDER/machine.json, the plan: which runner, whose account, how to shut down. The job's hooks (`linux_hook.py`)
run as the runner's user; they know no token and ask this program over a Unix socket.

It travels as constant text in the machine's user data: standard library only, Python 3.9 on (Amazon Linux 2023).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fnmatch
import http.client
import json
import os
import pwd
import queue
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PR_SET_CHILD_SUBREAPER = 36
IN_CLOSE_NOWRITE = 0x10
TOO_OLD = 7  # run.sh's exit code under ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE
PATH = os.environ.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HEARD: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
NO_ANSWER = (OSError, http.client.HTTPException)


def refusal(access: dict[str, Any], job: dict[str, Any]) -> str:
    """Why this job may not run here, in words; empty when it may. Doubt refuses."""

    def allowed(patterns: list[str], value: str) -> bool:
        return any(fnmatch.fnmatchcase(value.casefold(), pattern.casefold()) for pattern in patterns)

    if not allowed(access["repositories"], job["repository"]):
        return f"repository {job['repository'] or '(unknown)'} may not use this runner"
    if access["events"] and not allowed(access["events"], job["event"]):
        return f"event {job['event'] or '(unknown)'} may not use this runner"
    if access["forks"] == "allow":
        return ""
    if job["fork"] is None:
        return "cannot tell whether this run comes from a fork"
    if access["forks"] == "only":
        return "" if job["fork"] else "only runs from forks may use this runner"
    return "runs from forks may not use this runner" if job["fork"] else ""


def descendants() -> list[int]:
    """Every live process below this one. It is their subreaper, so none escapes by losing its parent."""
    children = collections.defaultdict(list)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            children[int(parent)].append(int(pid))
    found, todo = [], [os.getpid()]
    while todo:
        below = children[todo.pop()]
        found += below
        todo += below
    return found


def kill_descendants() -> None:
    """All of them are stopped first: none shall see another one end and go on with its own work."""
    stopped: set[int] = set()
    for _ in range(400):
        pids = set(descendants())
        running = pids - stopped
        for pid in running or pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if running else signal.SIGKILL)
        if not pids:
            return
        stopped |= running
        if not running:
            time.sleep(0.02)


class Machine:
    def __init__(self, folder: str, boot: dict[str, Any], plan: dict[str, Any]) -> None:
        self.folder, self.boot, self.plan = folder, boot, plan
        self.base = f"{boot['url'].rstrip('/')}/runner/v1/{boot['runner_id']}"
        self.nonce = os.urandom(16).hex()  # tells it from another machine with the same launch data
        self.secrets = [boot["token"], *filter(None, [boot.get("jit")])]
        self.reports: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.sender = threading.Thread(target=self.send, daemon=True)
        self.log: collections.deque[str] = collections.deque(maxlen=12)
        self.doing = "starts"
        self.registered = False
        self.waited_s, self.since = 0.0, time.monotonic()  # how long its job had waited, and at which time
        self.admitted: bool | None = None  # None: its started hook has not asked yet

    def call(self, path: str, body: Any = None, timeout: float = 15) -> tuple[int, bytes]:
        """One request to the daemon: status and body. No answer at all raises one of NO_ANSWER."""
        bearer = f"Bearer {self.boot['token']}"
        headers = {"Authorization": bearer, "Content-Type": "application/json", "X-Machine-Nonce": self.nonce}
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(f"{self.base}/{path}", data, headers)
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, b""

    def report(self, stage: str, detail: str = "", log: list[str] | None = None) -> None:
        """The daemon hears how old a report is, not when it was: clocks of machines differ."""
        self.reports.put({"stage": stage, "detail": detail[:500], "log": log or [], "at": time.monotonic()})
        if "stages" in self.plan:  # for whoever looks after the machine
            with contextlib.suppress(OSError), open(self.plan["stages"], "a", encoding="ascii") as file:
                file.write(f"{stage}\n")

    def give_up(self, why: str, stage: str = "failed") -> None:
        self.doing = ""
        self.report(stage, why, [] if self.registered else list(self.log))

    def send(self) -> None:
        """Deliver reports in order, each until the daemon has it or says that it does not want it."""
        for report in iter(self.reports.get, None):
            at = report.pop("at")
            for delay in (0.2, 0.5, 1, 2, 5, *[15] * 1000):
                try:
                    if self.call("stages", {**report, "age_ms": int(1000 * (time.monotonic() - at))})[0] < 500:
                        break
                except NO_ANSWER:
                    pass
                if report["stage"] == "booting" and self.reports.qsize():
                    break  # there is fresher news
                time.sleep(delay * random.uniform(0.5, 1))

    def say(self, text: str) -> None:
        """One line of this machine's log; the last ones go with the report of a boot that failed."""
        text = text.rstrip()[:200]
        for secret in self.secrets:
            text = text.replace(secret, "[hidden]")
        print(text, flush=True)
        self.log.append(text)

    def step(self, text: str) -> None:
        self.doing = text
        self.report("booting", text)

    def beat(self) -> None:
        """While it boots, the daemon hears what it does again and again."""
        while self.doing:
            time.sleep(self.plan["beat_seconds"])
            if self.doing and self.reports.empty():
                self.report("booting", self.doing)

    def install(self) -> None:
        """`install.py`, whose steps are reported and whose output is ours."""
        command = [sys.executable, "-I", f"{HERE}/install.py", self.folder]
        installer = subprocess.Popen(command, env={"PATH": PATH, "LANG": "C.UTF-8"}, **HEARD)
        for line in lines(installer.stdout):
            if line.startswith("@step "):
                self.step(line[len("@step ") :].strip())
            else:
                self.say(line)
        if installer.wait():
            raise RuntimeError(self.log[-1] if self.log else "install.py ended without a word")

    def account(self) -> dict[str, Any]:
        """Popen's arguments that make the runner an unprivileged user, which is made when the image has none."""
        user, home = self.plan["user"], self.plan["home"]
        if not user:
            return {}
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", user], check=True)
            entry = pwd.getpwnam(user)
        subprocess.run(["chown", "-R", f"{entry.pw_uid}:{entry.pw_gid}", home], check=True)
        groups = os.getgrouplist(user, entry.pw_gid)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}

    def await_jit(self) -> str | None:
        """The JIT config, as soon as a pool wants this machine; None when it is to go."""
        if self.boot.get("jit"):  # made before the machine
            return str(self.boot["jit"])
        delay = 0.5
        while True:
            try:
                status, body = self.call("jit?wait=25", timeout=60)
            except NO_ANSWER:
                status, body = 0, b""
            if status == 200:
                answer = json.loads(body)
                self.waited_s, self.since = answer.get("waited_ms", 0) / 1000, time.monotonic()
                return str(answer["jit"])
            if status == 410:
                return None
            delay = 0.5 if status == 204 else min(2 * delay, 15)
            time.sleep(delay * random.uniform(0.5, 1))

    def await_notice(self) -> None:
        """Tell the daemon as soon as the cloud says that it will take this machine."""
        command = [sys.executable, "-I", f"{HERE}/notice.py", *self.plan["notice"], self.boot["name"], "5"]
        watcher = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
        if watcher.stdout:
            self.report("interrupted", watcher.stdout.strip())

    def run_runner(self, jit: str, account: dict[str, Any]) -> int:
        """One job. The JIT config goes in by the environment alone: a command line is public."""
        user, home = self.plan["user"], self.plan["home"]
        server = Hooks(self.plan["socket"], self)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self.guard, args=(watch_closing(f"{HERE}/started.sh"),), daemon=True).start()
        env = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": pwd.getpwnam(user).pw_dir if user else home,
            "AUTOSCALER_SOCKET": self.plan["socket"],
            "ACTIONS_RUNNER_INPUT_JITCONFIG": jit,
            "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE": "1",
            "ACTIONS_RUNNER_HOOK_JOB_STARTED": f"{HERE}/started.sh",
            "ACTIONS_RUNNER_HOOK_JOB_COMPLETED": f"{HERE}/finished.sh",
        }
        if user:
            env.update(USER=user, LOGNAME=user)
        runner = subprocess.Popen(["./run.sh"], cwd=home, env=env, start_new_session=True, **HEARD, **account)
        reader = threading.Thread(target=self.watch, args=(runner.stdout,), daemon=True)
        reader.start()
        code = runner.wait()
        reader.join(2)  # bounded: a process that the job left behind may hold the pipe
        return code

    def guard(self, closing: int) -> None:
        """Once the started hook is gone, however it ended, only a job that was let in goes on."""
        os.read(closing, 4096)
        if self.admitted is None:
            self.report("refused", "its started hook ended before the job was let in")
        if not self.admitted:
            kill_descendants()

    def watch(self, output: Any) -> None:
        for text in lines(output):
            self.say(text)
            if "Listening for Jobs" in text and not self.registered:
                self.registered = True
                self.report("registered")

    def work(self) -> None:
        self.sender.start()
        self.step(self.doing)
        threading.Thread(target=self.beat, daemon=True).start()
        self.install()
        account = self.account()
        self.doing = ""
        self.report("booted")
        if self.plan.get("notice"):
            threading.Thread(target=self.await_notice, daemon=True).start()
        if "inspect" in self.boot:  # a canary: it looks around as a job could, and takes none
            see = [sys.executable, "-c", self.boot["inspect"]]
            self.report("exited", subprocess.run(see, stdout=subprocess.PIPE, text=True, **account).stdout.strip())
            return
        if (jit := self.await_jit()) is None:
            self.report("exited", "told to go")
            return
        self.secrets.append(jit)
        code = self.run_runner(jit, account)
        if code == TOO_OLD:
            runner, where = self.plan["runner"]["version"], self.boot.get("place", {}).get("provider", "NAME")
            setting = f"providers.{where}.settings.runner.version"
            self.give_up(f"GitHub refuses runner {runner} as too old: raise {setting} and its sha256", "too_old")
        elif not self.registered:
            self.give_up("the runner never registered: " + " | ".join(list(self.log)[-5:]))
        self.report("exited", f"run.sh ended with {code}")

    def leave(self) -> None:
        """End whatever the job left behind, give the last reports ten seconds, shut down."""
        kill_descendants()
        self.reports.put(None)
        if self.sender.is_alive():
            self.sender.join(10)
        subprocess.run(self.plan["shutdown"], check=False)

    def welcome(self) -> str:
        """For the job's log: where it runs, who pays, how long it waited."""
        place = self.boot.get("place")
        if not place:
            return ""
        waited = round(self.waited_s + time.monotonic() - self.since) if self.waited_s else 0
        payer = f"paid by {place['fund']}" if place["fund"] else "for free"
        since = f"; it waited about {waited // 60} min {waited % 60} s" if waited else ""
        return inert(
            f"{self.boot['fleet']}: this job runs at {place['provider']} on {place['offer']}, {payer}{since}"
        )

    def explanation(self, run: str) -> str:
        """What the daemon says of a job that waited too long. Each line is made inert: names are strangers'."""
        said = b""
        with contextlib.suppress(ValueError, *NO_ANSWER):
            said = self.call(f"notice?run={int(run)}")[1]
        return "\n".join(map(inert, said.decode(errors="replace").splitlines()[:60]))

    def expire(self) -> None:
        self.give_up("ready and life time are over")
        self.leave()
        os._exit(1)


class Hooks(socketserver.ThreadingUnixStreamServer):
    """The job's hooks ask here. The socket is open to every local user: answers carry no secret."""

    daemon_threads = True

    def __init__(self, path: str, machine: Machine) -> None:
        self.machine = machine
        super().__init__(path, Question)
        os.chmod(path, 0o666)


class Question(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        machine: Machine = self.server.machine  # type: ignore[attr-defined]
        stage, detail, line = "refused", "unknown job", ""
        try:
            job = json.loads(self.rfile.readline(65536))
            detail = "{repository} run {run} ({event})".format(**job)
            why = "" if job["stage"] == "finished" else refusal(machine.boot["access"], job)
            stage = "refused" if why else {"started": "started", "finished": "finished"}[job["stage"]]
            line = machine.welcome() if stage == "started" else ""
            if job["stage"] == "started" and machine.boot.get("notice"):
                stage, why, line = "refused", "it waited longer than the deadline", machine.explanation(job["run"])
        except Exception as error:
            why = f"its access cannot be checked ({type(error).__name__}: {error})"
        machine.report(stage, f"{detail}: {why}" if why else detail)
        if stage != "finished":
            machine.admitted = stage == "started" and machine.admitted is not False
        try:
            self.wfile.write(json.dumps({"refused": why, "line": line}).encode() + b"\n")
            if why:  # the reason needs a moment to reach the job's log; the hook blocks every step meanwhile
                self.connection.settimeout(machine.plan["grace_seconds"])
                self.connection.recv(1)
        except OSError:
            pass
        if why:
            kill_descendants()


def watch_closing(path: str) -> int:
    """A descriptor that can be read once a process that had the file open, as a shell has its script, is gone."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    if watch < 0 or libc.inotify_add_watch(watch, path.encode(), IN_CLOSE_NOWRITE) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {path}, so no job can be let in")
    return int(watch)


def lines(output: Any) -> Iterator[str]:
    """What a command prints, however long its lines are."""
    for line in iter(lambda: output.readline(4096), b""):
        yield line.decode(errors="replace").rstrip()


def inert(text: str) -> str:
    """Text for a job's log, in which `::` and `##[` would begin commands to GitHub's runner."""
    kept = "".join(
        char if char.isascii() and (char.isalnum() or char in " ._-/,()$+@:;%#'~`") else "?" for char in text
    )
    while "::" in kept:
        kept = kept.replace("::", ":")
    return kept[:300]


def main(folder: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(f"{folder}/machine.json", encoding="utf-8") as file:
        plan = json.load(file)
    with open(f"{folder}/boot.json", encoding="utf-8") as file:
        machine = Machine(folder, json.load(file), plan)
    timer = threading.Timer(machine.boot["ready_seconds"] + machine.boot["lifetime_seconds"], machine.expire)
    timer.daemon = True
    timer.start()
    try:
        machine.work()
    except Exception as error:
        machine.give_up(str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}")
    machine.leave()


if __name__ == "__main__":
    main(sys.argv[1])
