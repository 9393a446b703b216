"""What stands in the place of redis-py: the wire to the twin, with everything that can happen on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from autoscaler.store import store
from tests.simulation.loop import WORLD
from tests.simulation.redis_server import Server
from tests.simulation.wire import Wire, settle

_EFFECTS = {store._COMMIT.sha: "commit", store._APPEND.sha: "append", store._PUT_JIT.sha: "put_jit"}


class RedisWire:
    """The way to one server, for all replicas. Times are the loop's."""

    shown = "twin"
    directory = None
    replicas = 0

    def __init__(self, wire: Wire, server: Server, strikes: Callable[[str], bool]) -> None:
        self.wire, self.server, self.strikes = wire, server, strikes
        self.down_until_s = 0.0
        self.stalled_until_s = 0.0
        self.slow_s = 0.0  # added to each way, at most
        self._readers: list[tuple[asyncio.Future[Any], Sequence[Any]]] = []
        server.on_new_entries = self._wake

    def client(self, answer_seconds: float | None) -> Client:
        return Client(self, answer_seconds)

    async def send(self, act: Callable[[], Any], answer_s: float | None, effect: str = "") -> Any:
        """`act` at the server. Raises redis-py's errors; the command may be applied in spite of them."""
        wire, loop, dice = self.wire, self.wire.loop, self.wire.dice
        if loop.now < self.down_until_s:
            await asyncio.sleep(0.002)
            raise RedisConnectionError("connection refused")
        latency_s = 0.0003 + 0.001 * dice.random()
        out_s, back_s = (latency_s, 0.0) if dice.random() < 0.5 else (0.0, latency_s)
        if self.slow_s:
            out_s, back_s = self.slow_s * dice.random(), self.slow_s * dice.random()
        if loop.now < self.stalled_until_s:
            out_s = self.stalled_until_s - loop.now + out_s
        run_id = self.server.run_id

        def applied() -> Any:
            if self.server.run_id != run_id:
                raise RedisConnectionError("connection lost")
            answer = act()
            if effect and self.strikes("redis_answer_lost"):
                raise RedisConnectionError("connection lost, and the command was applied")
            return answer

        answer = wire.effect(effect, applied, out_s, back_s) if effect else wire.call(applied, out_s, back_s)
        if answer_s is not None and out_s + back_s > answer_s:
            loop.call_later(answer_s, settle, answer, None, RedisTimeoutError("Timeout reading"), context=WORLD)
        result = await answer
        if self.server.run_id != run_id:
            raise RedisConnectionError("connection lost")
        return result

    async def read(self, command: Sequence[Any]) -> Any:
        """XREAD with BLOCK: wait for entries at the server."""
        found = await self.send(lambda: self.server.execute(command), None)
        block_ms = command[command.index("BLOCK") + 1] if "BLOCK" in command else 0
        if found or not block_ms:
            return found
        loop = self.wire.loop
        waiting: asyncio.Future[Any] = loop.create_future()
        self._readers.append((waiting, command))
        timer = loop.call_later(block_ms / 1000, settle, waiting, [], None, context=WORLD)
        try:
            return await waiting
        finally:
            timer.cancel()

    def _wake(self) -> None:
        """Readers that wait are given what came."""
        readers, self._readers = self._readers, []
        for waiting, command in readers:
            if not waiting.done():
                settle(waiting, self.server.execute(command), None)

    def disconnect(self, down_s: float) -> None:
        """The server is gone for that long; whoever waits learns it."""
        self.down_until_s = self.wire.loop.now + down_s
        readers, self._readers = self._readers, []
        for waiting, _ in readers:
            settle(waiting, None, RedisConnectionError("connection lost"))


class Client:
    """The part of `redis.asyncio.Redis` that `RedisLink` uses."""

    connection_pool = None

    def __init__(self, wire: RedisWire, answer_seconds: float | None) -> None:
        self._wire, self._answer_s = wire, answer_seconds

    async def execute_command(self, *command: Any) -> Any:
        if command[0] == "XREAD":
            return await self._wire.read(command)
        effect = _EFFECTS.get(command[1], "") if command[0] == "EVALSHA" else ""
        return await self._wire.send(lambda: self._wire.server.execute(command), self._answer_s, effect)

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self._wire, self._answer_s)

    async def aclose(self) -> None:
        """Nothing is open."""


class Pipeline:
    def __init__(self, wire: RedisWire, answer_seconds: float | None) -> None:
        self._wire, self._answer_s = wire, answer_seconds
        self._commands: list[Sequence[Any]] = []

    def execute_command(self, *command: Any) -> None:
        self._commands.append(command)

    async def execute(self) -> list[Any]:
        server, commands = self._wire.server, self._commands
        answers: list[Any] = await self._wire.send(lambda: [server.execute(c) for c in commands], self._answer_s)
        return answers
