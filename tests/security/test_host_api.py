"""`/host/v1` against strangers, liars and thieves; and what a host accepts from its daemon."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from autoscaler.clock import Clock
from autoscaler.http import host_api, host_auth
from autoscaler.http.auth import ApiAuth
from autoscaler.store.store import Store
from providers.base import ProviderConfig
from providers.ssh import KIND, SshSettings
from providers.ssh.caller import Strange, checked, checked_terms
from tests.valkey import running

KEY = b"a fleet key of at least 32 bytes"
HAS = {"cpus": 8, "memory_mib": 65536, "disk_gib": 100, "arch": "x64", "gpus": {}, "missing": []}
LEASE = {
    "runner_id": "r" + "0" * 20,
    "fleet": "test",
    "tags": {"autoscaler-fund": "aws-2026", "autoscaler-hold": "999999999999"},
    "instance_type": "slot-1c-1g",
    "launched_ms": 1,
    "lifetime_s": 600,
    "started": True,
    "running": True,
    "proof": "",
}


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def raw_status(port: int, path: bytes, token: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /host/v1/%b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % (path, token))
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


class Daemon:
    """The endpoints over a real store; `provider` is built anew when the policy changes."""

    def __init__(self, store: Store) -> None:
        self.store, self.board = store, store.hosts(Clock())
        self.policy(sponsors={"alice": sha256("alice"), "bob": sha256("bob")})
        api = host_api.HostApi(self.board, lambda: {"lab": self.provider}, "test", KEY, ApiAuth(None))
        app = web.Application(client_max_size=2**22)
        app.add_routes(host_api.routes(api))
        api.close()  # nobody waits
        self.client = TestClient(TestServer(app))

    def policy(self, **settings: Any) -> None:
        hosts = [{"name": "attic", "slots": 2, "cpus": 1, "memory_gib": 1}]
        whole = {"reach": "outbound", "launcher": "bubblewrap", "hosts": hosts, **settings}
        config = ProviderConfig("lab", "test", (), None, SshSettings.model_validate(whole), {}, board=self.board)
        self.provider = KIND.build(config, Clock())

    async def post(self, path: str, token: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.client.post(
            f"/host/v1/{path}", data=data, headers={"Authorization": f"Bearer {token}"}
        )
        return answer.status, await answer.json()

    async def join(self, token: str = "alice", machine: str = "m1", **changes: Any) -> tuple[int, dict[str, Any]]:
        body = {"host": "attic", "machine": machine, "launchers": ["bubblewrap"], "has": HAS, **changes}
        return await self.post("join", token, body)

    async def poll(self, secret: str, *leases: Any) -> tuple[int, dict[str, Any]]:
        report = {"leases": list(leases), "answers": {}, "has": HAS}
        return await self.post("lab/attic/poll", secret, {"acted": None, "report": report})


@pytest.fixture
async def daemon():
    with running() as server:
        store = Store(server.url, "test", KEY)
        await store.open()
        daemon = Daemon(store)
        daemon.server = server
        async with daemon.client:
            yield daemon
        await store.close()


async def test_each_host_gets_a_secret_of_its_own_that_only_it_can_use(daemon):
    status, joined = await daemon.join()
    assert status == 200
    assert (await daemon.poll(joined["secret"]))[0] == 200
    for wrong in ("alice", joined["secret"][:-1] + "x", "é", "alice~0.", f"{joined['secret']}.{joined['secret']}"):
        assert (await daemon.poll(wrong))[0] == 401
    assert (
        await raw_status(daemon.client.port, b"lab/attic/poll", b"\xff\xfe") == 401
    )  # a header may hold any bytes
    assert await raw_status(daemon.client.port, b"join", b"\xff\xfe") == 401
    assert (await daemon.post("lab/attic/poll", joined["secret"], b"{"))[0] == 400
    assert (await daemon.post("lab/barn/poll", joined["secret"], {}))[0] == 404
    assert (await daemon.post("lab/Attic;/poll", joined["secret"], {}))[0] == 404
    assert (await daemon.post("join", joined["secret"], {}))[0] == 401
    kept = await daemon.board.joined("lab/attic")
    assert kept == {"secret": sha256(joined["secret"]), "by": "alice", "machine": "m1"}


async def test_who_joins_again_voids_the_older_secret(daemon):
    _, first = await daemon.join()
    _, second = await daemon.join()
    assert (await daemon.poll(first["secret"]))[0] == 401
    assert (await daemon.poll(second["secret"]))[0] == 200


async def test_another_machine_cannot_take_the_place_of_one_that_is_there(daemon):
    _, joined = await daemon.join()
    await daemon.poll(joined["secret"])
    status, said = await daemon.join(token="bob", machine="m2")
    assert (status, "another machine has joined as lab/attic" in said["error"]) == (409, True)
    assert (await daemon.poll(joined["secret"]))[0] == 200


async def test_a_sponsor_who_left_the_policy_takes_its_hosts_along(daemon):
    _, joined = await daemon.join()
    daemon.policy(sponsors={"bob": sha256("bob")})
    status, said = await daemon.poll(joined["secret"])
    assert (status, "the policy no longer names its sponsor" in said["error"]) == (401, True)


async def test_a_store_that_lost_everything_knows_its_hosts_and_their_sponsors(daemon):
    _, joined = await daemon.join()
    daemon.server.empty()
    assert (await daemon.poll(joined["secret"]))[0] == 200
    assert (await daemon.board.joined("lab/attic"))["by"] == "alice"


async def test_a_host_cannot_speak_of_a_machine_that_nobody_asked_it_for(daemon):
    """It would be adopted, with a hold on somebody's fund."""
    _, joined = await daemon.join()
    assert (await daemon.poll(joined["secret"], LEASE, {**LEASE, "proof": "é"}))[0] == 200
    assert await daemon.provider.instances() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"has": {**HAS, "cpus": 1}}, "host attic has cpus 1, and its 2 slots sell 2; have the operator correct"),
        (
            {"launchers": ["systemd"]},
            "provider lab runs jobs by bubblewrap, and this host has systemd; install it",
        ),
        ({"host": "../etc"}, "the policy lists no host '../etc' for provider lab (it lists: attic); name one"),
    ],
)
async def test_a_host_that_does_not_fit_is_told_what_to_do(daemon, changes, said):
    status, answer = await daemon.join(**changes)
    assert status in (404, 409)
    assert said in answer["error"]


async def test_strangers_and_hosts_are_bounded_in_number_and_size(daemon):
    _, joined = await daemon.join()
    assert (await daemon.post("lab/attic/poll", joined["secret"], b"x" * (host_api.BODY_MAX + 1)))[0] == 413
    statuses = {(await daemon.join(token="guess"))[0] for _ in range(host_auth.ATTEMPTS_A_MINUTE + 1)}
    assert statuses == {401, 429}


async def test_the_switches_need_the_hosts_sponsor_or_an_operator(daemon):
    await daemon.join()
    assert (await daemon.post("lab/attic/pause", "bob"))[0] == 403
    assert (await daemon.post("lab/attic/pause", "nobody"))[0] == 403
    assert (await daemon.post("lab/attic/pause", "alice"))[0] == 202
    assert (await daemon.post("lab/attic/keep", "alice", {"minutes": 30}))[0] == 202
    assert (await daemon.post("lab/attic/keep", "alice", {"minutes": 99999}))[0] == 400
    state = await daemon.board.read("lab/attic")
    assert (state.paused, state.keep_minutes) == ("alice", 30)


def test_a_host_takes_no_path_no_program_and_no_disk_from_its_daemon():
    launch = {
        "runner_id": "r" + "0" * 20,
        "tags": {},
        "instance_type": "slot",
        "lifetime_s": 600,
        "boot": "{}",
        "plan": {},
        "proof": "",
        "programs": dict.fromkeys(("machine.py", "hook.py", "started.sh", "finished.sh"), ""),
    }
    assert checked({**launch, "folder": "/etc", "launcher": "none", "fleet": "../x"}) == launch
    for bad in (
        {"runner_id": "../../etc/passwd"},
        {"programs": {"../../etc/cron.d/x": ""}},
        {"lifetime_s": 10**9},
    ):
        with pytest.raises(Strange):
            checked({**launch, **bad})
    terms = {"launcher": "systemd", "cpus": 1, "memory_mib": 1024}
    for device in ("/dev/nvidia0", "/dev/dri/renderD128", "/dev/kfd", "/dev/nvidia-uvm"):
        checked_terms({**terms, "slots": [{"devices": [device]}]})
    for device in ("/dev/sda", "/dev/mem", "/dev/dri/../sda", "/etc/shadow"):
        with pytest.raises(Strange, match="is no GPU"):
            checked_terms({**terms, "slots": [{"devices": [device]}]})


async def test_a_token_that_is_no_text_is_a_wrong_one(daemon: Daemon) -> None:
    """aiohttp's client would not send such a header; its server takes it."""
    for path in ("join", "lab/attic/poll"):
        reader, writer = await asyncio.open_connection(daemon.client.host, daemon.client.port)
        head = f"POST /host/v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n"
        writer.write(head.encode() + b"Authorization: Bearer alice~\xff.\xfe\r\n\r\n{}")
        assert b" 401 " in await reader.readline()
        writer.close()
