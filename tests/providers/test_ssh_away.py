"""Donated hosts come and go: what is kept, what is proven, and whose key is believed."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from providers.base import NoCapacity, OutcomeUnknown, Refused, Transient, Unauthorized
from providers.ssh import KIND, SshSettings
from providers.ssh.provider import AWAY_MS
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

pytest.importorskip("asyncssh", reason="asyncssh is not installed")
pytestmark = pytest.mark.needs("sshd", "bwrap")
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBT3lDJB4gWbQkAkBIAUUI5XDqKOYJhnSp7lI5bMzJUi"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


@pytest.fixture
def bench(sshd, clock, tmp_path):
    bench = SshBench(sshd, clock, tmp_path)
    yield bench
    bench.close()


@pytest.fixture
async def provider(bench):
    provider = KIND.build(bench.config, bench.clock)
    yield provider
    await provider.close()


def changed(bench: SshBench, **changes: object) -> SshSettings:
    return SshSettings.model_validate({**bench.config.settings.model_dump(), **changes})


# ---- hosts come and go -------------------------------------------------------------------------------------


@pytest.fixture
async def two(bench, clock):
    """A host that answers, and one that does until `two.away()`; both are the same server."""
    relay = Relay(bench.sshd.port)
    await relay.start()
    other = {**bench.host, "name": "cellar", "port": relay.port}
    bench.config = replace(bench.config, settings=changed(bench, hosts=[bench.host, other]))
    yield relay
    await relay.stop()


class Relay:
    """A line to sshd that can be taken away."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._target)
        self._open += [writer, out]

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, out), pump(there, writer), return_exceptions=True)


async def test_a_host_that_is_away_keeps_its_machines_and_holds_up_nobody(bench, two):
    provider = KIND.build(bench.config, bench.clock)
    cellar = next(offer for offer in KIND.catalogue(bench.config) if offer.zone == "cellar")
    made = await provider.launch(bench.spec(1, offer=cellar))
    assert {one.ref for one in await provider.instances()} >= {made.ref}
    await two.stop()
    assert made.ref in {one.ref for one in await provider.instances()}
    with pytest.raises(NoCapacity, match="host cellar is away"):
        await provider.launch(bench.spec(2, offer=cellar))
    assert {offer.zone for offer in await provider.offers()} == {"attic"}
    bench.clock.skipped_ms = 600_000 + 120_000 + 1  # its own timer has ended it by now
    assert made.ref not in {one.ref for one in await provider.instances()}
    await provider.close()


async def test_a_host_that_was_never_heard_holds_up_the_list_for_ten_minutes_only(bench, two):
    await two.stop()
    provider = KIND.build(bench.config, bench.clock)
    with pytest.raises(Transient, match="host cellar is away"):
        await provider.instances()
    bench.clock.skipped_ms = AWAY_MS + 1_000
    assert await provider.instances() == []
    await provider.close()


async def test_a_launch_without_an_answer_counts_while_its_host_is_away(bench, two):
    provider = KIND.build(bench.config, bench.clock)
    cellar = next(offer for offer in KIND.catalogue(bench.config) if offer.zone == "cellar")
    await provider.instances()
    bench.sshd.fault = "answer_lost once"
    with pytest.raises(OutcomeUnknown):
        await provider.launch(bench.spec(1, offer=cellar))
    await two.stop()
    assert "cellar/" + bench.spec(1).runner_id in {one.ref for one in await provider.instances()}
    await provider.close()


async def test_another_host_key_is_never_accepted(bench):
    config = replace(bench.config, settings=changed(bench, hosts=[{**bench.host, "host_key": HOST_KEY}]))
    provider = KIND.build(config, bench.clock)
    with pytest.raises(Refused, match="shows another host key than the policy's"):
        await provider.launch(bench.spec(1))
    assert await bench.machines() == []
    await provider.close()


async def test_a_key_that_cannot_be_read_is_named(bench, tmp_path):
    config = replace(bench.config, settings=changed(bench, key_file=tmp_path / "nothing"))
    provider = KIND.build(config, bench.clock)
    with pytest.raises(Unauthorized, match="nothing"):
        await provider.launch(bench.spec(1))
    await provider.close()


async def test_a_host_with_less_than_the_policy_says_sells_nothing(bench):
    config = replace(bench.config, settings=changed(bench, hosts=[{**bench.host, "cpus": 1024}]))
    provider = KIND.build(config, bench.clock)
    with pytest.raises(Refused, match=rf"host attic has cpus {os.cpu_count()}, and its 2 slots sell 2048"):
        await provider.offers()
    await provider.close()


async def test_a_server_that_restarts_is_connected_to_again(bench, provider):
    await provider.launch(bench.spec(1))
    bench.sshd.fault = "request_lost once"
    assert len(await provider.instances()) == 1


async def test_a_launch_on_a_host_that_the_policy_lost_is_refused(bench, provider):
    gone = replace(bench.spec(1).offer, zone="barn", region="barn")
    with pytest.raises(Refused, match=r"settings\.hosts names no barn any more"):
        await provider.launch(bench.spec(1, offer=gone))
    with pytest.raises(Refused, match=r"whose machine barn/r1 may run"):
        await provider.terminate("barn/r1")
