"""An event loop whose time jumps to the next timer, and whose processes can be killed and stopped at any await."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose code runs: every task and callback inherits it from what started it."""

WORLD = Context()
"""The context of everything that no replica owns: the wire, Redis, GitHub, clouds, machines."""


class Deadlock(Exception):
    """Nothing is ready and no timer is set."""


class Process:
    """One simulated operating-system process. Killed, none of its code runs again: no `finally`, no goodbye."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = self.stopped = False
        self.fuse = 0  # killed when that many more callbacks have run; 0: never
        self.on_death: list[Callable[[], None]] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)
        self.held: list[asyncio.Handle] = []  # what waits while it is stopped, or for ever

    @property
    def halted(self) -> bool:
        return self.dead or self.stopped

    def kill(self) -> None:
        """SIGKILL. Connections break, which is all that others notice."""
        if not self.dead:
            self.dead = True
            for tell in self.on_death:
                tell()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT: everything that became due meanwhile runs now."""
        self.stopped = False
        if not self.dead:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.due.extend(self.held)
            self.held.clear()


class VirtualLoop(asyncio.BaseEventLoop):
    """Single-threaded, no sockets, no waiting. `time` is virtual seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.due: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = 0
        self._tasks: list[asyncio.Task[Any]] = []  # kept: a collected coroutine would run its `finally`
        self._tasks_at_most = 4000
        self.set_task_factory(_own_task)
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self.now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.due.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._order += 1
        heapq.heappush(self._timers, (when, self._order, handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_soon_threadsafe(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("the simulation has no threads")

    def run_in_executor(self, *args: Any) -> Any:
        raise RuntimeError("the simulation has no threads")

    def _run_once(self) -> None:
        due, timers = self.due, self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not due:
            if not timers:
                raise Deadlock(f"nothing will ever happen again at {self.now:.3f} s")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                due.append(handle)
        for _ in range(len(due)):
            handle = due.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None:
                if process.halted:
                    process.held.append(handle)
                    continue
                if process.fuse:
                    process.fuse -= 1
                    if not process.fuse:
                        process.held.append(handle)
                        process.kill()
                        continue
            self.steps += 1
            handle._context.run(handle._callback, *handle._args)

    def _process_events(self, events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    def bury(self) -> None:
        """End what was left hanging, here and now: the collector would do it in the middle of anything."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        self._tasks.clear()
        self.close()


def _own_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
    loop._tasks.append(task)
    if len(loop._tasks) > loop._tasks_at_most:
        loop._tasks = [task for task in loop._tasks if not task.done()]
        loop._tasks_at_most = max(4000, 2 * len(loop._tasks))
    return task


def _close(coro: Any) -> None:
    for _ in range(20):  # its `finally` may wait again, and has no loop any more
        with suppress(Exception):
            coro.close()
            return
