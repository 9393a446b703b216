"""Every key that the store writes, in one table.

All keys of a fleet begin with `{fleet}:`. The braces are literal: they are the hash tag that keeps a fleet in one
slot of a cluster, so that scripts may touch several of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoscaler.store.codec import RECORD_TYPES

RedisType = Literal["stream", "string", "hash"]


@dataclass(frozen=True, slots=True)
class KeySpec:
    """`name` follows the prefix; a part in angle brackets varies. `life` says what bounds it."""

    name: str
    type: RedisType
    holds: str
    life: str


KEYS: tuple[KeySpec, ...] = (
    KeySpec("inbox", "stream", "field `e`: one event that no commit has consumed yet", "trimmed by commit"),
    KeySpec("appended:<appender>", "string", "number of the last batch of one process", "APPENDED_LIFE_MS"),
    KeySpec("head", "hash", "`cursor`: last inbox id consumed; `run`, `n`, `seq`: the last commit", "-"),
    KeySpec("lease", "string", "`run id/n/holder` of the leader's fence", "the lease's time to live"),
    KeySpec("fence", "string", "counter behind the fences", "-"),
    KeySpec("journal", "stream", "field `j`: JSON of one journal entry", "about JOURNAL_LENGTH entries"),
    KeySpec("rejects", "stream", "`id`, `e`, `why`: inbox entries set aside", "about REJECTS_LENGTH entries"),
    KeySpec("jit:<runner>", "string", "sealed JIT config that waits for its machine", "JIT_LIFE_MS"),
    KeySpec("machine:<runner>", "string", "nonce of the one machine that may speak for it", "MACHINE_LIFE_MS"),
    KeySpec("host:<host>", "hash", "what is wanted of a donated host, its last report, who joined it", "-"),
    KeySpec("heard:<host>", "string", "that a host which calls us has done so lately", "PRESENT_MS"),
    *(
        KeySpec(kind, "hash", f"key -> JSON of one {record.__name__} ({kind} record)", "deleted by commit")
        for kind, record in RECORD_TYPES.items()
    ),
)

JOURNAL_LENGTH = 20_000
REJECTS_LENGTH = 1_000
APPENDED_LIFE_MS = 3_600_000
JIT_LIFE_MS = 120_000
"""Two minutes of real time: a config that no machine fetched by then is worth nothing to a thief either."""
MACHINE_LIFE_MS = 3_600_000
"""From the machine's last call on; one that waits for its config calls every half a minute."""


class Keys:
    """The keys of one fleet."""

    def __init__(self, fleet: str) -> None:
        self.prefix = "{" + fleet + "}:"
        self.inbox = self.prefix + "inbox"
        self.head = self.prefix + "head"
        self.lease = self.prefix + "lease"
        self.fence = self.prefix + "fence"
        self.journal = self.prefix + "journal"
        self.rejects = self.prefix + "rejects"
        self.records = {kind: self.prefix + kind for kind in RECORD_TYPES}

    def appended(self, appender: str) -> str:
        return f"{self.prefix}appended:{appender}"

    def jit(self, runner_id: str) -> str:
        return f"{self.prefix}jit:{runner_id}"

    def machine(self, runner_id: str) -> str:
        return f"{self.prefix}machine:{runner_id}"

    def host(self, host: str) -> str:
        return f"{self.prefix}host:{host}"

    def heard(self, host: str) -> str:
        return f"{self.prefix}heard:{host}"
