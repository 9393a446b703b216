"""All of Redis: the inbox of events, the records, the lease with its fence, the journal and the JIT configs.

Every method that talks to the server raises `StoreAway` when it does not answer or refuses to write. A script is
sent again when its answer was lost; none of them changes anything the second time.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.clock import Clock
from autoscaler.store import codec
from autoscaler.store import url as redis_url
from autoscaler.store.codec import Undecodable
from autoscaler.store.embedded import Embedded
from autoscaler.store.hosts import Hosts
from autoscaler.store.keys import (
    APPENDED_LIFE_MS,
    JIT_LIFE_MS,
    JOURNAL_LENGTH,
    MACHINE_LIFE_MS,
    REJECTS_LENGTH,
    Keys,
)
from autoscaler.store.link import RedisLink, Script, StoreAway
from autoscaler.store.packer import Packer
from autoscaler.store.sealing import Seal
from scheduling.lifecycle import RunnerState
from scheduling.messages import Event
from scheduling.model import UnixMs

INBOX_LIMIT = 100_000
"""Events in the inbox from which webhooks are refused (about 40 MB)."""
START = "0-0"
"""The cursor of an inbox that nothing has been read from."""

JournalEntry = Mapping[str, object]
"""One line of the journal: anything JSON can say, our dataclasses included. Never a secret."""

_APPEND = Script("append", fenced=False)
_ACQUIRE = Script("acquire", fenced=True)
_RENEW = Script("renew", fenced=True)
_COMMIT = Script("commit", fenced=True)
_PUT_JIT = Script("put_jit", fenced=True)
_CLAIM = Script("claim", fenced=False)
NOBODY = "nobody"
"""In the place of a nonce: no machine may speak for this runner any more."""
_SCAN_COUNT = 1_000

__all__ = ["Entry", "Fence", "InboxFull", "JournalEntry", "Loaded", "StaleFence", "Store", "StoreAway"]


class InboxFull(Exception):
    """The scheduler is so far behind that no more webhooks are taken."""


class StaleFence(Exception):
    """Somebody else leads, the lease ran out, or the server restarted: take the lease again and reload."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to commit: run id of the server that gave it, a number that only grows there, and its holder."""

    run_id: str
    n: int
    holder: str
    whole: bool = True
    """False when commits of earlier leaders may be missing: another server took over, or it was emptied."""

    @property
    def lease(self) -> str:
        """What the lease reads while this fence is good."""
        return f"{self.run_id}/{self.n}/{self.holder}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One inbox entry; `id` is its stream id. An undecodable one is handed to `commit` as a reject."""

    id: str
    event: Event | Undecodable


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a leader starts from: records as (kind, key, object), and the inbox id that they stand at."""

    cursor: str
    records: list[tuple[str, str, Any]]


class Store:
    """One fleet's store. `url` as in AUTOSCALER_REDIS_URL (ValueError when it is none); no I/O before `open`."""

    def __init__(self, url: str, fleet: str, fleet_key: bytes, inbox_limit: int = INBOX_LIMIT) -> None:
        self._url = redis_url.parse(url)
        self._embedded = Embedded(self._url.directory) if self._url.directory else None
        self._keys = Keys(fleet)
        self._seal = Seal(fleet_key)
        self._inbox_limit = inbox_limit
        self._packer = Packer(self._append_batch)
        self._appender = secrets.token_hex(8)
        self._batches = 0
        self._commits = 0
        self._committed = False  # whether this process knows of any commit, its own or another's
        self._open: RedisLink | None = None

    def __repr__(self) -> str:
        return f"Store({self._url.shown!r})"

    async def open(self) -> None:
        """Start the embedded server, where the address says so (`EmbeddedError`). Redis away is no error here."""
        self._open = RedisLink(await self._embedded.start() if self._embedded else self._url)

    async def close(self) -> None:
        """Finish the appends under way, then let go of connections and the embedded server."""
        await self._packer.close()
        if self._open:
            await self._open.close()
            self._open = None
        if self._embedded:
            await self._embedded.stop()

    async def ping(self) -> None:
        await self._link.call("PING")

    async def server_run_id(self) -> str:
        """Changes whenever the server restarts or another takes over."""
        return str((await self._link.call("INFO", "server"))["run_id"])

    # ---- inbox ---------------------------------------------------------------------------------------------

    async def append(self, events: Sequence[Event], *, bulk: bool = False) -> None:
        """Store the events; durable when it returns, also for a caller that was cancelled meanwhile.

        `bulk` marks webhooks: only they are refused (`InboxFull`) when the scheduler is far behind. After
        `StoreAway` the events may be stored all the same: appending them again may store them twice.
        """
        if events and not await self._packer.append([codec.encode_event(event) for event in events], bulk):
            raise InboxFull(f"{self._inbox_limit} events wait for the scheduler")

    async def _append_batch(self, urgent: list[bytes], bulk: list[bytes]) -> bool:
        self._batches += 1
        keys = (self._keys.inbox, self._keys.appended(self._appender))
        arguments = (self._batches, APPENDED_LIFE_MS, self._inbox_limit, len(urgent), *urgent, *bulk)
        return bool(await self._link.script_repeatable(_APPEND, keys, arguments))

    async def read(self, cursor: str, limit: int, wait_s: float) -> list[Entry]:
        """At most `limit` entries after `cursor`, oldest first; waits up to `wait_s` for the first one."""
        block = ("BLOCK", max(1, int(wait_s * 1000))) if wait_s > 0 else ()
        found = await self._link.block(
            wait_s, "XREAD", "COUNT", limit, *block, "STREAMS", self._keys.inbox, cursor
        )
        return [Entry(id_.decode(), _event(fields)) for id_, fields in found[0][1]] if found else []

    # ---- leadership ----------------------------------------------------------------------------------------

    async def acquire(self, holder: str, ttl_s: float) -> Fence | None:
        """Take the lease under a new fence, also when `holder` has it already. None: somebody else leads.

        `holder` names one process for its life. `ttl_s` is real time.
        """
        keys = (self._keys.lease, self._keys.fence, self._keys.head)
        answer = await self._link.script(_ACQUIRE, keys, (holder, int(ttl_s * 1000)))
        if isinstance(answer, int):
            self._committed = self._committed or answer == 1
            return None
        run_id, n, past = answer
        whole = past == b"whole" or (past == b"empty" and not self._committed)
        return Fence(run_id.decode(), n, holder, whole)

    async def renew(self, fence: Fence, ttl_s: float) -> bool:
        """Keep the lease for another `ttl_s`. False: it is lost."""
        arguments = (fence.lease, max(1, int(ttl_s * 1000)))
        return bool(await self._link.script(_RENEW, (self._keys.lease,), arguments))

    async def release(self, fence: Fence) -> None:
        """Give the lease up, so that another replica need not wait for its end."""
        await self._link.script(_RENEW, (self._keys.lease,), (fence.lease, 0))

    # ---- records -------------------------------------------------------------------------------------------

    async def load(self) -> Loaded:
        """All records. A damaged one raises `Undecodable`: it may be money or a machine, so nothing is guessed."""
        cursor = await self._link.call("HGET", self._keys.head, "cursor")
        records: list[tuple[str, str, Any]] = []
        for kind, key in self._keys.records.items():
            at = 0
            while True:
                at, chunk = await self._link.call("HSCAN", key, at, "COUNT", _SCAN_COUNT)
                records += [(kind, name.decode(), codec.decode_record(kind, raw)) for name, raw in chunk.items()]
                if at == 0:
                    break
        return Loaded(cursor.decode() if cursor else START, records)

    async def commit(
        self,
        fence: Fence,
        puts: Mapping[tuple[str, str], object | None],
        cursor: str,
        journal: Sequence[JournalEntry] = (),
        rejects: Sequence[Entry] = (),
    ) -> bool:
        """Write one tick at once: records by (kind, key) (None deletes), the cursor, the journal, the rejects.

        False: the fence is stale and nothing was written. `StoreAway`: it may have been; take the lease again
        (which voids this fence), then load.
        """
        self._commits += 1
        records = list(self._keys.records)
        keys = [self._keys.lease, self._keys.head, self._keys.inbox, self._keys.journal, self._keys.rejects]
        first_hash = len(keys) + 1
        arguments: list[Any] = [fence.lease, fence.n, self._commits, cursor, JOURNAL_LENGTH, REJECTS_LENGTH]
        arguments += [len(journal), len(rejects), *map(codec.encode_json, journal)]
        for entry in rejects:
            arguments += [entry.id, *_reject(entry.event)]
        for (kind, key), record in puts.items():
            arguments += [first_hash + records.index(kind), key]
            arguments.append(b"" if record is None else codec.encode_record(record))
        keys += self._keys.records.values()
        done = bool(await self._link.script_repeatable(_COMMIT, keys, arguments))
        self._committed = self._committed or done
        return done

    async def journal(self, after: str = "-", limit: int = 1_000) -> list[tuple[str, dict[str, Any]]]:
        """Journal entries after that id (`-`: from the oldest kept), oldest first, as (id, entry)."""
        start = after if after == "-" else f"({after}"
        found = await self._link.call("XRANGE", self._keys.journal, start, "+", "COUNT", limit)
        return [(id_.decode(), codec.decode_json(fields[b"j"])) for id_, fields in found]

    # ---- JIT configs ---------------------------------------------------------------------------------------

    async def put_jit(self, runner_id: str, config: str, fence: Fence | None = None) -> None:
        """Lay the config out for its machine, encrypted, for two minutes of real time.

        With a fence it is laid out only while that leader leads (`StaleFence`), so that a paused one never
        replaces the config of a newer registration.
        """
        sealed, key = self._seal.seal(runner_id, config), self._keys.jit(runner_id)
        if fence is None:
            await self._link.call_repeatable("SET", key, sealed, "PX", JIT_LIFE_MS)
        elif not await self._link.script_repeatable(
            _PUT_JIT, (self._keys.lease, key), (fence.lease, sealed, JIT_LIFE_MS)
        ):
            raise StaleFence(f"{fence.holder} no longer leads")

    async def drop_jit(self, runner_id: str) -> None:
        await self._link.call_repeatable("DEL", self._keys.jit(runner_id))

    async def claim(self, runner_id: str, nonce: str) -> bool:
        """Whether the machine with this nonce is the one that speaks for the runner; the first that asks is.

        With `NOBODY`: whether no machine has spoken yet; then none ever will, nor be given a config.
        """
        arguments = (nonce.encode(), MACHINE_LIFE_MS)
        return bool(await self._link.script_repeatable(_CLAIM, (self._keys.machine(runner_id),), arguments))

    async def look(self, runner_ids: Sequence[str]) -> dict[str, tuple[RunnerState | None, str | None]]:
        """Recorded state (None: no record that can be read) and JIT config of each runner, in one round trip."""
        if not runner_ids:
            return {}
        records, configs = await self._link.together(
            ("HMGET", self._keys.records["runner"], *runner_ids),
            ("MGET", *map(self._keys.jit, runner_ids)),
        )
        return {
            runner_id: (
                _state(record) if record else None,
                self._seal.unseal(runner_id, config) if config else None,
            )
            for runner_id, record, config in zip(runner_ids, records, configs, strict=True)
        }

    async def waiting_since(self, runner_id: str) -> UnixMs:
        """Since when the job waits that this runner is for; 0 where that is not recorded."""
        record = await self._link.call("HGET", self._keys.records["runner"], runner_id)
        try:
            return codec.queued_ms(record) if record else 0
        except Undecodable:
            return 0

    # ---- hosts ---------------------------------------------------------------------------------------------

    def hosts(self, clock: Clock) -> Hosts:
        """The part that is about donated hosts."""
        return Hosts(lambda: self._link, self._keys, self._seal, clock)

    @property
    def _link(self) -> RedisLink:
        if self._open is None:
            raise StoreAway("the store is not open")
        return self._open


def _event(fields: Mapping[bytes, bytes]) -> Event | Undecodable:
    try:
        return codec.decode_event(fields.get(b"e", b""))
    except Undecodable as error:
        return error


def _state(record: bytes) -> RunnerState | None:
    """One damaged record must not keep every other machine waiting; `load` reports it."""
    try:
        return codec.runner_state(record)
    except Undecodable:
        return None


def _reject(event: Event | Undecodable) -> tuple[bytes, str]:
    if isinstance(event, Undecodable):
        return event.raw, event.why
    return codec.encode_event(event), "set aside by the scheduler"
