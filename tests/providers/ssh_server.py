"""A real OpenSSH server on 127.0.0.1, started as whoever runs the tests, whose sessions can be made to fail."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])

SESSION = """
import os, pathlib, signal, subprocess, sys
here = pathlib.Path(sys.argv[1])
command, env = os.environ["SSH_ORIGINAL_COMMAND"], dict(os.environ)
fault = (here / "fault").read_text().split()

def cut():
    '''Kill the server's process of this session: the client sees a connection that breaks without a status.'''
    pid = os.getppid()
    while True:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text()
        if fields.split("(")[1].startswith("sshd"):
            os.kill(pid, signal.SIGKILL)
            sys.exit(1)
        pid = int(fields.rpartition(")")[2].split()[1])

data = sys.stdin.buffer.read()
if "once" in fault:
    (here / "fault").write_text("")
if "late" in fault:
    (here / f"late-{os.getpid()}").write_bytes(data)
if "bare" in fault:
    env["PATH"] = "/nonexistent"
if "late" in fault or "request_lost" in fault:
    cut()
done = subprocess.run(["/bin/sh", "-c", command], input=data, env=env, capture_output=True)
if "answer_lost" in fault:
    cut()
sys.stdout.buffer.write(done.stdout)
sys.stderr.buffer.write(done.stderr)
sys.exit(done.returncode)
"""

USUALLY = """#!/bin/sh
test -s {folder}/fault && exec {python} -I {folder}/session.py {folder}
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
ForceCommand {folder}/session.sh
"""


class Sshd:
    """Use as a context manager. `fault` is a word of `SESSION`, and `once` after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = getpass.getuser()
        for key in ("host_key", "client_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(keygen, check=True)
        self.host_key = (folder / "host_key.pub").read_text().strip()
        self.key_file = folder / "client_key"
        (folder / "session.py").write_text(SESSION)
        (folder / "session.sh").write_text(USUALLY.format(folder=folder, python=sys.executable))
        (folder / "session.sh").chmod(0o755)
        self.fault = ""
        self.admit(True)

    @property
    def fault(self) -> str:
        return (self.folder / "fault").read_text()

    @fault.setter
    def fault(self, words: str) -> None:
        (self.folder / "fault").write_text(words)

    def admit(self, yes: bool) -> None:
        """Whether our key opens the door."""
        (self.folder / "authorized_keys").write_text((self.folder / "client_key.pub").read_text() if yes else "")

    def arrive(self) -> None:
        """What was on its way all the time is done."""
        from providers.ssh.client import COMMAND

        for late in self.folder.glob("late-*"):
            with late.open("rb") as data:
                subprocess.run(["/bin/sh", "-c", COMMAND], stdin=data, check=True, capture_output=True)
            late.unlink()

    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        config = self.folder / "sshd_config"
        config.write_text(CONFIG.format(folder=self.folder, port=self.port))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = shutil.which("sshd", path=PATH)
        assert sshd
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as line:
                assert line.recv(3) == b"SSH"
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "sshd.log").read_text())

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Sshd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
