"""The in-memory twin of a Redis server: the commands and scripts that `Store` uses, and nothing else.

The real `Store`, packer, link and retries run on top of it. `test_twin` compares it with a real Valkey.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, OutOfMemoryError, ReadOnlyError, ResponseError

from autoscaler.store import store

WRITES = frozenset({"SET", "DEL", "EVALSHA", "EVAL"})
REFUSALS: dict[str, Callable[[], Exception]] = {
    "readonly": lambda: ReadOnlyError("You can't write against a read only replica."),
    "oom": lambda: OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    "disk_full": lambda: ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
}

Id = tuple[int, int]
Data = tuple[dict[str, Any], dict[str, int]]


class Server:
    """All data of one server. `now_ms` is its own clock; `execute` applies one command at once."""

    def __init__(self, now_ms: Callable[[], int], dice: random.Random) -> None:
        self.now_ms, self._dice = now_ms, dice
        self.data: dict[str, Any] = {}  # key -> bytes | dict of bytes | list of (id, fields)
        self.expiry: dict[str, int] = {}
        self.refuse = ""  # a key of `REFUSALS`: what writes are answered
        self.on_append: Callable[[Sequence[bytes]], None] = lambda events: None
        self.on_commit: Callable[[Commit, bool], None] = lambda commit, applied: None
        self.on_lease: Callable[[int], None] = lambda n: None
        self.on_new_entries: Callable[[], None] = lambda: None
        self._last_id: Id = (0, 0)
        self._scripts: set[str] = set()
        self.run_id = ""
        self.restart()

    # ---- its life ------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Another process on the same append-only file."""
        self._own_history = True
        self.run_id = self._dice.randbytes(20).hex()
        self._scripts.clear()

    def snapshot(self) -> Data:
        """A copy, as an asynchronous replica has it."""
        copied = {
            key: value.copy() if isinstance(value, list | dict) else value for key, value in self.data.items()
        }
        return copied, dict(self.expiry)

    def fail_over(self, replica: Data) -> None:
        """A replica takes over with what it had; everything newer is lost."""
        self.data, self.expiry = replica
        self.restart()
        self._own_history = False

    def wipe(self) -> None:
        self.fail_over(({}, {}))
        self._last_id = (0, 0)

    # ---- commands ------------------------------------------------------------------------------------------

    def execute(self, command: Sequence[Any]) -> Any:
        """The answer as redis-py hands it out, or one of its exceptions."""
        name, arguments = command[0], command[1:]
        if self.refuse and name in WRITES and not self._only_asks(name, arguments):
            raise REFUSALS[self.refuse]()
        return getattr(self, f"_{name.lower()}")(*arguments)

    def _only_asks(self, name: str, arguments: Sequence[Any]) -> bool:
        """A taken lease is refused without a write, and whose runner it is can be told without one."""
        if name != "EVALSHA":
            return False
        taken = arguments[0] == store._ACQUIRE.sha and self._held(arguments[2], arguments[4])
        return bool(taken or (arguments[0] == store._CLAIM.sha and self._get(arguments[2])))

    def _ping(self) -> bool:
        return True

    def _info(self, section: str) -> dict[str, str]:
        return {"run_id": self.run_id}

    def _get(self, key: str) -> Any:
        until = self.expiry.get(key)
        if until is not None and until <= self.now_ms():
            del self.expiry[key]
            self.data.pop(key, None)
        return self.data.get(key)

    def _set(self, key: str, value: bytes, px: str = "", life_ms: int = 0) -> bool:
        self.data[key] = value
        self.expiry.pop(key, None)
        if life_ms:
            self.expiry[key] = self.now_ms() + life_ms
        return True

    def _del(self, key: str) -> int:
        self.expiry.pop(key, None)
        return int(self.data.pop(key, None) is not None)

    def _hget(self, key: str, field: str) -> bytes | None:
        found: bytes | None = self.data.get(key, {}).get(field)
        return found

    def _hmget(self, key: str, *fields: str) -> list[bytes | None]:
        found = self.data.get(key, {})
        return [found.get(field) for field in fields]

    def _mget(self, *keys: str) -> list[bytes | None]:
        return [self._get(key) for key in keys]

    def _hscan(self, key: str, at: int, count: str = "", number: int = 0) -> tuple[int, dict[bytes, bytes]]:
        return 0, {name.encode(): raw for name, raw in self.data.get(key, {}).items()}

    def _xread(self, *arguments: Any) -> list[Any]:
        """`COUNT n [BLOCK ms] STREAMS key id`; the caller does the waiting."""
        limit, key, after = arguments[1], arguments[-2], _id(arguments[-1])
        stream = self.data.get(key, [])
        at = bisect_right(stream, after, key=_first)
        found = stream[at : at + limit]
        return [[key.encode(), [(_text(id_).encode(), fields) for id_, fields in found]]] if found else []

    def _xrange(self, key: str, start: str, end: str, count: str, limit: int) -> list[Any]:
        after = (0, 0) if start == "-" else _id(start[1:])
        stream = self.data.get(key, [])
        at = bisect_right(stream, after, key=_first)
        return [(_text(id_).encode(), fields) for id_, fields in stream[at : at + limit]]

    def xadd(self, key: str, fields: dict[bytes, bytes]) -> None:
        now = self.now_ms()
        last = self._last_id
        self._last_id = (now, 0) if now > last[0] else (last[0], last[1] + 1)
        self.data.setdefault(key, []).append((self._last_id, fields))

    # ---- scripts: the Lua files of the package, line by line ------------------------------------------------

    def _eval(self, text: str, count: int, *arguments: Any) -> Any:
        script = next(s for s in _SCRIPTS if s.text == text)
        self._scripts.add(script.sha)
        return self._evalsha(script.sha, count, *arguments)

    def _evalsha(self, sha: str, count: int, *arguments: Any) -> Any:
        if sha not in self._scripts:
            raise NoScriptError("No matching script. Please use EVAL.")
        return _SCRIPTS_BY_SHA[sha](self, arguments[:count], arguments[count:])

    def _held(self, key: str, holder: str) -> bool:
        lease = self._get(key)
        if not lease:
            return False
        run, _, owner = lease.decode().split("/", 2)
        return bool(run == self.run_id and owner != holder)

    def leads(self, key: str, lease: str) -> bool:
        found = self._get(key)
        return bool(found and found.decode() == lease and lease.startswith(self.run_id + "/"))

    def acquire(self, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any] | int:
        holder, life_ms = arguments
        head = self.data.get(keys[2])
        if self._held(keys[0], holder):
            return int(head is not None)
        past = b"empty" if head is None else b"whole"
        if head is not None and head["run"] != self.run_id.encode() and not self._own_history:
            past = b"lost"
        n = int(self._get(keys[1]) or 0) + 1
        self.data[keys[1]] = str(n).encode()
        self._set(keys[0], f"{self.run_id}/{n}/{holder}".encode(), "PX", life_ms)
        self.on_lease(n)
        return [self.run_id.encode(), n, past]

    def renew(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        lease, life_ms = arguments
        if not self.leads(keys[0], lease):
            return 0
        if life_ms == 0:
            self._del(keys[0])
        else:
            self.expiry[keys[0]] = self.now_ms() + life_ms
        return 1

    def put_jit(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        if not self.leads(keys[0], arguments[0]):
            return 0
        self._set(keys[1], arguments[1], "PX", arguments[2])
        return 1

    def claim(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        nonce, life_ms = arguments
        holder = self._get(keys[0])
        if holder and holder != nonce:
            return 0
        if not holder or self.expiry[keys[0]] - self.now_ms() < life_ms / 2:
            self._set(keys[0], nonce, "PX", life_ms)
        return 1

    def append(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        number, life_ms, limit, urgent = arguments[:4]
        last = self._get(keys[1])
        if last and int(last) >= number:
            return 1
        self._set(keys[1], str(number).encode(), "PX", life_ms)
        events = arguments[4:]
        full = len(events) > urgent and len(self.data.get(keys[0], [])) + urgent >= limit
        stored = events[:urgent] if full else events
        for event in stored:
            self.xadd(keys[0], {b"e": event})
        self.on_append(stored)
        self.on_new_entries()
        return 0 if full else 1

    def commit(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        commit = Commit(keys, arguments)
        head = self.data.get(keys[1], {})
        if head.get("n") == str(commit.n).encode() and int(head["seq"]) >= commit.number:
            return 1
        if not self.leads(keys[0], commit.lease):
            self.on_commit(commit, False)
            return 0
        for line in commit.journal:
            self.xadd(keys[3], {b"j": line})
        for id_, event, why in commit.rejects:
            self.xadd(keys[4], {b"id": id_, b"e": event, b"why": why})
        for key, name, raw in commit.puts:
            if raw:
                self.data.setdefault(key, {})[name] = raw
            else:
                self.data.get(key, {}).pop(name, None)
        self.data[keys[1]] = {
            "cursor": commit.cursor.encode(), "n": str(commit.n).encode(), "seq": str(commit.number).encode(),
            "run": commit.lease.partition("/")[0].encode(),
        }  # fmt: skip
        inbox = self.data.get(keys[2], [])
        del inbox[: bisect_right(inbox, _id(commit.cursor), key=_first)]
        self.on_commit(commit, True)
        return 1


class Commit:
    """One tick's write, taken apart."""

    def __init__(self, keys: Sequence[str], arguments: Sequence[Any]) -> None:
        self.lease, self.n, self.number, self.cursor = arguments[:4]
        journal_end = 8 + arguments[6]
        self.journal: Sequence[bytes] = arguments[8:journal_end]
        rejects_end = journal_end + 3 * arguments[7]
        rejects = arguments[journal_end:rejects_end]
        self.rejects = list(zip(rejects[::3], rejects[1::3], rejects[2::3], strict=True))
        puts = arguments[rejects_end:]
        self.puts = sorted(  # one order, whatever the hash seed of the process: a server has none of its own
            (keys[index - 1], name, raw)
            for index, name, raw in zip(puts[::3], puts[1::3], puts[2::3], strict=True)
        )


_SCRIPTS_BY_SHA: dict[str, Callable[[Server, Sequence[str], Sequence[Any]], Any]] = {
    store._APPEND.sha: Server.append,
    store._ACQUIRE.sha: Server.acquire,
    store._RENEW.sha: Server.renew,
    store._COMMIT.sha: Server.commit,
    store._PUT_JIT.sha: Server.put_jit,
    store._CLAIM.sha: Server.claim,
}
_SCRIPTS = (store._APPEND, store._ACQUIRE, store._RENEW, store._COMMIT, store._PUT_JIT, store._CLAIM)


def _first(entry: tuple[Id, Any]) -> Id:
    return entry[0]


def _id(text: str) -> Id:
    ms, _, number = text.partition("-")
    return int(ms), int(number or 0)


def _text(id_: Id) -> str:
    return f"{id_[0]}-{id_[1]}"
