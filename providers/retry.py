"""Asking again: how every adapter repeats a request that may be repeated. A launch never is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from providers.base import Clock, Transient
from scheduling.model import DurationMs

ATTEMPTS = 5
LONGEST_WAIT_MS: DurationMs = 20_000
_GROWING = wait_random_exponential(multiplier=0.2, max=5)

T = TypeVar("T")


class Throttled(Transient):
    """The vendor named the time to stay away; longer than we can wait, and the error goes to the core."""

    def __init__(self, text: str, retry_after_ms: DurationMs) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


async def ask(clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns, tried again a few times while it raises `Transient`."""

    async def sleep(seconds: float) -> None:
        await clock.sleep(int(seconds * 1000))

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(Transient),
        stop=lambda state: stop_after_attempt(ATTEMPTS)(state) or _named_ms(state) > LONGEST_WAIT_MS,
        wait=lambda state: max(_GROWING(state), _named_ms(state) / 1000),
        sleep=sleep,
        reraise=True,
    )

    async def attempt() -> T:
        return await call()

    return await retrying(attempt)


def _named_ms(state: RetryCallState) -> DurationMs:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after_ms if isinstance(error, Throttled) else 0
