"""What is kept of one run: columns by job of the recording, money and machines over time. Picklable.

Times are ms, money is micro-dollars. A job's columns are those of the run (attempt) that the simulated runner did.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

from scheduling.model import DurationMs, MicroUSD, UnixMs

NONE = -1
STAGES = ("launch", "create", "boot", "register", "pick")
"""What a job waits for, in order: the decision to launch its machine, the create call, the boot, the registration,
and GitHub. A machine that was on its way already had some of these behind it."""
BUCKETS = 240

MISSED, COMPLETED, CANCELLED, LOST, UNROUTABLE, WAITING, FOREIGN = range(7)
FATES = ("missed", "completed", "cancelled", "lost", "unroutable", "waiting", "foreign")


@dataclass(slots=True)
class Tally:
    """`offer` and `fund` are numbers in `offers` and `funds`; `NONE` where a job did not run, fund 0 is nobody."""

    first_ms: UnixMs
    last_ms: UnixMs
    rows: int
    end_ms: UnixMs = 0
    fate: bytearray = field(default_factory=bytearray)
    wait: array[int] = field(default_factory=lambda: array("i"))
    stages: dict[str, array[int]] = field(default_factory=dict)
    offer: array[int] = field(default_factory=lambda: array("i"))
    fund: array[int] = field(default_factory=lambda: array("i"))
    price: array[int] = field(default_factory=lambda: array("q"))
    cost: array[int] = field(default_factory=lambda: array("q"))
    life: array[int] = field(default_factory=lambda: array("q"))
    before: array[int] = field(default_factory=lambda: array("q"))  # of its life: until the job began
    ran: array[int] = field(default_factory=lambda: array("q"))  # of its life: the job
    offers: list[str] = field(default_factory=list)
    offer_provider: list[str] = field(default_factory=list)
    funds: list[str] = field(default_factory=lambda: [""])
    unused: Counter[tuple[str, str]] = field(default_factory=Counter)  # (offer, fund) -> cost without a job
    bucket_ms: DurationMs = 0
    by_provider: Counter[tuple[int, str]] = field(default_factory=Counter)  # (bucket, name) -> cost
    by_fund: Counter[tuple[int, str]] = field(default_factory=Counter)
    live: list[dict[str, int]] = field(default_factory=list)  # by bucket: runner type -> live runners
    interrupted: int = 0
    admission: int = 0  # jobs that were refused when they started

    def __post_init__(self) -> None:
        rows = self.rows
        self.fate = self.fate or bytearray(rows)
        self.wait = array("i", [NONE]) * rows
        self.stages = {name: array("i", [0]) * rows for name in STAGES}
        self.offer, self.fund = array("i", [NONE]) * rows, array("i", [0]) * rows
        for name in ("price", "cost", "life", "before", "ran"):
            setattr(self, name, array("q", [0]) * rows)
        self.bucket_ms = max(60_000, (self.last_ms - self.first_ms) // BUCKETS)

    def bucket(self, at_ms: UnixMs) -> int:
        return max(0, (at_ms - self.first_ms) // self.bucket_ms)

    def bucket_at(self, bucket: int) -> UnixMs:
        return self.first_ms + bucket * self.bucket_ms

    def began(self, row: int, at_ms: UnixMs, queued_ms: UnixMs, marks: tuple[UnixMs, ...]) -> None:
        """A job started; `marks` are when each of `STAGES` but the last was over, for its runner."""
        self.wait[row] = max(0, at_ms - queued_ms)
        since = queued_ms
        for column, mark in zip(self.stages.values(), (*marks, at_ms), strict=True):
            until = max(since, mark if mark < at_ms else at_ms)
            column[row] = until - since
            since = until

    def paid(self, at_ms: UnixMs, provider: str, cost: MicroUSD, parts: tuple[tuple[str, MicroUSD], ...]) -> None:
        """A machine's bill, booked when it was settled."""
        bucket = self.bucket(at_ms)
        if cost:
            self.by_provider[bucket, provider] += cost
        for fund, amount in parts:
            self.by_fund[bucket, fund] += amount
