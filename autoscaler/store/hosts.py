"""Hosts in Redis: who joined, what is wanted of each, what it last said. Implements `providers.base.HostBoard`.

One hash a host, so that what is wanted and what was reported are read at one instant. Launch data holds a callback
token and lies there sealed. Whether a host is present is a key that Redis itself lets expire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autoscaler.clock import Clock
from autoscaler.store.keys import Keys
from autoscaler.store.link import RedisLink, Script, StoreAway
from autoscaler.store.sealing import Seal
from providers.base import HostState, Transient
from scheduling.model import UnixMs

PRESENT_MS = 60_000
"""Of real time. A host asks again after at most 25 s, or 15 s after a failure."""
_MACHINE = "m:"
_REPORT = Script("report", fenced=False)
_WANT = Script("want", fenced=False)


class Hosts:
    """The board of one fleet. `link` is asked at each call: the store may not be open yet."""

    def __init__(self, link: Callable[[], RedisLink], keys: Keys, seal: Seal, clock: Clock) -> None:
        self._link, self._keys, self._seal, self._clock = link, keys, seal, clock

    # ---- for providers -------------------------------------------------------------------------------------

    async def read(self, host: str) -> HostState:
        fields, present = await self._together(("HGETALL", self._keys.host(host)), ("GET", self._keys.heard(host)))
        text = {name.decode(): value for name, value in _pairs(fields)}
        return HostState(
            joined="secret" in text,
            present=present is not None and "reported_ms" in text,
            since_ms=int(text.get("since_ms", 0)),
            reported_ms=int(text.get("reported_ms", 0)),
            acted=int(text.get("acted", 0)),
            report=json.loads(text.get("report", b"{}")),
            wanted={
                name.removeprefix(_MACHINE): self._unsealed(name.removeprefix(_MACHINE), value)
                for name, value in text.items()
                if name.startswith(_MACHINE)
            },
            paused=text.get("paused", b"").decode(),
            keep_minutes=int(text.get("keep_minutes", 0)),
        )

    async def look_for(self, host: str) -> UnixMs:
        key, now_ms = self._keys.host(host), self._clock.now_ms()
        await self._call("HSETNX", key, "since_ms", now_ms)
        return int(await self._call("HGET", key, "since_ms") or now_ms)

    async def want(self, host: str, runner_id: str, launch: Mapping[str, Any] | None) -> int:
        sealed = b"" if launch is None else self._seal.seal(runner_id, json.dumps(launch))
        return int(await self._script(_WANT, (self._keys.host(host),), (_MACHINE + runner_id, sealed)))

    async def withdraw(self, host: str, runner_id: str) -> None:
        await self._call("HDEL", self._keys.host(host), _MACHINE + runner_id)

    # ---- for `/host/v1` ------------------------------------------------------------------------------------

    async def join(self, host: str, secret_sha256: str, by: str, machine: str) -> None:
        """From now on that secret is the host's, and no other."""
        await self._call(
            "HSET", self._keys.host(host), "secret", secret_sha256, "by", by, "machine", machine,
            "since_ms", self._clock.now_ms(),
        )  # fmt: skip

    async def joined(self, host: str) -> dict[str, str]:
        """`secret` (SHA-256, hex), `by` and `machine` of a host that has joined; empty for one that has not."""
        names = ("secret", "by", "machine")
        found = await self._call("HMGET", self._keys.host(host), *names)
        return {} if found[0] is None else {n: (v or b"").decode() for n, v in zip(names, found, strict=True)}

    async def report(self, host: str, acted: int, report: Mapping[str, Any]) -> None:
        """Keep its word. What it has launched or ended is no longer asked for."""
        leased = [_MACHINE + lease["runner_id"] for lease in report["leases"] if lease["started"]]
        ended = [_MACHINE + runner_id for runner_id, said in report["answers"].items() if "cooled" in said]
        await self._script(
            _REPORT,
            (self._keys.host(host), self._keys.heard(host)),
            (PRESENT_MS, self._clock.now_ms(), acted, json.dumps(report), *leased, "-", *ended),
        )

    async def numbers(self, hosts: Sequence[str]) -> dict[str, int]:
        """The board's number for each of them, in one round trip: it counts what was asked for."""
        found = await self._together(*(("HGET", self._keys.host(host), "n") for host in hosts))
        return {host: int(number or 0) for host, number in zip(hosts, found, strict=True)}

    async def switch(self, host: str, name: str, value: str | int) -> None:
        """Set `paused` or `keep_minutes`; an empty value clears it."""
        key = self._keys.host(host)
        await (self._call("HSET", key, name, value) if value else self._call("HDEL", key, name))
        await self._call("HINCRBY", key, "n", 1)

    # ---- Redis ---------------------------------------------------------------------------------------------

    def _unsealed(self, runner_id: str, sealed: bytes) -> Mapping[str, Any] | None:
        """One that another fleet key sealed cannot be launched: then it is only ended."""
        text = self._seal.unseal(runner_id, sealed) if sealed else None
        return json.loads(text) if text else None

    async def _call(self, *command: Any) -> Any:
        with _away():
            return await self._link().call(*command)

    async def _together(self, *commands: Sequence[Any]) -> list[Any]:
        if not commands:
            return []
        with _away():
            return await self._link().together(*commands)

    async def _script(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        with _away():
            return await self._link().script_repeatable(script, keys, arguments)


def _pairs(fields: Any) -> Iterator[tuple[bytes, bytes]]:
    return iter(fields.items()) if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True)


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except StoreAway as error:
        raise Transient(f"the store is away: {error}") from error
