"""How much may still be asked of GitHub: the budgets that its headers state, and the pace of JIT creations.

Source: docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api. Primary limits are in the
`x-ratelimit-*` headers, by resource; secondary limits show in no header, so that pace is felt for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from autoscaler.clock import Clock
from scheduling.model import HOUR_MS, DurationMs, UnixMs

MINUTE_MS: DurationMs = 60_000
JIT = "jit"
"""The resource of our own pace of JIT creations, beside those that GitHub names."""


class Need(Enum):
    """What a call is for. When a budget runs short the later ones go without, so that the first still can.

    The value is the part of the limit, in percent, that is left to the calls named before.
    """

    JIT = 0
    RUNNER = 2  # DELETE, one runner, one run, one job
    LIST = 10  # lists and sweeps


@dataclass(frozen=True, slots=True)
class Budget:
    """One App's budget of one `x-ratelimit-resource` at one owner; `jit` is our own pace of creations a minute.

    `reset_ms` is in our clock; of `jit` it is when the next creation may start.
    """

    app: str
    resource: str
    limit: int
    remaining: int
    reset_ms: UnixMs
    owner: str = ""


def creations_a_minute(budgets: Iterable[Budget]) -> dict[str, int]:
    """Case-folded owner -> JIT creations a minute through all its Apps."""
    found: dict[str, int] = {}
    for budget in budgets:
        if budget.resource == JIT:
            owner = budget.owner.casefold()
            found[owner] = found.get(owner, 0) + budget.limit
    return found


class Budgets:
    """The budgets of one installation of one App."""

    def __init__(self, app: str, owner: str) -> None:
        self.app, self.owner = app, owner
        self._known: dict[str, Budget] = {}
        self._resources: dict[Need, str] = {}  # which one a kind of call is counted in, as GitHub last said

    def learn(self, need: Need, headers: Mapping[str, str], offset_ms: DurationMs) -> None:
        """Takes an answer's headers; `offset_ms` is GitHub's time less ours."""
        try:
            limit, left = int(headers["x-ratelimit-limit"]), int(headers["x-ratelimit-remaining"])
            reset_ms = int(headers["x-ratelimit-reset"]) * 1000 - offset_ms
        except (KeyError, ValueError):
            return
        resource = headers.get("x-ratelimit-resource", "core")
        self._resources[need] = resource
        before = self._known.get(resource)
        if before and before.reset_ms == reset_ms:
            left = min(left, before.remaining)  # answers may overtake one another
        self._known[resource] = Budget(self.app, resource, limit, left, reset_ms, self.owner)

    def remaining(self, need: Need, now_ms: UnixMs) -> float:
        """Requests left for such a call; unknown counts as plenty."""
        budget = self._of(need)
        if budget is None or now_ms >= budget.reset_ms:
            return float("inf") if budget is None else budget.limit
        return budget.remaining

    def wait_ms(self, need: Need, now_ms: UnixMs) -> DurationMs:
        """How long until such a call may be made; 0: now."""
        budget = self._of(need)
        if budget is None or now_ms >= budget.reset_ms:
            return 0
        short = budget.remaining <= budget.limit * need.value // 100
        return min(HOUR_MS, budget.reset_ms - now_ms) if short else 0

    def all(self) -> list[Budget]:
        return list(self._known.values())

    def _of(self, need: Need) -> Budget | None:
        """None while GitHub has not said what such calls are counted in: then one is tried."""
        return self._known.get(self._resources.get(need, ""))


class JitPace:
    """How many JIT creations may start in any minute; fair to those who came first.

    Starts at 60 and grows by 10 for each full minute that GitHub accepted, as long as it is the pace that holds
    creations back. It halves (once a minute at most) when a secondary limit says no. What GitHub accepted in the
    minute before that is known to be allowed: the pace doubles up to it, stays there, and grows again an hour
    later. Any window of a minute is counted, so a burst may begin at once.
    """

    START, GROWTH, FLOOR, CEILING = 60.0, 10.0, 5.0, 300.0  # 1,500 registrations in 5 min an organisation
    WINDOW_MS: DurationMs = 61_000  # GitHub counts arrivals, and the way there takes now longer, now shorter
    GROWS_AGAIN_MS: DurationMs = HOUR_MS

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.rate = self.START
        self._starts: deque[UnixMs] = deque()  # of the last minute, and those promised
        self._accepted: deque[UnixMs] = deque()
        self._allowed = 0.0  # what was accepted in the minute before the last refusal
        self._full_ms: UnixMs = 0  # when the pace last left no room
        self._halved_ms: UnixMs = 0
        self._grows_ms: UnixMs = 0

    def wait_ms(self) -> DurationMs:
        """How long one more creation would have to wait."""
        now_ms = self.clock.now_ms()
        _forget(self._starts, now_ms - self.WINDOW_MS)
        allowed = int(self.rate)
        earliest = max(now_ms, self._starts[-1]) if self._starts else now_ms  # never before one promised earlier
        if len(self._starts) >= allowed:
            earliest = max(earliest, self._starts[-allowed] + self.WINDOW_MS)
        return earliest - now_ms

    async def acquire(self) -> DurationMs:
        """Waits for its turn; returns how long that took."""
        wait_ms = self.wait_ms()
        self._starts.append(self.clock.now_ms() + wait_ms)
        if len(self._starts) >= int(self.rate):
            self._full_ms = self._starts[-1]
        if wait_ms:
            await self.clock.sleep(wait_ms)
        return wait_ms

    def accepted(self) -> None:
        now_ms = self.clock.now_ms()
        self._accepted.append(now_ms)
        _forget(self._accepted, now_ms - MINUTE_MS)
        if now_ms > self._full_ms + self.WINDOW_MS:
            return
        if self.rate < self._allowed:
            self.rate = min(self._allowed, self.rate + 1)
        elif now_ms >= self._grows_ms:
            self.rate = min(self.CEILING, self.rate + self.GROWTH / self.rate)

    def limited(self) -> None:
        now_ms = self.clock.now_ms()
        if now_ms - self._halved_ms < MINUTE_MS:
            return
        _forget(self._accepted, now_ms - MINUTE_MS)
        half = max(self.FLOOR, self.rate / 2)
        self._allowed = max(half, float(len(self._accepted)))  # few were accepted: nothing is known of the limit
        self.rate = half
        self._halved_ms, self._grows_ms = now_ms, now_ms + self.GROWS_AGAIN_MS

    def left(self) -> int:
        """How many more may start at once."""
        _forget(self._starts, self.clock.now_ms() - self.WINDOW_MS)
        return max(0, int(self.rate) - len(self._starts))


def _forget(times: deque[UnixMs], until_ms: UnixMs) -> None:
    while times and times[0] <= until_ms:
        times.popleft()
