"""What machines call: stages, and the long poll for the JIT config."""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientResponse

from autoscaler.clock import Clock
from autoscaler.http import runner_api
from autoscaler.http.body import BodyReader
from autoscaler.http.runner_api import callback_token
from autoscaler.store import link as redis_link
from scheduling.lifecycle import RunnerState
from scheduling.messages import Stage, StageReported
from tests.valkey import Valkey

from .conftest import FLEET_KEY, Site

RUNNER, OTHER = "r" + "a1" * 10, "r" + "b2" * 10


def bearer(runner_id: str = RUNNER) -> dict[str, str]:
    return {"Authorization": f"Bearer {callback_token(FLEET_KEY, runner_id)}"}


async def report(site: Site, body: Any, runner_id: str = RUNNER) -> ClientResponse:
    return await site.client.post(f"/runner/v1/{runner_id}/stages", json=body, headers=bearer(runner_id))


async def poll(site: Site, wait: object = 0, runner_id: str = RUNNER) -> ClientResponse:
    return await site.client.get(f"/runner/v1/{runner_id}/jit?wait={wait}", headers=bearer(runner_id))


@dataclass
class Record:
    """As much of a runner's record as the long poll reads."""

    id: str
    state: RunnerState


@dataclass
class Waiting(Record):
    queued_ms: int


async def record(site: Site, state: RunnerState, runner_id: str = RUNNER) -> None:
    """Commit a runner's record in that state."""
    fence = await site.store.acquire("me", 30)
    assert fence
    assert await site.store.commit(fence, {("runner", runner_id): Record(runner_id, state)}, "0-0")


# ---- stages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", Stage)
async def test_a_stage_is_stored(site: Site, stage: Stage) -> None:
    response = await report(site, {"stage": stage, "detail": "runner 2.330"})
    assert response.status == 202
    [event] = await site.events()
    assert isinstance(event, StageReported)
    assert (event.runner_id, event.stage, event.detail) == (RUNNER, stage, "runner 2.330")
    assert event.at_ms > 0


async def test_a_long_detail_is_cut(site: Site) -> None:
    await report(site, {"stage": "failed", "detail": "\u00e4" * 5000})
    [event] = await site.events()
    assert isinstance(event, StageReported)
    assert event.detail == "\u00e4" * 1024


@pytest.mark.parametrize("detail", [{}, {"detail": None}])
async def test_a_detail_may_be_left_out(site: Site, detail: dict[str, None]) -> None:
    assert (await report(site, {"stage": "booted", **detail})).status == 202


@pytest.mark.parametrize("body", [{}, [], {"stage": "flying"}, {"stage": 1}, {"stage": "booted", "detail": 1}])
async def test_what_is_no_stage_is_400(site: Site, body: Any) -> None:
    response = await report(site, body)
    assert response.status == 400
    assert "not a stage report" in (await response.json())["error"]
    assert await site.events() == []


async def test_a_large_report_is_413(site: Site) -> None:
    assert (await report(site, {"stage": "failed", "detail": "x" * 70_000})).status == 413


async def test_the_last_lines_of_a_failed_boot_come_bounded_and_without_secrets(site: Site) -> None:
    token = callback_token(FLEET_KEY, RUNNER)
    lines = [f"line {n}" for n in range(20)] + [
        f"curl -H 'Authorization: Bearer {token}'",
        "\x1b[2J" + "\u00e4" * 500,
    ]
    assert (await report(site, {"stage": "failed", "detail": f"saw {token}", "log": lines})).status == 202
    [event] = await site.events()
    assert isinstance(event, StageReported)
    assert len(event.log) == 12
    assert max(len(line.encode()) for line in event.log) <= 200
    assert all(line.isprintable() for line in event.log)
    assert token not in repr(event)
    assert "[hidden]" in event.detail


@pytest.mark.parametrize(("age_ms", "counts_ms"), [(0, 0), (90_000, 90_000), (-5, 0), (10**12, 3_600_000)])
async def test_a_report_is_as_old_as_it_says_within_reason(site: Site, age_ms: int, counts_ms: int) -> None:
    now_ms = Clock().now_ms()
    await report(site, {"stage": "booted", "age_ms": age_ms})
    [event] = await site.events()
    assert isinstance(event, StageReported)
    assert now_ms - counts_ms <= event.at_ms <= Clock().now_ms() - counts_ms


async def test_the_config_comes_with_how_long_the_job_has_waited(site: Site) -> None:
    fence = await site.store.acquire("me", 30)
    assert fence
    waiting = Waiting(RUNNER, RunnerState.REGISTERING, Clock().now_ms() - 60_000)
    assert await site.store.commit(fence, {("runner", RUNNER): waiting}, "0-0")
    await site.store.put_jit(RUNNER, "config")
    answer = await (await poll(site)).json()
    assert answer["jit"] == "config"
    assert 60_000 <= answer["waited_ms"] < 120_000


async def test_a_trickled_report_is_cut_off(site: Site) -> None:
    site.runner_api._bodies = BodyReader(runner_api.BODY_MAX, 0.2, runner_api.HELD_MAX)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.client.port)
    head = f"POST /runner/v1/{RUNNER}/stages HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer()['Authorization']}\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    async with asyncio.timeout(5):
        assert b" 408 " in await reader.readline()
    writer.close()
    assert await site.events() == []


async def test_redis_away_is_503(site: Site, server: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_link, "PATIENCE_SECONDS", 0.1)
    os.kill(server.pid, signal.SIGSTOP)
    response = await report(site, {"stage": "booted"})
    os.kill(server.pid, signal.SIGCONT)
    assert response.status == 503
    assert "Retry-After" in response.headers


# ---- who may call ------------------------------------------------------------------------------------------


def test_the_token_is_the_hmac_of_the_runner_id() -> None:
    assert callback_token(FLEET_KEY, RUNNER) == hmac.new(FLEET_KEY, RUNNER.encode(), "sha256").hexdigest()


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", bearer(OTHER)["Authorization"], bearer()["Authorization"][7:], "Bearer \xe4"],
)
async def test_another_runners_token_is_401(site: Site, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    url = f"/runner/v1/{RUNNER}"
    posted = await site.client.post(f"{url}/stages", json={"stage": "booted"}, headers=headers)
    got = await site.client.get(f"{url}/jit", headers=headers)
    assert (posted.status, got.status) == (401, 401)
    assert await site.events() == []


@pytest.mark.parametrize(
    "runner_id", ["x", "R" + "a" * 20, "r" + "a" * 19, "r" + "a" * 21, "r" + "A" * 20, "..%2f"]
)
async def test_what_is_no_runner_id_is_404(site: Site, runner_id: str) -> None:
    assert (await report(site, {"stage": "booted"}, runner_id)).status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "stages"), ("POST", "jit"), ("HEAD", "jit")])
async def test_other_methods_are_405(site: Site, method: str, path: str) -> None:
    response = await site.client.request(method, f"/runner/v1/{RUNNER}/{path}", headers=bearer())
    assert response.status == 405


# ---- the JIT config ----------------------------------------------------------------------------------------


async def test_a_config_that_is_there_is_given_at_once_and_again(site: Site) -> None:
    await record(site, RunnerState.REGISTERING)
    await site.store.put_jit(RUNNER, "config")
    for _ in range(2):
        response = await poll(site)
        assert response.status == 200
        assert await response.json() == {"jit": "config"}
        assert response.headers["Cache-Control"] == "no-store"


async def test_a_waiting_machine_gets_it_when_it_comes(site: Site) -> None:
    await record(site, RunnerState.READY)
    polling = asyncio.create_task(poll(site, 20))
    await asyncio.sleep(0.1)
    await site.store.put_jit(RUNNER, "config")
    loop = asyncio.get_running_loop()
    began = loop.time()
    response = await polling
    assert await response.json() == {"jit": "config"}
    assert loop.time() - began < 2


async def test_each_machine_gets_its_own(site: Site) -> None:
    runners = ["r" + f"{number:020}" for number in range(50)]
    polling = [asyncio.create_task(poll(site, 20, runner_id)) for runner_id in runners]
    await asyncio.sleep(0.1)
    for runner_id in runners:
        await site.store.put_jit(runner_id, f"config of {runner_id}")
    answers = [await (await task).json() for task in polling]
    assert answers == [{"jit": f"config of {runner_id}"} for runner_id in runners]
    assert not site.runner_api._waiting


async def test_nothing_to_do_is_204(site: Site) -> None:
    await record(site, RunnerState.READY)
    assert [(await poll(site, wait)).status for wait in (0, 0.1, "0.3")] == [204, 204, 204]


async def test_a_runner_without_a_record_asks_again(site: Site) -> None:
    assert (await poll(site)).status == 204


@pytest.mark.parametrize("state", [RunnerState.LEAVING, RunnerState.STOPPING, RunnerState.GONE])
async def test_a_runner_that_ended_shuts_down(site: Site, state: RunnerState) -> None:
    await record(site, state)
    await site.store.put_jit(RUNNER, "config")
    assert (await poll(site, 20)).status == 410


async def test_a_waiting_machine_is_told_to_shut_down(site: Site) -> None:
    await record(site, RunnerState.READY)
    polling = asyncio.create_task(poll(site, 20))
    await asyncio.sleep(0.1)
    await record(site, RunnerState.STOPPING)
    assert (await polling).status == 410


@pytest.mark.parametrize("state", [RunnerState.IDLE, RunnerState.BUSY])
async def test_job_code_gets_no_config_once_the_runner_has_registered(site: Site, state: RunnerState) -> None:
    await record(site, state)
    await site.store.put_jit(RUNNER, "config")
    assert (await poll(site)).status == 204


@pytest.mark.parametrize("wait", ["x", "-1", "nan", ""])
async def test_a_wait_that_is_no_number_is_400(site: Site, wait: str) -> None:
    assert (await poll(site, wait)).status == 400


async def test_a_wait_is_capped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_api, "WAIT_MAX_SECONDS", 0.3)
    async with asyncio.timeout(5):
        assert (await poll(site, "inf")).status == 204


async def test_redis_away_is_ask_again(site: Site, server: Valkey) -> None:
    await site.store.put_jit(RUNNER, "config")
    os.kill(server.pid, signal.SIGSTOP)
    polling = asyncio.create_task(poll(site, 20))
    await asyncio.sleep(1.3)
    os.kill(server.pid, signal.SIGCONT)
    assert await (await polling).json() == {"jit": "config"}


async def test_a_shutdown_answers_those_who_wait(site: Site) -> None:
    polling = asyncio.create_task(poll(site, 20))
    await asyncio.sleep(0.1)
    site.runner_api.close()
    async with asyncio.timeout(5):
        assert (await polling).status == 204


async def test_a_machine_that_hangs_up_is_forgotten(site: Site) -> None:
    polling = asyncio.create_task(poll(site, 20))
    await asyncio.sleep(0.1)
    assert list(site.runner_api._waiting) == [RUNNER]
    polling.cancel()
    async with asyncio.timeout(5):
        while site.runner_api._waiting:  # noqa: ASYNC110  the server notices
            await asyncio.sleep(0.02)


# ---- two machines of one launch ----------------------------------------------------------------------------

ONE, TWO = {**bearer(), "X-Machine-Nonce": "1" * 32}, {**bearer(), "X-Machine-Nonce": "2" * 32}
URL = f"/runner/v1/{RUNNER}"


@pytest.mark.parametrize("first", [ONE, bearer()], ids=["with a nonce", "of an older image"])
async def test_the_first_machine_that_calls_is_the_only_one(site: Site, first: dict[str, str]) -> None:
    await record(site, RunnerState.REGISTERING)
    assert (await site.client.post(f"{URL}/stages", json={"stage": "booted"}, headers=first)).status == 202
    await site.store.put_jit(RUNNER, "config")
    for _ in range(2):
        assert (await site.client.get(f"{URL}/jit", headers=TWO)).status == 410
        assert await (await site.client.get(f"{URL}/jit", headers=first)).json() == {"jit": "config"}
    refused = await site.client.post(f"{URL}/stages", json={"stage": "failed"}, headers=TWO)
    assert (refused.status, len(await site.events())) == (410, 1)
    assert "another machine" in (await refused.json())["error"]


async def test_of_machines_that_call_at_once_one_gets_the_config(site: Site) -> None:
    await site.store.put_jit(RUNNER, "config")
    nonces = [{**bearer(), "X-Machine-Nonce": f"{n:032x}"} for n in range(20)]
    answers = await asyncio.gather(*(site.client.get(f"{URL}/jit", headers=each) for each in nonces))
    assert sorted(answer.status for answer in answers) == [200] + [410] * 19


@pytest.mark.parametrize("nonce", ["nobody", "x" * 32, "1" * 15, "1" * 65, "1" * 15 + "\xe4"])
async def test_what_is_no_nonce_is_400(site: Site, nonce: str) -> None:
    answer = await site.client.get(f"{URL}/jit", headers={**bearer(), "X-Machine-Nonce": nonce})
    assert answer.status == 400
    assert "X-Machine-Nonce" in (await answer.json())["error"]
