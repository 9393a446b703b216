"""The lease, its fence, and the one script that writes a tick."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.clock import Clock
from autoscaler.store.codec import RECORD_TYPES, Undecodable
from autoscaler.store.embedded import Embedded
from autoscaler.store.keys import KEYS, Keys
from autoscaler.store.store import Fence, StaleFence, Store, StoreAway
from autoscaler.store.url import unix_url
from scheduling.lifecycle import JobState
from scheduling.model import Cooldown, FundAccount, Job, Pool, Totals, Usage

from .conftest import FLEET, FLEET_KEY, Lossy, stage

JOB = Job("1.1", 1, 2, "o/r", ("linux",), JobState.QUEUED, name="build")
RECORDS: dict[tuple[str, str], object] = {
    ("job", "1.1"): JOB,
    ("tombstone", "0.1"): 1764511111111,
    ("pool", "p"): Pool("p", "linux", "repo:o/r", "o/r", frozenset({"aws"})),
    ("cooldown", "provider:aws"): Cooldown("provider:aws", 5, "quota"),
    ("fund", "cash"): FundAccount("cash", held={"2026-11": 5}),
    ("switch", "all"): "operator",
    ("totals", "all"): Totals(launched=3),
    ("usage", "o/r"): Usage("o/r", 2.5, 7),
}


async def lead(store: Store, holder: str = "me", ttl_s: float = 30) -> Fence:
    fence = await store.acquire(holder, ttl_s)
    assert fence
    return fence


async def stored(store: Store) -> dict[tuple[str, str], Any]:
    return {(kind, key): record for kind, key, record in (await store.load()).records}


async def test_an_empty_store_loads_empty(store: Store) -> None:
    loaded = await store.load()
    assert (loaded.cursor, loaded.records) == ("0-0", [])


async def test_a_commit_writes_everything_at_once(store: Store, redis: Any) -> None:
    await store.append([stage(1), stage(2), stage(3)])
    entries = await store.read("0-0", 2, 0)
    assert await store.commit(await lead(store), RECORDS, entries[-1].id, [{"did": "a"}, {"did": "b", "job": JOB}])
    loaded = await store.load()
    assert loaded.cursor == entries[-1].id
    assert await stored(store) == RECORDS
    assert (await store.journal())[0][1] == {"did": "a"}
    assert await redis.xlen(Keys(FLEET).inbox) == 1
    assert [entry.event for entry in await store.read(loaded.cursor, 10, 0)] == [stage(3)]


async def test_none_deletes(store: Store) -> None:
    fence = await lead(store)
    await store.commit(fence, {("job", "1.1"): JOB, ("job", "2.1"): JOB}, "0-0")
    assert await store.commit(fence, {("job", "1.1"): None, ("job", "3.1"): None}, "0-0")
    assert await stored(store) == {("job", "2.1"): JOB}


async def test_the_journal_pages(store: Store) -> None:
    fence = await lead(store)
    await store.commit(fence, {}, "0-0", [{"n": number} for number in range(5)])
    first = await store.journal(limit=2)
    rest = await store.journal(after=first[-1][0])
    assert [entry["n"] for _, entry in [*first, *rest]] == [0, 1, 2, 3, 4]


async def test_k2_an_undecodable_entry_is_set_aside_and_the_rest_go_on(store: Store, redis: Any) -> None:
    await redis.xadd(Keys(FLEET).inbox, {"e": b"not json"})
    await store.append([stage(1)])
    entries = await store.read("0-0", 10, 0)
    assert isinstance(entries[0].event, Undecodable)
    assert await store.commit(await lead(store), {}, entries[-1].id, (), entries)
    aside = [fields for _, fields in await redis.xrange(Keys(FLEET).rejects)]
    assert [fields[b"id"].decode() for fields in aside] == [entry.id for entry in entries]
    assert aside[0][b"e"] == b"not json"
    assert b"malformed" in aside[0][b"why"]
    assert await store.read("0-0", 10, 0) == []


async def test_a_lost_answer_commits_once(open_store: Callable[..., Any], lossy: Lossy) -> None:
    store = await open_store(lossy.path)
    fence = await lead(store)
    lossy.losses = 1
    assert await store.commit(fence, {("job", "1.1"): JOB}, "5-0", [{"n": 1}])
    assert lossy.lost == 1
    assert await store.commit(fence, {("job", "1.1"): JOB}, "6-0", [{"n": 2}])
    assert [entry["n"] for _, entry in await store.journal()] == [1, 2]


async def test_a_large_commit(store: Store) -> None:
    puts = {("job", f"{number}.1"): JOB for number in range(10_000)}
    assert await store.commit(await lead(store), puts, "0-0")
    assert len((await store.load()).records) == 10_000


async def test_a_damaged_record_is_named(store: Store, redis: Any) -> None:
    await redis.hset(Keys(FLEET).records["runner"], "r1", b"{}")
    with pytest.raises(Undecodable, match="not a runner record"):
        await store.load()


# ---- the fence ---------------------------------------------------------------------------------------------


async def test_one_leads_at_a_time(store: Store, open_store: Callable[..., Any]) -> None:
    other = await open_store()
    fence = await lead(store, "me")
    assert await other.acquire("you", 30) is None
    assert await store.renew(fence, 30)
    await store.release(fence)
    assert await other.acquire("you", 30)


async def test_a_lease_runs_out_in_real_time(store: Store) -> None:
    fence = await lead(store, "me", 0.05)
    await asyncio.sleep(0.1)
    assert not await store.renew(fence, 30)
    assert not await store.commit(fence, {("job", "1.1"): JOB}, "0-0")
    assert (await lead(store, "you")).n == fence.n + 1


@pytest.mark.parametrize("loss", ["released", "taken over", "taken again", "expired"])
async def test_i8_a_stale_fence_never_applies(store: Store, open_store: Callable[..., Any], loss: str) -> None:
    fence = await lead(store, "me", 0.1 if loss in ("expired", "taken over") else 30)
    assert await store.commit(fence, {("switch", "all"): "before"}, "1-0", [{"n": 1}])
    if loss == "released":
        await store.release(fence)
    elif loss == "taken again":
        await lead(store, "me")
    elif loss in ("expired", "taken over"):
        await asyncio.sleep(0.15)
    if loss == "taken over":
        await lead(await open_store(), "you")
    await refused(store, fence)


async def test_i8_a_fence_of_the_servers_last_run_never_applies(embedded: Embedded) -> None:
    store = await killable(embedded)
    fence = await lead(store)
    assert await store.commit(fence, {("switch", "all"): "before"}, "1-0", [{"n": 1}])
    await kill(embedded, store)
    await refused(store, fence)
    await store.close()


async def refused(store: Store, fence: Fence) -> None:
    """Whatever a stale leader tries, what was committed before stands."""
    assert not await store.commit(fence, {("switch", "all"): "after"}, "2-0", [{"n": 2}])
    assert not await store.renew(fence, 30)
    with pytest.raises(StaleFence):
        await store.put_jit("r" + "a" * 20, "config", fence)
    loaded = await store.load()
    assert loaded.cursor == "1-0"
    assert loaded.records == [("switch", "all", "before")]
    assert len(await store.journal()) == 1


async def test_a_stale_leader_cannot_give_up_the_lease_of_another(
    store: Store, open_store: Callable[..., Any]
) -> None:
    stale = await lead(store, "me")
    fence = await lead(store, "me")
    await store.release(stale)
    assert await store.commit(fence, {}, "0-0")


async def test_a_restarted_server_is_led_anew_at_once(embedded: Embedded) -> None:
    """The fence of its last run is void, so nobody waits for the end of that lease."""
    store = await killable(embedded)
    before = await lead(store, "me", 600)
    await kill(embedded, store)
    fence = await lead(store, "you")
    assert fence.n == before.n + 1
    assert fence.run_id == await store.server_run_id() != before.run_id
    await store.close()


async def test_a_number_that_rolled_back_fools_nobody(store: Store, redis: Any) -> None:
    """A failover may lose the counter's last steps; the run id in the fence tells the two leaders apart."""
    current = await lead(store, "you")
    forged = Fence("0" * 40, current.n, "you")
    assert not await store.commit(forged, {("job", "1.1"): JOB}, "0-0")
    assert not await store.renew(forged, 30)
    assert (await store.load()).records == []


async def test_a_server_that_comes_back_from_its_append_only_file_has_lost_nothing(embedded: Embedded) -> None:
    store = await killable(embedded)
    assert await store.commit(await lead(store), RECORDS, "0-0")
    await kill(embedded, store)
    assert (await lead(store)).whole


async def test_an_emptied_server_is_told_from_a_new_one(
    store: Store, redis: Any, open_store: Callable[..., Any]
) -> None:
    follower, stranger = await open_store(), await open_store()
    fence = await lead(store)
    assert fence.whole
    assert await store.commit(fence, RECORDS, "0-0")
    assert await follower.acquire("you", 30) is None
    assert (await lead(store)).whole
    await redis.flushall()
    assert not (await lead(store)).whole
    assert not (await lead(follower)).whole
    assert (await lead(stranger)).whole  # it cannot know better


async def test_a_server_in_another_life_without_a_file_may_have_lost_commits(store: Store, redis: Any) -> None:
    assert await store.commit(await lead(store), RECORDS, "0-0")
    await redis.hset(Keys(FLEET).head, "run", "0" * 40)
    assert not (await lead(store)).whole
    fence = await lead(store)
    assert not fence.whole
    assert await store.commit(fence, RECORDS, "0-0")
    assert (await lead(store)).whole


async def killable(embedded: Embedded) -> Store:
    """A store on a server that can be killed."""
    store = Store(unix_url(embedded.directory / "valkey.sock").text, FLEET, FLEET_KEY)
    await store.open()
    return store


async def kill(embedded: Embedded, store: Store) -> None:
    """kill -9 the server and wait for its next run."""
    assert embedded.pid
    os.kill(embedded.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while True:
            try:
                return await store.ping()
            except StoreAway:
                await asyncio.sleep(0.02)


# ---- the table of keys -------------------------------------------------------------------------------------


async def test_the_table_names_every_key_with_its_type(store: Store, redis: Any) -> None:
    fence = await lead(store)
    await store.append([stage(1)])
    await store.append([stage(2)])
    entries = await store.read("0-0", 1, 0)
    one_of_each = {(kind, "key"): 1 for kind in RECORD_TYPES}
    await store.commit(fence, one_of_each, entries[-1].id, [{"n": 1}], entries)
    await store.put_jit("r" + "a" * 20, "config")
    await store.claim("r" + "a" * 20, "1" * 32)
    await store.hosts(Clock()).report("lab/attic", 0, {"leases": [], "answers": {}})
    found = {key.decode(): (await redis.type(key)).decode() for key in await redis.keys("*")}
    assert all(key.startswith("{test}:") for key in found)
    seen = set()
    for key, type_ in found.items():
        specs = [s for s in KEYS if fnmatch.fnmatchcase(key, "{test}:" + re.sub("<.*>", "*", s.name))]
        assert [spec.type for spec in specs] == [type_], key
        seen.add(specs[0].name)
    assert seen == {spec.name for spec in KEYS}


async def test_what_lives_for_a_while_only_has_an_end(store: Store, redis: Any) -> None:
    await lead(store, "me", 30)
    await store.append([stage(1)])
    await store.put_jit("r" + "a" * 20, "config")
    ends = {key.decode().split(":")[1]: await redis.pttl(key) for key in await redis.keys("*")}
    assert 0 < ends["lease"] <= 30_000
    assert 0 < ends["jit"] <= 120_000
    assert 0 < ends["appended"] <= 3_600_000
