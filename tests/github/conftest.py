"""The client and the stand-in, over HTTP on 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.clock import Clock
from autoscaler.github import connection as github_connection
from autoscaler.github.client import AppCredentials, GitHub
from autoscaler.sandbox.github import GitHubStandIn
from tests.github.world import OWNER, Connect, Receiver, Runner


@pytest.fixture(scope="session")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are repeated at once: these waits are real time."""
    short = tuple(timedelta(milliseconds=10) for _ in github_connection.READ_RETRIES)
    monkeypatch.setattr(github_connection, "READ_RETRIES", short)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def standin(clock: Clock, key: rsa.RSAPrivateKey) -> AsyncIterator[GitHubStandIn]:
    """A GitHub with App 1 installed at octo-org."""
    made = GitHubStandIn(clock, seed=1, users=["alice"])
    made.new_app("1", [OWNER], key)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def connect(standin: GitHubStandIn, key: rsa.RSAPrivateKey) -> AsyncIterator[Connect]:
    """Makes clients: `await connect("1", "2", clock=..., base_url=...)`; all are closed at the end."""
    made: list[GitHub] = []
    pem = standin.new_app("pem", [], key)

    async def make(*apps: str, warm: bool = True, **options: Any) -> GitHub:
        options = {"clock": standin.clock, "base_url": standin.url, **options}
        github = GitHub([AppCredentials(app, pem) for app in apps or ("1",)], **options)
        made.append(github)
        if warm:
            await github.open()
        return github

    yield make
    for github in made:
        await github.close()


@pytest.fixture
async def github(connect: Connect) -> GitHub:
    return await connect()


@pytest.fixture
async def new_runner(standin: GitHubStandIn) -> AsyncIterator[Callable[[], Runner]]:
    async with aiohttp.ClientSession() as http:
        yield lambda: Runner(http, standin.url)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/hook", made.take)
    server = web.AppRunner(app, access_log=None)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{server.addresses[0][1]}/hook"
    yield made
    await server.cleanup()
