"""How the store calls Redis: two clients, scripts by hash, and one kind of failure, `StoreAway`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from autoscaler.store import url as redis_url
from autoscaler.store.url import RedisUrl

ANSWER_SECONDS = 1.0
PATIENCE_SECONDS = 2.5
"""How long a repeatable call is tried again before it counts as unanswered; GitHub waits 10 s for our 202."""
_AGAIN_SECONDS = 0.05
_REPLICAS_MS = 500
_T = TypeVar("_T")


class StoreAway(Exception):
    """Redis did not answer, or answered that it cannot write now. The call may or may not have been applied."""


class Script:
    """A Lua file of this package. `fenced` puts `fence.lua` before it."""

    def __init__(self, name: str, *, fenced: bool) -> None:
        folder = files("autoscaler.store")
        prelude = (folder / "fence.lua").read_text() if fenced else ""
        self.text = prelude + (folder / f"{name}.lua").read_text()
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisLink:
    """One client for calls that are answered at once, one for reads that block."""

    def __init__(self, url: RedisUrl) -> None:
        self._shown = url.shown
        self._replicas = url.replicas
        self._quick: Any = url.client(
            ANSWER_SECONDS
        )  # redis-py's own annotations describe no version in particular
        self._blocking: Any = url.client(answer_seconds=None)

    async def close(self) -> None:
        for client in (self._quick, self._blocking):
            await redis_url.close(client)

    async def call(self, *command: Any) -> Any:
        """One command, tried once."""
        return await self._once(str(command[0]), lambda: self._quick.execute_command(*command))

    async def call_repeatable(self, *command: Any) -> Any:
        """One command that changes nothing the second time, tried again while the server does not answer."""
        return await self._patiently(str(command[0]), lambda: self._quick.execute_command(*command))

    async def block(self, seconds: float, *command: Any) -> Any:
        """A command that itself waits up to `seconds` for its answer."""
        try:
            async with asyncio.timeout(seconds + ANSWER_SECONDS):
                return await self._once(str(command[0]), lambda: self._blocking.execute_command(*command))
        except TimeoutError as error:
            raise StoreAway(f"{command[0]}: no answer from {self._shown}") from error

    async def together(self, *commands: Sequence[Any]) -> list[Any]:
        """Several commands in one round trip, tried once."""
        pipeline = self._quick.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await self._once(str(commands[0][0]), pipeline.execute)
        return answers

    async def script(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script, tried once."""
        return await self._once("script", lambda: self._run(script, keys, arguments))

    async def script_repeatable(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script that changes nothing the second time, again while the server does not answer.

        Where the address asks for replicas, they have what it wrote when this returns.
        """
        return await self._patiently("script", lambda: self._run_safely(script, keys, arguments))

    async def _run_safely(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        if not self._replicas:
            return await self._run(script, keys, arguments)
        pipeline = self._quick.pipeline(transaction=False)  # WAIT is about what its own connection wrote
        # By its text: in a pipeline there is no second try for a server that does not know the hash
        pipeline.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
        pipeline.execute_command("WAIT", self._replicas, _REPLICAS_MS)
        answer, have = await pipeline.execute()
        if have < self._replicas:
            raise RedisTimeoutError(f"{have} of {self._replicas} replicas have what was written")
        return answer

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        try:
            return await self._quick.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._quick.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    async def _once(self, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
        try:
            return await call()
        except (RedisError, OSError) as error:
            raise StoreAway(f"{what}: {str(error) or type(error).__name__} ({self._shown})") from error

    async def _patiently(self, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await self._once(what, call)
            except StoreAway as away:
                unanswered = isinstance(away.__cause__, RedisConnectionError | RedisTimeoutError | OSError)
                if not unanswered or loop.time() >= end:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)
