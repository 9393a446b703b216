"""The twin of Redis answers as a real Valkey does: the same operations of the real `Store` on both, compared."""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from autoscaler.store.codec import encode_record
from autoscaler.store.store import NOBODY, START, Fence, InboxFull, StaleFence, Store, StoreAway
from scheduling.messages import Stage, StageReported
from tests.simulation.clock import SimClock
from tests.simulation.loop import VirtualLoop
from tests.simulation.redis_client import RedisWire
from tests.simulation.redis_server import Server
from tests.simulation.wire import Wire

KEY = b"fleet-key-of-a-test-with-32-bytes-and-more"
LEASE_S = 600.0
LIMIT = 6
HOLDERS = st.sampled_from(("aa", "bb"))
RUNNERS = st.sampled_from(tuple(f"r{letter * 20}" for letter in "xyz"))
TOMBSTONES = st.dictionaries(
    st.sampled_from(("one", "two", "three")), st.one_of(st.none(), st.integers(0, 9)), max_size=3
)
_numbers = itertools.count()


class Side:
    """A store with its loop; what it hands out is kept by position, for the ids of the two sides differ."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self.loop, self.store = loop, store
        self.fences: list[Fence] = []
        self.ids = [START]

    def do(self, work: Callable[[Store], Coroutine[Any, Any, Any]]) -> Any:
        """The result, or the kind of the failure."""
        try:
            return self.loop.run_until_complete(work(self.store))
        except (StoreAway, StaleFence, InboxFull) as error:
            return type(error)


class TwinAndValkey(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        fleet = f"twin{next(_numbers)}"
        self.directory = tempfile.TemporaryDirectory()
        real = asyncio.new_event_loop()
        store = Store(f"embedded:{self.directory.name}", fleet, KEY, LIMIT)
        real.run_until_complete(store.open())
        loop = VirtualLoop()
        server = Server(SimClock(loop).now_ms, random.Random(1))
        twin = Store("redis://twin", fleet, KEY, LIMIT)
        twin._url = RedisWire(Wire(loop, random.Random(2)), server, lambda kind: False)  # type: ignore[assignment]
        loop.run_until_complete(twin.open())
        self.server = server
        self.sides = (Side(real, store), Side(loop, twin))
        self.at = 0  # where both cursors stand, as an index into `ids`
        self.count = self.restarts = 0

    def teardown(self) -> None:
        for side in self.sides:
            side.loop.run_until_complete(side.store.close())
            side.loop.close()
        self.directory.cleanup()

    def same(self, work: Callable[[Side], Callable[[Store], Coroutine[Any, Any, Any]]]) -> Any:
        real, twin = (side.do(work(side)) for side in self.sides)
        assert real == twin
        return twin

    @rule(count=st.integers(1, 3), bulk=st.booleans())
    def append(self, count: int, bulk: bool) -> None:
        events = [StageReported(self.count + i, f"r{'s' * 20}", Stage.BOOTED) for i in range(count)]
        self.count += count
        self.same(lambda side: lambda store: store.append(events, bulk=bulk))

    @rule(limit=st.integers(1, 4))
    def read(self, limit: int) -> None:
        real, twin = (
            side.do(lambda store, side=side: store.read(side.ids[self.at], limit, 0.0)) for side in self.sides
        )
        assert [entry.event for entry in real] == [entry.event for entry in twin]
        for side, entries in zip(self.sides, (real, twin), strict=True):
            del side.ids[self.at + 1 :]
            side.ids += [entry.id for entry in entries]

    @rule(holder=HOLDERS)
    def acquire(self, holder: str) -> None:
        real, twin = (side.do(lambda store: store.acquire(holder, LEASE_S)) for side in self.sides)
        assert (real is None) == (twin is None)
        if real is not None:
            assert (real.n, real.holder) == (twin.n, twin.holder)
            for side, fence in zip(self.sides, (real, twin), strict=True):
                side.fences.append(fence)

    @rule(which=st.integers(0, 5))
    def renew(self, which: int) -> None:
        if which < len(self.sides[0].fences):
            self.same(lambda side: lambda store: store.renew(side.fences[-1 - which], LEASE_S))

    @rule(which=st.integers(0, 5))
    def release(self, which: int) -> None:
        if which < len(self.sides[0].fences):
            self.same(lambda side: lambda store: store.release(side.fences[-1 - which]))

    @rule(which=st.integers(0, 3), tombstones=TOMBSTONES, consume=st.booleans(), lines=st.integers(0, 2))
    def commit(self, which: int, tombstones: dict[str, int | None], consume: bool, lines: int) -> None:
        if which >= len(self.sides[0].fences):
            return
        puts = {("tombstone", name): at_ms for name, at_ms in tombstones.items()}
        to = len(self.sides[0].ids) - 1 if consume else self.at
        journal = [{"event": "Test", "body": number} for number in range(lines)]
        done = self.same(
            lambda side: lambda store: store.commit(side.fences[-1 - which], puts, side.ids[to], journal)
        )
        if done is True:
            self.at = to

    @rule(runner=RUNNERS, config=st.text("abc", min_size=1, max_size=5), which=st.integers(0, 3))
    def put_jit(self, runner: str, config: str, which: int) -> None:
        if which < len(self.sides[0].fences):
            self.same(lambda side: lambda store: store.put_jit(runner, config, side.fences[-1 - which]))

    @rule(runner=RUNNERS)
    def drop_jit(self, runner: str) -> None:
        self.same(lambda side: lambda store: store.drop_jit(runner))

    @rule(runner=RUNNERS, nonce=st.sampled_from(("one", "two", NOBODY)))
    def claim(self, runner: str, nonce: str) -> None:
        self.same(lambda side: lambda store: store.claim(runner, nonce))

    @rule(runners=st.lists(RUNNERS, max_size=3, unique=True))
    def look(self, runners: list[str]) -> None:
        self.same(lambda side: lambda store: store.look(runners))

    @rule()
    def journal(self) -> None:
        real, twin = (side.do(lambda store: store.journal()) for side in self.sides)
        assert [line for _, line in real] == [line for _, line in twin]

    @precondition(lambda self: self.restarts < 2)
    @rule()
    def another_server_life(self) -> None:
        """A restart: the data stays, every fence is void."""
        self.restarts += 1
        real = self.sides[0]
        real.loop.run_until_complete(real.store.close())
        real.loop.run_until_complete(real.store.open())
        self.server.restart()

    @invariant()
    def holds_the_same(self) -> None:
        real, twin = (side.do(lambda store: store.load()) for side in self.sides)
        records = [
            sorted((kind, name, encode_record(record)) for kind, name, record in loaded.records)
            for loaded in (real, twin)
        ]
        assert records[0] == records[1]


TwinAndValkey.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTwin = pytest.mark.timeout(600)(TwinAndValkey.TestCase)
