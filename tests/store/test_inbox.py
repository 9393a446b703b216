"""The inbox: durable, packed, stored once, never lost to a cancelled caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.store.codec import Undecodable
from autoscaler.store.keys import Keys
from autoscaler.store.store import InboxFull, Store
from scheduling.messages import StageReported

from .conftest import FLEET, Lossy, stage

INBOX = Keys(FLEET).inbox


async def details(store: Store) -> list[str]:
    entries = await store.read("0-0", 10_000, 0)
    return [entry.event.detail for entry in entries if isinstance(entry.event, StageReported)]


async def calls(redis: Any) -> int:
    """Scripts that the server has run."""
    return int((await redis.info("commandstats")).get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_events_come_back_in_order(store: Store) -> None:
    for number in range(5):
        await store.append([stage(number)])
    assert [entry.event for entry in await store.read("0-0", 10, 0)] == [stage(number) for number in range(5)]


async def test_a_read_is_bounded_and_goes_on_after_its_cursor(store: Store) -> None:
    await store.append([stage(number) for number in range(5)])
    first = await store.read("0-0", 3, 0)
    assert [entry.event for entry in first] == [stage(0), stage(1), stage(2)]
    assert [entry.event for entry in await store.read(first[-1].id, 3, 0)] == [stage(3), stage(4)]


async def test_a_waiting_read_returns_as_soon_as_something_arrives(store: Store) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    reading = asyncio.create_task(store.read("0-0", 10, 20))
    await asyncio.sleep(0.05)
    await store.append([stage(7)])
    assert [entry.event for entry in await reading] == [stage(7)]
    assert loop.time() - began < 5


async def test_a_read_without_news_ends_empty(store: Store) -> None:
    assert await store.read("0-0", 10, 0.05) == []
    assert await store.read("0-0", 10, 0) == []


async def test_a_cancelled_read_leaves_the_store_usable(store: Store) -> None:
    reading = asyncio.create_task(store.read("0-0", 10, 20))
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await store.append([stage(1)])
    assert len(await store.read("0-0", 10, 1)) == 1


async def test_concurrent_appends_are_packed(store: Store, redis: Any) -> None:
    await store.append([stage()])
    before = await calls(redis)
    await asyncio.gather(*(store.append([stage(number)]) for number in range(500)))
    assert await redis.xlen(INBOX) == 501
    assert await calls(redis) - before <= 2


async def test_a_cancelled_caller_loses_nothing(store: Store) -> None:
    callers = [asyncio.create_task(store.append([stage(detail=str(number))])) for number in range(10)]
    await asyncio.sleep(0)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    await store.append([stage(detail="after")])
    assert await details(store) == [*map(str, range(10)), "after"]


async def test_close_waits_for_appends_under_way(open_store: Callable[..., Any], redis: Any) -> None:
    store = await open_store()
    appending = asyncio.create_task(store.append([stage()]))
    await asyncio.sleep(0)
    await store.close()
    await appending
    assert await redis.xlen(INBOX) == 1


async def test_a_lost_answer_stores_nothing_twice(
    open_store: Callable[..., Any], lossy: Lossy, redis: Any
) -> None:
    store = await open_store(lossy.path)
    await store.append([stage(detail="first")])
    lossy.losses = 1
    await store.append([stage(detail="second"), stage(detail="third")])
    assert lossy.lost == 1
    assert await details(store) == ["first", "second", "third"]


async def test_a_full_inbox_refuses_webhooks_and_nothing_else(open_store: Callable[..., Any], redis: Any) -> None:
    store = await open_store(inbox_limit=3)
    await store.append([stage(detail=str(number)) for number in range(3)], bulk=True)
    answers = await asyncio.gather(
        store.append([stage(detail="webhook")], bulk=True),
        store.append([stage(detail="callback")]),
        return_exceptions=True,
    )
    assert isinstance(answers[0], InboxFull)
    assert answers[1] is None
    assert await details(store) == ["0", "1", "2", "callback"]


async def test_large_appends_are_split_into_batches(store: Store, redis: Any) -> None:
    await store.append([stage()])
    before = await calls(redis)
    await asyncio.gather(*(store.append([stage(detail="x" * 400_000)]) for _ in range(6)))
    assert await calls(redis) - before == 2
    assert await redis.xlen(INBOX) == 7


async def test_what_is_no_event_is_read_as_such(store: Store, redis: Any) -> None:
    await redis.xadd(INBOX, {"e": b"not json"})
    await redis.xadd(INBOX, {"other": b"1"})
    await store.append([stage()])
    first, second, third = await store.read("0-0", 10, 0)
    assert isinstance(first.event, Undecodable)
    assert first.event.raw == b"not json"
    assert isinstance(second.event, Undecodable)
    assert third.event == stage()


async def test_nothing_appended_costs_nothing(store: Store, redis: Any) -> None:
    await store.append([])
    assert await redis.keys("*") == []


async def test_a_flushed_script_cache_is_no_trouble(store: Store, redis: Any) -> None:
    await store.append([stage(1)])
    await redis.script_flush()
    await store.append([stage(2)])
    assert await redis.xlen(INBOX) == 2


async def test_shell_metacharacters_are_only_text(store: Store) -> None:
    nasty = "$(touch /tmp/x) `id` ; rm -rf / \r\n*3\r\n$8\r\nFLUSHALL \x00 \u2028"
    await store.append([stage(detail=nasty)])
    assert await details(store) == [nasty]


@pytest.mark.parametrize("count", [3000])
async def test_a_big_pack_arrives_whole(store: Store, redis: Any, count: int) -> None:
    await store.append([stage(number) for number in range(count)])
    assert await redis.xlen(INBOX) == count
