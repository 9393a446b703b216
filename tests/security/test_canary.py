"""I11: every secret of a running fleet is searched for in everything that the fleet lets anybody see."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import sys
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
from redis.asyncio import Redis

from autoscaler.http.api import PAGE
from autoscaler.http.runner_api import callback_token
from autoscaler.sandbox.github_faults import Fault
from autoscaler.sandbox.github_records import Registration
from tests.daemon.place import Place, in_real_time, until
from tests.security.conftest import deliver, payload, webhook_secret

API_TOKEN = "canary-api-token-0123456789abcdef"
CLIENTS = ("status", "jobs", "runners", "providers", "funds")
LISTS = ("summary", "jobs", "runners", "providers", "funds", "cooldowns", "placements")
PATHS = (
    *(f"/{name}" for name in PAGE),
    *(
        f"/api/v1/{name}"
        for name in ("summary", "jobs", "runners", "providers", "funds", "cooldowns", "placements")
    ),
    "/metrics",
    "/healthz",
    "/readyz",
    "/nothing-here",
)


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    async with in_real_time() as found:
        yield found


async def test_no_secret_is_in_anything_that_can_be_seen(place: Place) -> None:
    configs = _collect_configs(place)
    _give_api_token(place)
    serving = await place.process()
    github = place.around.github
    job_ids = place.push(6, seconds=3)
    await until(lambda: place.around.existing())
    seen = {"tags": repr([(machine.spec.tags, machine.ref) for machine in place.around.existing()]).encode()}
    seen |= await _redis(place)
    await until(place.done)
    runners = [job.runner_name.removeprefix("test-") for job in github.jobs()]
    faults = await _provoke(place)
    place.push(3)
    await until(lambda: all(fault.hits for fault in faults))
    seen |= await _pages(place, job_ids)
    seen |= await _commands(place, job_ids)
    seen |= _processes(serving.pid)
    seen |= {f"again {name}": text for name, text in (await _redis(place)).items()}
    serving.terminate()
    assert await serving.wait() == 0
    seen["log"] = (place.directory / "serve-0.log").read_bytes()
    seen |= {f"data {path.name}": path.read_bytes() for path in (place.directory / "redis").rglob("*.aof")}

    assert len(configs) >= 6
    assert len(seen["log"]) > 200
    assert any(name.startswith("data ") for name in seen)
    assert sum(b"octo/app" in text for text in seen.values()) > 4  # it is the right haystack
    secrets = _secrets(place) | {f"JIT config {n}": config for n, config in enumerate(configs)}
    secrets |= {f"GitHub token {n}": token for n, token in enumerate(place.around.github.access.tokens())}
    key = secrets["fleet key"].encode()
    secrets |= {f"callback token of {runner}": callback_token(key, runner) for runner in runners}
    found = [
        f"{name} in {where}"
        for name, secret in secrets.items()
        for where, text in seen.items()
        if any(form in text for form in _forms(secret))
    ]
    assert found == []


def _collect_configs(place: Place) -> list[str]:
    """Every JIT config that GitHub ever tells."""
    state, configs = place.around.github.state, []
    register = state.register

    def told(*args: Any, **named: Any) -> Registration:
        made = register(*args, **named)
        configs.append(made.config)
        return made

    state.register = told  # type: ignore[method-assign]
    return configs


def _give_api_token(place: Place) -> None:
    path = place.directory / "tokens.yaml"
    digest = hashlib.sha256(API_TOKEN.encode()).hexdigest()
    path.write_text(f"- {{name: ops, sha256: {digest}, scope: write}}\n")
    place.env["AUTOSCALER_API_TOKENS_FILE"] = str(path)


async def _provoke(place: Place) -> list[Fault]:
    """What makes programs talkative: forged, broken and refused requests, and an API that fails."""
    github = place.around.github
    token = github.access.tokens()[-1]
    faults = [
        Fault("*/generate-jitconfig", status=500, message=f"failed with {token}", count=1),
        Fault("*/generate-jitconfig", drop=True, applied=True, count=1),
        Fault("*/generate-jitconfig", status=403, message=f"the token {token} may not do this", count=1),
    ]
    github.faults.rules += faults
    assert (await deliver(place, payload(), b"another secret"))[0] == 401
    assert (await deliver(place, {"action": 1, "x": webhook_secret(place).decode()}))[0] == 400
    headers = {"Authorization": f"Bearer {API_TOKEN}x"}
    async with aiohttp.ClientSession(place.url, headers=headers) as session:
        async with session.post("/api/v1/pause") as answer:
            assert answer.status == 401
        async with session.post("/runner/v1/r" + "0" * 20 + "/stages", json={"stage": "booted"}) as answer:
            assert answer.status == 401
    async with aiohttp.ClientSession(place.url, headers={"Authorization": f"Bearer {API_TOKEN}"}) as session:
        for name in ("pause", "resume"):
            async with session.post(f"/api/v1/{name}") as answer:
                assert answer.status == 202
    return faults


async def _pages(place: Place, job_ids: list[int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    paths = [*PATHS, *(f"/api/v1/jobs/{job_id}" for job_id in job_ids)]
    async with aiohttp.ClientSession(place.url, headers={"Authorization": f"Bearer {API_TOKEN}"}) as session:
        for path in paths:
            async with session.get(path) as answer:
                assert answer.status < 500, path
                found[f"GET {path}"] = await answer.read() + repr(answer.headers).encode()
        async with session.get("/api/v1/stream") as answer:
            found["stream"] = await answer.content.readuntil(b"\n\n")
    return found


async def _commands(place: Place, job_ids: list[int]) -> dict[str, bytes]:
    """What a person sees on a terminal, and programs with `--json`; some are given a secret in the wrong place."""
    token = place.directory / "api.token"
    token.write_text(API_TOKEN)
    wrong = place.directory / "wrong.token"
    wrong.write_text(place.env["AUTOSCALER_FLEET_KEY_FILE"])
    policy = place.env["AUTOSCALER_POLICY"]
    asking = {"AUTOSCALER_API_URL": place.url, "AUTOSCALER_API_TOKEN_FILE": str(token)}
    key_for_apps = {"AUTOSCALER_GITHUB_APPS_FILE": str(place.directory / "app.pem")}
    key_for_tokens = {"AUTOSCALER_API_TOKENS_FILE": place.env["AUTOSCALER_FLEET_KEY_FILE"]}
    secret_for_key = {"AUTOSCALER_FLEET_KEY_FILE": place.env["AUTOSCALER_WEBHOOK_SECRET_FILE"][:-1]}
    calls: list[tuple[str, dict[str, str]]] = [(f"{name} --json", asking) for name in CLIENTS]
    calls += [("runners", asking), (f"why {job_ids[0]}", asking), (f"why {job_ids[0]} --json", asking)]
    calls += [(f"verify --policy {policy} --json", {})]
    calls += [(f"serve --policy {policy}", each) for each in (key_for_apps, key_for_tokens, secret_for_key)]
    calls += [("status", {**asking, "AUTOSCALER_API_TOKEN_FILE": str(wrong)})]
    calls += [(f"policy check {place.directory / name}", {}) for name in ("fleet.key", "app.pem", "tokens.yaml")]
    found = await asyncio.gather(*(_command(place, words.split(), env) for words, env in calls))
    return {
        f"command {number} {words}": text
        for number, ((words, _), text) in enumerate(zip(calls, found, strict=True))
    }


async def _command(place: Place, words: list[str], env: dict[str, str]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", *words),
        env={**os.environ, **place.env, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert said, words
    return said


def _processes(pid: int) -> dict[str, bytes]:
    """Arguments and environment of the daemon and its children, as anybody on its machine may read them."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    return {
        f"{name} of {each}": Path(f"/proc/{each}/{name}").read_bytes()
        for each in (pid, *children)
        for name in ("cmdline", "environ")
    }


async def _redis(place: Place) -> dict[str, bytes]:
    """Every key with its value."""
    found: dict[str, bytes] = {}
    client: Any = Redis(unix_socket_path=str(place.directory / "redis" / "valkey.sock"))
    reads = {
        b"stream": lambda key: client.xrange(key),
        b"hash": lambda key: client.hgetall(key),
        b"string": lambda key: client.get(key),
    }
    async for key in client.scan_iter():
        found[f"Redis {key.decode()}"] = key + repr(await reads[await client.type(key)](key)).encode()
    await client.aclose()
    assert any("journal" in name for name in found)
    return found


def _secrets(place: Place) -> dict[str, str]:
    read = {name: (place.directory / name).read_text().strip() for name in ("fleet.key", "app.pem")}
    lines = [line for line in read["app.pem"].splitlines() if "-----" not in line]
    return {
        "fleet key": read["fleet.key"],
        "webhook secret": webhook_secret(place).decode(),
        "API token": API_TOKEN,
        **{f"line {number} of the App's key": line for number, line in enumerate(lines)},
    }


def _forms(secret: str) -> set[bytes]:
    """As it is, and as programs write it: base64, in a URL, in JSON, as the hex of its bytes, cut short."""
    raw = secret.encode()
    plain = {raw, base64.b64encode(raw).rstrip(b"="), raw.hex().encode(), urllib.parse.quote(secret).encode()}
    return plain | {json.dumps(secret)[1:-1].encode(), raw[:40]}
