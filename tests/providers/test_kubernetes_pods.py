"""A pod from its place to its end: waiting, replays, lists in chunks, and what is never deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from providers.base import NoCapacity, OutcomeUnknown, Refused, Transient, Unauthorized
from providers.kubernetes import KIND
from tests.providers.k8s_bench import RBAC, KubernetesBench
from tests.providers.k8s_cluster import Cluster, Rule

pytest.importorskip("kubernetes_asyncio", reason="kubernetes-asyncio is not installed")


@pytest.fixture
async def cluster():
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def bench(cluster, clock, tmp_path):
    return KubernetesBench(cluster, clock, tmp_path, pending_seconds=60)


@pytest.fixture
def hasty(cluster, clock, tmp_path):
    """A bench whose pods have a second to find their place."""
    return KubernetesBench(cluster, clock, tmp_path, pending_seconds=1)


@pytest.fixture
async def provider(bench):
    provider = bench.kind.build(bench.config, bench.clock)
    yield provider
    await provider.close()


# ---- a place -----------------------------------------------------------------------------------------------


async def test_k6_a_pod_without_a_place_is_taken_back_in_the_scheduler_s_words(hasty, cluster):
    provider = KIND.build(hasty.config, hasty.clock)
    cluster.full = True
    with pytest.raises(NoCapacity, match=r"found no place in 1 s: 0/3 nodes are available: 3 Insufficient cpu\."):
        await provider.launch(hasty.spec(1))
    await provider.close()
    (deleted,) = [body for method, _, _, body in cluster.requests if method == "DELETE"]
    assert deleted["preconditions"].keys() == {"uid", "resourceVersion"}
    assert cluster.pods == cluster.secrets == {}


async def test_a_pod_placed_in_the_last_moment_is_a_machine(hasty, cluster, monkeypatch):
    """The precondition on its version fails, so the launch looks again instead of killing it."""
    provider = KIND.build(hasty.config, hasty.clock)
    cluster.full = True
    delete = cluster._delete

    async def place_first(found, preconditions):
        monkeypatch.setattr(cluster, "_delete", delete)
        await cluster.place(found["metadata"]["name"])
        return await delete(found, preconditions)

    monkeypatch.setattr(cluster, "_delete", place_first)
    made = await provider.launch(hasty.spec(1))
    assert [one.ref for one in await provider.instances()] == [made.ref]
    await provider.close()


async def test_a_pod_without_a_place_is_no_machine_while_its_launch_waits(bench, provider, cluster):
    cluster.full = True
    launch = asyncio.ensure_future(provider.launch(bench.spec(1)))
    await cluster.watched()
    assert await provider.instances() == []
    other = KIND.build(bench.config, bench.clock)
    assert len(await other.instances()) == 1  # nobody there waits for it: it would be adopted
    await other.close()
    await cluster.place(bench.spec(1).name)
    assert [one.ref for one in await provider.instances()] == [(await launch).ref]


async def test_without_pending_seconds_waiting_for_a_place_is_booting(cluster, clock, tmp_path):
    bench = KubernetesBench(cluster, clock, tmp_path, pending_seconds=None)
    cluster.full = True
    provider = KIND.build(bench.config, clock)
    made = await provider.launch(bench.spec(1))
    assert [one.ref for one in await provider.instances()] == [made.ref]
    assert cluster.count("GET") == 1  # the list alone
    await provider.close()


async def test_a_watch_goes_on_after_bookmarks_and_410(bench, provider, cluster):
    cluster.full, cluster.bookmarks, cluster.events_kept = True, True, -1  # every version is too old
    launch = asyncio.ensure_future(provider.launch(bench.spec(1)))
    await cluster.watched(2)
    cluster.events_kept = 1000
    await cluster.place(bench.spec(1).name)
    assert (await launch).runner_id == bench.spec(1).runner_id


async def test_a_pod_that_somebody_deletes_meanwhile_is_unknown(bench, provider, cluster):
    cluster.full = True
    launch = asyncio.ensure_future(provider.launch(bench.spec(1)))
    await cluster.watched()
    await cluster.remove(bench.spec(1).name)
    with pytest.raises(OutcomeUnknown, match="deleted"):
        await launch


async def test_a_role_without_watch_is_named(bench, provider, cluster):
    cluster.full = True
    cluster.rules.append(Rule("GET", status=403, message=RBAC.replace("create", "watch"), where="watch"))
    with pytest.raises(OutcomeUnknown, match=r"cannot be watched: .* cannot watch resource"):
        await provider.launch(bench.spec(1))


# ---- replays -----------------------------------------------------------------------------------------------


async def test_a_replay_gives_the_pod_the_secret_that_it_lacks(bench, provider, cluster):
    cluster.rules.append(Rule("POST", "secrets", times=1, cut=True))
    with pytest.raises(OutcomeUnknown, match="has no secret yet"):
        await provider.launch(bench.spec(1))
    made = await provider.launch(bench.spec(1))
    (secret,) = cluster.secrets.values()
    assert secret["metadata"]["ownerReferences"][0]["uid"] == made.ref.rpartition("/")[2]


async def test_a_pod_that_cannot_get_its_secret_goes_again(bench, provider, cluster):
    cluster.full = True
    cluster.rules.append(Rule("POST", "secrets", status=403, message=RBAC.replace("pods", "secrets")))
    with pytest.raises(Unauthorized, match='cannot create resource "secrets"'):
        await provider.launch(bench.spec(1))
    assert cluster.pods == {}


async def test_another_s_pod_of_that_name_is_refused(bench, provider, cluster):
    body = {"kind": "Pod", "metadata": {"name": bench.spec(1).name}, "spec": {"containers": []}}
    await cluster.create("pods", body)
    with pytest.raises(Refused, match=r"pod ci/fleet-r0{19}1 exists and is not of this fleet"):
        await provider.launch(bench.spec(1))


async def test_a_pod_that_has_ended_is_not_launched_again(bench, provider, cluster):
    await provider.launch(bench.spec(1))
    await cluster.end(bench.spec(1).name, "Failed")
    with pytest.raises(OutcomeUnknown, match="has ended"):
        await provider.launch(bench.spec(1))


async def test_a_concurrent_write_of_the_quota_is_definite(bench, provider, cluster):
    """409 has two meanings: this one made nothing."""
    cluster.rules.append(
        Rule("POST", times=1, status=409, message="Operation cannot be fulfilled on resourcequotas")
    )
    with pytest.raises(Transient, match="resourcequotas"):
        await provider.launch(bench.spec(1))
    assert cluster.pods == {}


async def test_a_launch_for_another_namespace_is_refused(bench, provider, cluster):
    moved = replace(bench.spec(1).offer, zone="elsewhere", region="elsewhere")
    with pytest.raises(Refused, match="namespace elsewhere, and the policy says ci now"):
        await provider.launch(bench.spec(1, offer=moved))
    assert cluster.count("POST") == 0


async def test_a_launch_without_an_image_is_refused(bench, provider, cluster):
    with pytest.raises(Refused, match="names no image"):
        await provider.launch(bench.spec(1, image=""))
    assert cluster.count("POST") == 0


# ---- ends and lists ----------------------------------------------------------------------------------------


async def test_a_pod_that_never_goes_is_listed_again(bench, provider, cluster):
    made = await provider.launch(bench.spec(1))
    await provider.terminate(made.ref)
    assert await provider.instances() == []
    bench.clock.skipped_ms = 60_000
    assert [one.ref for one in await provider.instances()] == [made.ref]


async def test_a_namesake_with_another_uid_is_never_deleted(bench, provider, cluster):
    made = await provider.launch(bench.spec(1))
    await cluster.remove(bench.spec(1).name)
    again = await provider.launch(bench.spec(1))
    await provider.terminate(made.ref)
    assert [one.ref for one in await provider.instances()] == [again.ref]


async def test_a_list_that_expires_on_the_way_is_begun_anew(bench, provider, cluster):
    await bench.fill(450)
    cluster.rules.append(Rule("GET", times=1, skip=2, status=410, reason="Expired", message="continue is too old"))
    assert len(await provider.instances()) == 450
    assert cluster.count("GET") == 6  # three, of which the last expired, and three


async def test_chunks_are_of_one_snapshot(bench, provider, cluster):
    """K9: what is created or ends between two chunks changes none of them."""
    await bench.fill(250)
    serve = cluster._list

    def change_between(query):
        if query.get("continue"):
            cluster.pods.pop(f"fleet-r{249:020}")
        return serve(query)

    cluster._list = change_between
    assert len(await provider.instances()) == 250
