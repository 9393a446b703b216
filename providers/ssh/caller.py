"""The program of a donated host that calls us: it joins once, then asks what shall run and says what does.

FOLDER/host.json (0600) holds where to call, who this host is and its secret; FOLDER/host.py is this program. From
the daemon it takes what runs inside of its slots, never a path, a command of its own or a device that is no GPU:
what it starts, it starts by `host` and `launchers`, which came with it. When it stops, machines go on; when it
starts again, it finds them.

Standard library only, Python 3.9 on.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from providers.ssh.hardware import probe
from providers.ssh.host import answer
from providers.ssh.launchers import write

FOLDER = "/var/lib/autoscaler"
UNIT = "/etc/systemd/system/autoscaler-host.service"
PROBE_S = 600
ACTING_S = 20
LONGEST_WAIT_S = 15
REFUSED_WAIT_S = 60
ANSWER_MAX = 64 * 1024 * 1024
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
PROGRAM = re.compile(r"[a-z_]{1,32}\.(py|sh)")
LAUNCH = {"runner_id", "tags", "instance_type", "lifetime_s", "boot", "plan", "programs", "proof"}
DEVICE = re.compile(
    r"/dev/(nvidia[a-z0-9-]*(/[a-z0-9-]+)?|nvidia-caps/[a-z0-9-]+|dri/[A-Za-z0-9]+|kfd|accel/accel\d+)"
)
SYSTEMD_UNIT = """\
[Unit]
Description=Runs jobs of the GitHub Actions autoscaler at {url} on this donated host
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/python3 -I {folder}/host.py run --folder {folder}
Restart=always
RestartSec=5
# Jobs are units of their own and outlive this program.
KillMode=process

[Install]
WantedBy=multi-user.target
"""


class Refused(Exception):
    """The daemon said no; the text is for the person at this terminal."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Strange(Exception):
    """The daemon wants what no daemon of ours may want, or is of another version."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for that address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def call(url: str, token: str = "", body: Any = None, timeout: float = 60) -> bytes:
    """One request; its body. `Refused`, or one of NO_ANSWER."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout) as found:
            return bytes(found.read(ANSWER_MAX))
    except urllib.error.HTTPError as error:
        text = f"it answered {error.code} {error.reason}"
        with contextlib.suppress(*NO_ANSWER, KeyError, TypeError):
            text = str(json.loads(error.read(65536))["error"])
        if 300 <= error.code < 400:
            text = f"it redirects to {error.headers.get('Location')}: name that address"
        raise Refused(error.code, text) from None


# ---- joining -----------------------------------------------------------------------------------------------


def join(url: str, token: str, name: str = "", folder: str = "") -> int:
    """Register this host with the daemon and serve it from now on. 1 with a reason on stderr."""
    url, folder = url.rstrip("/"), os.path.abspath(folder or FOLDER)
    name = name or socket.gethostname().partition(".")[0].lower()
    try:
        has = probe(folder, set())
        os.chmod(folder, 0o711)
        tell(f"this host: {shown(has)}")
        launchers = [
            each for each, there in (("systemd", systemd()), ("bubblewrap", shutil.which("bwrap"))) if there
        ]
        body = {"host": name, "machine": machine_id(), "launchers": launchers, "has": has}
        joined = json.loads(call(f"{url}/host/v1/join", token, body))
        terms = checked_terms(joined["terms"])
        config = {key: str(joined[key]) for key in ("provider", "fleet", "host", "secret")}
        write(f"{folder}/host.py", call(f"{url}/host/v1/program").decode(), 0o755)
        write(f"{folder}/host.json", json.dumps({**config, "url": url, "launcher": terms["launcher"]}), 0o600)
    except Refused as refused:
        return fail(f"{url} refuses: {refused}")
    except PermissionError as error:
        return fail(f"{error.filename}: {error.strerror}; run this as root, or name another folder by --folder")
    except NO_ANSWER as error:
        return fail(f"{url} does not answer: {getattr(error, 'reason', error)}; is this the daemon's address?")
    except (KeyError, TypeError, Strange) as error:
        return fail(f"{url} is no autoscaler, or another version of it: {error or type(error).__name__}")
    where = f"{config['provider']}/{config['host']}"
    tell(f"joined as {where}: {len(terms['slots'])} slots of {terms['cpus']} cpus, {terms['memory_mib']} MiB")
    for device in sorted(
        {each for slot in terms["slots"] for each in slot["devices"] if not os.path.exists(each)}
    ):
        tell(f"warning: there is no {device}; the host sells nothing until there is")
    if url.startswith("http:") and "//127." not in url:
        tell("warning: http: what jobs need to start, and this host's secret, travel unencrypted; use https")
    if terms["launcher"] == "systemd":
        return install(url, folder)
    tell("no systemd here: this command goes on and serves the host. To start it again:")
    tell(f"  python3 {folder}/host.py run --folder {folder}")
    return run(folder)


def install(url: str, folder: str) -> int:
    try:
        write(UNIT, SYSTEMD_UNIT.format(url=url, folder=folder))
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        subprocess.run(["systemctl", "enable", "--quiet", "autoscaler-host"], check=True)
        subprocess.run(["systemctl", "restart", "autoscaler-host"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return fail(f"the unit autoscaler-host cannot be started: {error}; run this as root")
    tell("systemctl status autoscaler-host   shows it; journalctl -u autoscaler-host is its log")
    return 0


def systemd() -> bool:
    return os.path.isdir("/run/systemd/system")  # sd_booted(3)


def machine_id() -> str:
    """Tells two machines of one name apart; machine-id(5)."""
    with contextlib.suppress(OSError), open("/etc/machine-id", encoding="ascii") as file:
        return file.read().strip()[:64]
    return socket.gethostname()[:64]


def shown(has: dict[str, Any]) -> str:
    gpus = [name for names in has["gpus"].values() for name in names]
    size = f"{has['cpus']} cpus, {has['memory_mib']} MiB of memory, {has['disk_gib']} GiB of disk, {has['arch']}"
    return size + (f", {len(gpus)} GPUs ({', '.join(sorted(set(gpus)))})" if gpus else ", no GPU found")


# ---- serving -----------------------------------------------------------------------------------------------


def run(folder: str = "") -> int:
    """Serve this host until it is told to stop."""
    folder = os.path.abspath(folder or FOLDER)
    try:
        with open(f"{folder}/host.json", encoding="utf-8") as file:
            caller = Caller(folder, json.load(file))
    except (OSError, ValueError) as error:
        return fail(f"{folder}/host.json: {error}; `autoscaler host join URL TOKEN` makes it")
    with contextlib.suppress(KeyboardInterrupt):
        caller.serve()
    return 0


class Caller:
    """What this host says and does, one round after the other."""

    def __init__(self, folder: str, config: dict[str, str]) -> None:
        self.folder, self.config = folder, config
        self.url = f"{config['url']}/host/v1/{config['provider']}/{config['host']}/poll"
        self.terms: dict[str, Any] = {"slots": [], "cpus": 0, "memory_mib": 0}
        self.answers: dict[str, Any] = {}
        self.acted: int | None = None  # the board's number; None: everything has to be looked at again
        self.has: dict[str, Any] = {}
        self.probed_s = 0.0
        self.trouble = ""

    def serve(self) -> None:
        delay = 0.5
        while True:
            try:
                wanted = json.loads(call(self.url, self.config["secret"], self.said()))
                self.act(wanted)
                self.now("")
                delay = 0.5
                continue
            except Refused as refused:
                self.now(f"the daemon refuses: {refused}")
                again = refused.status >= 500 or refused.status == 429
                delay = min(2 * delay, LONGEST_WAIT_S) if again else REFUSED_WAIT_S
            except NO_ANSWER as error:
                self.now(f"{self.config['url']} does not answer: {getattr(error, 'reason', error)}")
                delay = min(2 * delay, LONGEST_WAIT_S)
            except (KeyError, TypeError, Strange) as error:
                self.now(f"the daemon wants what cannot be done here: {error or type(error).__name__}; join again")
                delay = REFUSED_WAIT_S
            time.sleep(delay * random.uniform(0.5, 1))

    def now(self, trouble: str) -> None:
        """Tell what has changed."""
        if trouble != self.trouble:
            tell(trouble or "the daemon is there again")
        self.trouble = trouble

    def said(self) -> dict[str, Any]:
        if not self.has or time.monotonic() > self.probed_s + PROBE_S:
            self.has, self.probed_s = self.slots("probe"), time.monotonic()
        leases = self.slots("list")["leases"]
        return {"acted": self.acted, "report": {"leases": leases, "answers": self.answers, "has": self.has}}

    def act(self, wanted: dict[str, Any]) -> None:
        """Bring about what is wanted; what does not get done in time is done in the next round."""
        terms = checked_terms(wanted["terms"])
        if terms["launcher"] != self.config["launcher"]:
            raise Strange(f"the policy's launcher is now {terms['launcher']}")
        if terms != self.terms:
            self.terms, self.has = terms, {}
        self.answers, self.acted = {}, int(wanted["n"])
        deadline_s = time.monotonic() + ACTING_S
        todo = [(each, {"runner_id": each, "keep_s": int(wanted["keep_s"])}) for each in wanted["end"]]
        todo += [(each, {**launch, "runner_id": each}) for each, launch in wanted["launch"].items()]
        for runner_id, request in todo:
            if time.monotonic() > deadline_s:
                self.acted = None
                return
            verb = "launch" if "boot" in request else "terminate"
            said = self.slots(verb, **checked(request))
            tell(f"{verb} {runner_id}: {said.get('text') or said.get('cooled') or 'done'}")
            self.answers[runner_id] = said
            if said.get("cooled"):
                self.has = {}

    def slots(self, verb: str, **request: Any) -> dict[str, Any]:
        """One of the four calls of `host`."""
        own = {"call": verb, "folder": self.folder, "launcher": self.config["launcher"]}
        terms = {key: self.terms[key] for key in ("slots", "cpus", "memory_mib")}
        return answer({**request, **terms, **own, "fleet": self.config["fleet"]})


def checked(request: dict[str, Any]) -> dict[str, Any]:
    """What the daemon wants, as far as it may want it. `Strange` otherwise."""
    if not re.fullmatch(r"r[a-z0-9]{20}", request["runner_id"]):
        raise Strange("a runner's id is none")
    if "boot" not in request:
        return request
    if not all(map(PROGRAM.fullmatch, request["programs"])):
        raise Strange("a program that is none")
    if not 0 < int(request["lifetime_s"]) <= 7 * 86_400:
        raise Strange("a machine's life is none")
    return {key: request[key] for key in LAUNCH}


def checked_terms(terms: dict[str, Any]) -> dict[str, Any]:
    """Slots and their size; of devices only those of GPUs."""
    for slot in terms["slots"]:
        for device in slot["devices"]:
            if not DEVICE.fullmatch(device):
                raise Strange(f"{device} is no GPU")
    if terms["launcher"] not in ("systemd", "bubblewrap"):
        raise Strange("an unknown launcher")
    size = {key: int(terms[key]) for key in ("cpus", "memory_mib")}
    return {
        "slots": [{"devices": list(slot["devices"])} for slot in terms["slots"]],
        "launcher": terms["launcher"],
        **size,
    }


def tell(text: str) -> None:
    print(text, flush=True)


def fail(text: str) -> int:
    print(f"autoscaler host: {text}", file=sys.stderr)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="host.py", description="A donated host of the GitHub Actions autoscaler."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    joining = commands.add_parser("join", help="register this host, and serve it from now on")
    joining.add_argument("url", metavar="URL", help="the daemon's public address")
    joining.add_argument("token", metavar="TOKEN", help="your join token, from its operator")
    joining.add_argument("--name", default="", help="this host in the policy (default: its host name)")
    joining.set_defaults(run=lambda args: join(args.url, args.token, args.name, args.folder))
    running = commands.add_parser("run", help="serve this host, which has joined")
    running.set_defaults(run=lambda args: run(args.folder))
    for command in (joining, running):
        command.add_argument("--folder", default=FOLDER, metavar="DIR", help=f"default: {FOLDER}")
    args = parser.parse_args()
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
