"""One SSH connection a host, and calls of the program there: constant command, data on standard input.

The command line never changes: it reads the length of the program, the program, and the rest as its request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from providers.base import OutcomeUnknown, ProviderError, Refused, Transient, Unauthorized
from providers.ssh.packed import slots_program
from providers.ssh.settings import HostSettings, SshSettings

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

CONNECT_TIMEOUT_S = 10
CALL_TIMEOUT_S = 60
KEEPALIVE_S = 15
SESSIONS = 8
"""At the same time over one connection: sshd's MaxSessions is 10."""

COMMAND = (
    "/usr/bin/python3 -I -c 'import sys; f = sys.stdin.buffer; "
    'exec(compile(f.read(int(f.readline())), "host.py", "exec"))\''
)
NOT_THERE = (126, 127)  # what a shell says of a command that it cannot start


class Away(Transient):
    """No connection came about, so nothing was sent."""


class Ended(ProviderError):
    """The runner has had its life on that host."""


class Full(ProviderError):
    """No slot is free."""


class Client:
    """Calls to one host."""

    def __init__(self, provider: str, host: HostSettings, settings: SshSettings) -> None:
        self._where = f"{provider}: host {host.name}"
        self._host = host
        self._settings = settings
        self._connection: SSHClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._sessions = asyncio.Semaphore(SESSIONS)

    async def call(self, request: Mapping[str, Any], *, launching: bool = False) -> dict[str, Any]:
        """The answer of the program there. Any end of the session without one is unknown to a launch."""
        import asyncssh

        unknown = OutcomeUnknown if launching else Transient
        async with self._sessions:
            connection = await self._connected()
            program = slots_program()
            data = b"%d\n" % len(program) + program + json.dumps(request).encode()
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    done = await connection.run(self._command, input=data, encoding=None)
            except asyncssh.ChannelOpenError as error:
                raise Away(f"{self._where} opens no session: {error.reason}") from error
            except (asyncssh.Error, OSError, TimeoutError) as error:
                connection.abort()
                raise unknown(f"{self._where}: the connection broke: {error or type(error).__name__}") from error
        if done.exit_status is None:
            connection.abort()
            raise unknown(f"{self._where}: the session ended without an exit status")
        return self._read(done.exit_status, _bytes(done.stdout), _bytes(done.stderr), unknown)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            await connection.wait_closed()

    @property
    def _command(self) -> str:
        """Transient units need root; a sandbox is made by whoever logs in."""
        root = self._host.user == "root" or self._settings.launcher != "systemd"
        return COMMAND if root else f"sudo -n {COMMAND}"

    def _read(self, status: int, out: bytes, err: bytes, unknown: type[ProviderError]) -> dict[str, Any]:
        said = err.decode(errors="replace").strip()[-300:]
        try:
            answer: dict[str, Any] = json.loads(out)
        except ValueError:
            if status in NOT_THERE:
                raise Refused(f"{self._where} has no /usr/bin/python3: {said}") from None
            if said.startswith("sudo:"):
                raise Unauthorized(f"{self._where}: {said}") from None
            raise unknown(f"{self._where}: its program ended with {status}: {said}") from None
        if "error" in answer:
            raise {"ended": Ended, "no_capacity": Full}.get(answer["error"], Refused)(
                f"{self._where}: {answer['text']}"
            )
        return answer

    async def _connected(self) -> SSHClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> SSHClientConnection:
        import asyncssh

        host = self._host
        try:
            known = asyncssh.import_public_key(host.host_key)
            key = self._settings.key_file
            if key is None:
                raise Unauthorized(f"{self._where}: settings.key_file names no private key")
            return await asyncssh.connect(
                host.address or host.name,
                host.port,
                username=host.user,
                client_keys=[await asyncio.to_thread(asyncssh.read_private_key, key)],
                known_hosts=([known], [], []),
                agent_path=None,
                config=None,
                connect_timeout=CONNECT_TIMEOUT_S,
                login_timeout=CONNECT_TIMEOUT_S,
                keepalive_interval=KEEPALIVE_S,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise Refused(
                f"{self._where} shows another host key than the policy's: it was installed anew, or is another"
            ) from error
        except asyncssh.PermissionDenied as error:
            raise Unauthorized(f"{self._where} refuses the key for user {host.user}: {error.reason}") from error
        except (asyncssh.KeyImportError, FileNotFoundError, PermissionError) as error:
            raise Unauthorized(f"{self._where}: key cannot be read: {error}") from error
        except (asyncssh.Error, OSError, TimeoutError) as error:
            raise Away(f"{self._where} is away: {error or type(error).__name__}") from error


def _bytes(output: bytes | str | None) -> bytes:
    return output if isinstance(output, bytes) else (output or "").encode()
