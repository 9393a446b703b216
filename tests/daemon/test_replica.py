"""A whole replica on real sockets and real Valkey, as its operator and GitHub see it."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import aiohttp
import pytest

from autoscaler.sandbox.github_faults import Fault
from autoscaler.store.codec import encode_event
from autoscaler.verify import verify
from scheduling import messages as m
from scheduling.lifecycle import GoneReason, JobState, RunnerState
from tests.daemon.place import LABELS, Place, live, queued, ready, until


async def test_jobs_run_and_everything_goes_away_again(place: Place) -> None:
    replica = await place.leading()
    place.push(12, seconds=60)
    await until(place.at_rest)
    assert not place.around.github.never_ran()
    assert not place.around.github.doubled()
    world = replica.daemon.world
    await until(lambda: not live(world))
    assert world is not None
    assert world.funds["grant"].held == {}
    assert world.funds["grant"].settled[""] == sum(runner.cost for runner in world.runners.values()) > 0
    assert {runner.reason for runner in world.runners.values()} == {GoneReason.DONE}
    parts = replica.daemon.parts
    assert await verify(replica.store, "test", parts.providers, replica.github, second_look_s=0.1) == []


async def test_k2_a_malformed_event_is_set_aside_and_the_rest_goes_on(place: Place) -> None:
    replica = await place.leading()
    link = replica.store._link  # what no client of ours would write
    await link.call("XADD", replica.store._keys.inbox, "*", "e", b'["JobReported", {"job_id": "x"}]')
    await link.call("XADD", replica.store._keys.inbox, "*", "e", b"garbage")
    place.push(2)
    await until(place.at_rest)
    rejects = await link.call("XLEN", replica.store._keys.rejects)
    assert rejects == 2


async def test_k2_an_event_that_breaks_the_world_is_set_aside_and_the_world_reloaded(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await place.leading()
    bad = m.EffectFailed(0, "r" + "0" * 20, m.Trouble.TRANSIENT, "break")
    from scheduling import evolve as room

    handlers = dict(room._HANDLERS)
    real = handlers[m.EffectFailed]

    def breaks(world: object, event: m.EffectFailed, *rest: object) -> None:
        if event.detail == "break":
            raise RuntimeError("a bug")
        real(world, event, *rest)  # type: ignore[arg-type]

    monkeypatch.setitem(room._HANDLERS, m.EffectFailed, breaks)
    await replica.store.append([bad])
    place.push(2)
    await until(place.at_rest)
    link = replica.store._link
    assert await link.call("XLEN", replica.store._keys.rejects) == 1
    assert encode_event(bad) in (await link.call("XRANGE", replica.store._keys.rejects, "-", "+"))[0][1].values()


async def test_k10_github_failing_kills_nothing(place: Place) -> None:
    replica = await place.leading()
    place.push(3, seconds=600)
    await until(lambda: len(_busy(replica)) == 3)
    before = {machine.ref for machine in place.around.existing()}
    place.around.github.faults.add(Fault(path="*", status=503))
    start_ms = place.clock.now_ms()
    await until(lambda: place.clock.now_ms() > start_ms + 5 * 60_000)
    assert {machine.ref for machine in place.around.existing()} == before
    place.around.github.faults.clear()
    await until(place.at_rest)
    assert not place.around.github.never_ran()


async def test_k13_runners_of_others_are_left_alone(place: Place) -> None:
    await place.leading()
    state = place.around.github
    others = ["somebody-elses", "test-rr", "tests-r00000000000000000000", "test-R00000000000000000000"]
    for name in others:
        state.state.register("repo:octo/app", name, LABELS, place.clock.now_ms())
    place.push(1)
    await until(lambda: place.done() and not place.around.left_behind())
    start_ms = place.clock.now_ms()
    await until(lambda: place.clock.now_ms() > start_ms + 6 * 60_000)
    assert sorted(r.name for r in state.registrations()) == sorted(others)


async def test_k24_a_bad_policy_changes_nothing_and_is_told(place: Place) -> None:
    replica = await place.leading()
    path = place.around.policy_path
    good = path.read_text()
    path.write_text(good.replace("runner_types:", "runner_typos:"))
    replica.reload(path)
    async with aiohttp.ClientSession(place.url) as session, session.get("/api/v1/summary") as response:
        document = await response.json()
    assert f"{path}:" in document["policy"]["error"]
    assert "runner_types" in document["policy"]["error"]
    place.push(1)
    await until(place.at_rest)
    path.write_text(good.replace("idle_timeout: 2m", "idle_timeout: 3m"))
    old = replica.daemon.policy.hash
    replica.reload(path)
    assert replica.source.policy_error == ""
    assert replica.daemon.policy.hash != old


async def test_a_provider_that_the_policy_drops_is_drained_and_its_machines_end(place: Place) -> None:
    replica = await place.leading()
    place.push(2, seconds=300)
    await until(lambda: len(_busy(replica)) == 2)
    assert {machine.spec.offer.provider for machine in place.around.existing()} == {"east"}
    path = place.around.policy_path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("  east:")))
    replica.reload(path)
    place.push(1, seconds=60)
    await until(lambda: len(_busy(replica)) == 3)
    await until(place.at_rest)
    assert not place.around.github.never_ran()
    assert [cloud.made for cloud in place.around.clouds.values()] == [2, 1]
    await until(lambda: not live(replica.daemon.world))


async def test_k25_two_replicas_and_the_leader_drains_in_a_burst(place: Place) -> None:
    first = await place.leading()
    url = f"unix://{_socket(place)}"
    second = await place.replica(AUTOSCALER_LISTEN="127.0.0.1:0", AUTOSCALER_REDIS_URL=url)
    assert second.daemon.world is None
    view = await second.source.view()
    assert (view.leading, view.world.runners, set(view.world.offers)) == (False, {}, {"east", "west"})
    place.push(20, seconds=120)
    await until(lambda: len(live(first.daemon.world)) == 20)
    await first.daemon.stop()
    await until(lambda: ready(second))
    await until(place.at_rest)
    assert not place.around.github.never_ran()
    assert not place.around.github.doubled()
    assert sum(cloud.made for cloud in place.around.clouds.values()) == 20


async def test_k26_jobs_queued_before_the_start_are_found(place: Place) -> None:
    place.push(3)
    await asyncio.sleep(0)
    await place.leading()
    await until(place.at_rest)


async def test_k26_failed_deliveries_are_asked_for_again_within_two_minutes(place: Place) -> None:
    await place.leading()
    place.around.github.faults.webhooks.lose = 1.0
    pushed_ms = place.clock.now_ms()
    place.push(3)
    await asyncio.sleep(0.2)
    place.around.github.faults.webhooks.lose = 0.0
    await until(place.around.existing)
    assert place.clock.now_ms() - pushed_ms < 150_000
    await until(place.at_rest)


async def test_k26_jobs_that_github_never_announced_are_swept_up(place: Place) -> None:
    await place.leading()
    place.around.announce_to("http://127.0.0.1:9")
    pushed_ms = place.clock.now_ms()
    place.push(3)
    await until(place.around.existing)
    assert place.clock.now_ms() - pushed_ms < 200_000
    await until(place.at_rest)


async def test_polling_needs_no_webhook(place: Place) -> None:
    place.around.announce_to("http://127.0.0.1:9")
    replica = await place.replica(poll=("octo/app",))
    await until(lambda: ready(replica))
    (job_id,) = place.push(1)
    await until(place.at_rest)
    await until(lambda: replica.daemon.world.jobs[f"{job_id}.1"].state is JobState.COMPLETED)


async def test_observe_decides_and_launches_nothing(place: Place) -> None:
    replica = await place.replica(observe=True)
    await until(lambda: ready(replica))
    place.push(2)
    await until(lambda: len(live(replica.daemon.world)) == 2)
    start_ms = place.clock.now_ms()
    await until(lambda: place.clock.now_ms() > start_ms + 60_000)
    assert not place.around.existing()
    assert queued(replica.daemon.world) == 2
    for job in place.around.github.jobs():
        place.around.github.cancel(job.id)
    await until(lambda: not live(replica.daemon.world))


async def test_a_paused_fleet_launches_nothing_until_it_is_resumed(place: Place) -> None:
    replica = await place.leading()
    await replica.source.switch("fleet", True, "op")
    await until(lambda: replica.daemon.world and replica.daemon.world.switches)
    place.push(1)
    await until(lambda: queued(replica.daemon.world) == 1 and replica.daemon.leader.refusals)
    (refusals,) = replica.daemon.leader.refusals.values()
    assert {verdict.refusal for verdict in refusals} == {"paused by an operator"}
    assert not place.around.existing()
    await replica.source.switch("fleet", False, "op")
    await until(place.at_rest)


async def test_a_lost_completed_delivery_is_learned_in_the_end(place: Place) -> None:
    replica = await place.leading()
    (job_id,) = place.push(1)
    await until(lambda: _busy(replica))
    place.around.github.faults.webhooks.lose = 1.0
    await until(lambda: replica.daemon.world.jobs[f"{job_id}.1"].state is JobState.COMPLETED)
    await until(place.at_rest)


def _busy(replica: object) -> list[str]:
    world = replica.daemon.world  # type: ignore[attr-defined]
    return [] if world is None else list(world.by_state[RunnerState.BUSY])


def _socket(place: Place) -> Path:
    (path,) = (place.directory / "redis").glob("*.sock*")
    return path


async def test_k9_k27_a_runner_that_lists_omit_and_a_job_of_a_closed_run(place: Place) -> None:
    replica = await place.leading()
    (job_id,) = place.push(1)
    state = place.around.github.state
    for run in state.runs.values():
        run.closed = True
    await until(lambda: place.around.github.registrations())
    place.around.github.faults.omit = {r.name for r in place.around.github.registrations()}
    world = replica.daemon.world
    await until(lambda: world.jobs[f"{job_id}.1"].state is JobState.COMPLETED)
    await until(lambda: not live(world))
    assert [runner.reason for runner in world.runners.values()] == [GoneReason.IDLE]
    assert sum(cloud.made for cloud in place.around.clouds.values()) == 1


async def test_deliveries_are_recorded_and_can_be_tried_again(place: Place, tmp_path: Path) -> None:
    replica = await place.leading(record=tmp_path / "events")
    place.push(3)
    await until(place.at_rest)
    await replica.stop()
    place.replicas.remove(replica)
    files = [
        gzip.decompress(file.read_bytes()) for file in (tmp_path / "events").glob("*.jsonl.gz")
    ]  # one an hour
    recorded = [json.loads(line) for file in files for line in file.splitlines()]
    lines = [line for line in recorded if line["event"] == "workflow_job"]
    assert {line["event"] for line in recorded} <= {"workflow_job", "runner"}
    assert {line["payload"]["action"] for line in lines} == {"queued", "in_progress", "completed"}
    assert not any(b"octo/app" in file for file in files)  # the owner stays: the policy's pattern asks for it
    assert len({line["payload"]["workflow_job"]["id"] for line in lines}) == 3
