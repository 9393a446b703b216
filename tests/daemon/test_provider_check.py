"""`autoscaler provider check`, as its operator calls it: against accounts of every kind, and with a canary."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.sandbox.surroundings import free_port
from tests.daemon.accounts import KINDS, Accounts, accounts
from tests.daemon.place import until
from tests.providers.moto_cloud import Rule

pytestmark = pytest.mark.needs("sshd", "bwrap")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        yield Path(name)


async def start(found: Accounts, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", "provider", "check", *arguments),
        env={**os.environ, **found.place.env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def check(found: Accounts, *arguments: str) -> tuple[int, str]:
    process = await start(found, *arguments)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode() or err.decode()


def by_name(text: str) -> dict[str, Any]:
    return {line["what"]: line for line in json.loads(text)["lines"]}


async def test_every_kind_has_a_line_for_each_thing_that_it_needs(folder: Path) -> None:
    async with accounts(folder, 1.0, dict.fromkeys(KINDS, 10)) as found:
        answers = await asyncio.gather(*(check(found, kind, "--json") for kind in KINDS))
        for kind, (code, text) in zip(KINDS, answers, strict=True):
            lines = by_name(text)
            print(kind, *lines, sep="\n    ")
            assert code == 0, text
            assert {"offers", "inventory", "runner types", "clock"} <= lines.keys()
            wanted = {"ssh": "hardware", "kubernetes": "quota"}.get(kind, "image")
            if kind != "azure":  # a marketplace's image is found out by the first launch
                assert any(wanted in what for what in lines)
            assert (kind in ("aws", "gcp", "azure")) == ("price age" in lines)


async def test_a_failed_line_says_why_and_what_to_do_and_the_exit_code_is_1(folder: Path) -> None:
    async with accounts(folder, 1.0, {"aws": 10}) as found:
        found.benches["aws"].cloud.add(Rule("RunInstances", 100, code="UnauthorizedOperation", status=403))
        code, text = await check(found, "aws")
        assert code == 1
        assert "FAILED  us-east-1: launch c5.large on_demand in us-east-1a: aws (us-east-1) run_instances" in text
        assert "        -> give the daemon's account the permission that is named" in text
        code, text = await check(found, "nobody")
        assert code == 2
        assert "has no provider 'nobody'; it names aws" in text


async def test_a_canary_looks_around_on_a_donated_host_and_is_destroyed(folder: Path) -> None:
    async with accounts(folder, 1.0, {"ssh": 2}) as found:
        here = f"127.0.0.1:{free_port()}"
        code, text = await check(found, "ssh", "--canary", "--json", "--listen", here, "--url", f"http://{here}")
        lines = by_name(text)
        print(json.dumps(lines, indent=1))
        for what in ("launch", "boot", "destroyed"):
            assert lines[what]["detail"].startswith("after ")
        assert lines["inside: cloud identity"]["ok"]
        assert {"inside: metadata service", "inside: GitHub"} <= lines.keys()
        assert code == (0 if lines["inside: GitHub"]["ok"] and lines["inside: metadata service"]["ok"] else 1)
        assert found.benches["ssh"].leases() == []


async def test_a_canary_is_destroyed_when_its_operator_stops_it(folder: Path) -> None:
    async with accounts(folder, 1.0, {"gcp": 10}) as found:
        cloud = found.benches["gcp"].cloud
        here = f"127.0.0.1:{free_port()}"
        nowhere = f"http://127.0.0.1:{free_port()}"  # so that it waits for the boot
        process = await start(found, "gcp", "--canary", "--listen", here, "--url", nowhere)
        await until(lambda: cloud.machines)
        ((_, name),) = cloud.machines
        assert name.startswith("test-rcanary")
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
        assert process.returncode == 1
        assert cloud.machines == {}
        assert "destroyed: after " in out.decode()
        assert err.decode() == "destroying the canary, please wait\nautoscaler: stopped\n"


async def test_a_canary_whose_port_is_taken_launches_nothing(folder: Path) -> None:
    async with accounts(folder, 1.0, {"aws": 10}) as found:
        await found.place.leading()
        code, text = await check(found, "aws", "--canary")
        assert code == 1
        assert "name a free --listen HOST:PORT and the --url that leads there" in text
        assert found.creates("aws") == 2  # dry runs
