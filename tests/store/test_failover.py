"""A failover by sentinels: with `?replicas=1` everything that was acknowledged is there afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from autoscaler.store import link as redis_link
from autoscaler.store.store import Store, StoreAway
from tests.sentinels import watched

from .conftest import FLEET, FLEET_KEY, stage
from .test_redis_url import whole_life


async def test_what_was_acknowledged_outlives_the_primary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and a commit that no replica gets are not acknowledged; then the primary is killed."""
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.8)
    async with watched(tmp_path) as servers:
        store = Store(servers.url, FLEET, FLEET_KEY)
        await store.open()
        await whole_life(store)
        acknowledged = [await _appended(store, number) for number in range(10, 30)]
        fence = await store.acquire("me", 60)
        assert fence
        assert fence.whole
        assert await store.commit(fence, {("switch", "all"): "acknowledged"}, "0-0")
        await servers.cut_off_primary()
        late = await asyncio.gather(*(_appended(store, number) for number in range(30, 50)))
        with pytest.raises(StoreAway, match="0 of 1 replicas"):
            await store.commit(fence, {("switch", "all"): "never acknowledged"}, "0-0")
        await servers.kill_primary()
        await servers.failed_over()
        again = None
        while again is None:
            try:
                again = await store.acquire("me", 60)
            except StoreAway:
                await asyncio.sleep(0.05)
        assert again.run_id != fence.run_id
        assert not again.whole  # a server cannot know that its master waited for it
        assert not await store.commit(fence, {("switch", "all"): "stale"}, "0-0")
        stored = {entry.event for entry in await store.read("0-0", 100, 0)}
        assert all(acknowledged)
        assert not any(late)
        assert stored == {stage(2), *(stage(number) for number in range(10, 30))}  # 2: of the whole life
        assert await store.commit(again, {("switch", "other"): "new"}, "0-0")
        records = {(kind, key): record for kind, key, record in (await store.load()).records}
        assert records == {("switch", "all"): "acknowledged", ("switch", "other"): "new"}
        await store.close()


async def _appended(store: Store, number: int) -> bool:
    try:
        await store.append([stage(number)])
    except StoreAway:
        return False
    return True
