"""What payloads say is data: no URL of theirs is fetched, no name reaches a path, a shell or a pattern."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from autoscaler.github.target import parse_target
from autoscaler.sandbox.github_faults import Fault
from scheduling.lifecycle import JobState
from tests.daemon.place import LABELS, Place, until
from tests.security.conftest import deliver, payload

HOSTILE = (
    "octo/../../orgs/other/actions/runners",
    "octo/app/../../x",
    "octo/app?per_page=1",
    "octo/app#x",
    "octo/app\r\nX-Evil: 1",
    "octo/..",
    "../app",
    "octo",
    "",
    "octo/app/extra",
    "octo/a b",
    "octo/$(reboot)",
    "octo/`reboot`",
    "https://evil.example/x",
)


class Trap:
    """A server that nobody should ever ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.credentials: list[str] = []


@pytest_asyncio.fixture
async def trap() -> AsyncIterator[Trap]:
    async def caught(request: web.Request) -> web.Response:
        found.asked.append(str(request.rel_url))
        found.credentials += [
            request.headers[name] for name in ("Authorization", "Cookie") if name in request.headers
        ]
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", caught)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found = Trap(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield found
    await runner.cleanup()


def redirected(document: Any, url: str) -> Any:
    """The document with every URL in it, whatever its key, pointing at the trap."""
    if isinstance(document, dict):
        return {key: redirected(value, url) for key, value in document.items()}
    if isinstance(document, list):
        return [redirected(value, url) for value in document]
    return url + "/trap" if isinstance(document, str) and "://" in document else document


async def test_no_url_of_a_payload_is_ever_fetched(place: Place, trap: Trap) -> None:
    replica = await place.leading()
    [job_id] = place.push(1)
    job = place.around.github.state.jobs[job_id]
    document = redirected(payload(), trap.url)
    assert json.dumps(document).count("/trap") > 20
    document["workflow_job"] |= {"id": 77, "run_id": job.run_id, "labels": list(LABELS), "run_attempt": 1}
    document["repository"]["full_name"] = "octo/app"
    status, _ = await deliver(place, document)
    assert status == 202
    await until(lambda: replica.daemon.world and "77.1" in replica.daemon.world.jobs)
    await until(lambda: job.state != "queued")
    await until(place.done)
    assert trap.asked == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_repository_that_is_no_name_makes_no_path(name: str) -> None:
    with pytest.raises(ValueError, match="no registration target"):
        parse_target(f"repo:{name}")


async def test_a_repository_that_is_no_name_is_400_and_stored_nowhere(place: Place) -> None:
    replica = await place.leading()
    for name in HOSTILE:
        document = payload()
        document["repository"]["full_name"] = name
        status, text = await deliver(place, document)
        assert status == 400, name
        assert "full_name" in text
    assert replica.daemon.world is not None
    assert not replica.daemon.world.jobs


LABELS_OF_STRANGERS = (
    "$(touch /tmp/x)", "; reboot", "*", "[a-z]", "linux*", "\x00", "\x1b[31m", "a\nb", "{x}", "%s", "__proto__",
)  # fmt: skip


async def test_labels_match_only_as_they_are_and_reach_no_machine(place: Place) -> None:
    """No label acts as a pattern; and what a machine is given holds the policy's labels, never a payload's."""
    replica = await place.leading()
    for number, label in enumerate(LABELS_OF_STRANGERS):
        document = payload()
        document["workflow_job"] |= {
            "id": 100 + number,
            "labels": [*LABELS, label],
            "name": label,
            "run_attempt": 1,
        }
        document["repository"]["full_name"] = "octo/app"
        status, _ = await deliver(place, document)
        assert status == 202
    world = replica.daemon.world
    assert world is not None
    await until(lambda: len(world.jobs) == len(LABELS_OF_STRANGERS))
    assert not any(job.runner_type for job in world.jobs.values())
    assert {job.state for job in world.jobs.values()} == {JobState.QUEUED}
    place.push(1, labels=("SELF-hosted", "LiNuX"))
    await until(lambda: place.around.existing())
    [machine] = place.around.existing()
    assert "LiNuX" not in machine.spec.boot
    assert set(json.loads(machine.spec.boot)) == {
        "fleet", "runner_id", "name", "url", "token", "ready_seconds", "lifetime_seconds", "access",
        "place",
    }  # fmt: skip
    await until(place.done)


async def test_a_runner_name_of_a_payload_names_none_of_ours(place: Place) -> None:
    """`in_progress` for a name that only looks like ours binds the job to no machine and stops none."""
    replica = await place.leading()
    document = payload()
    document["action"] = "in_progress"
    document["repository"]["full_name"] = "octo/app"
    for number, name in enumerate(("test-r" + "0" * 20, "test-../../x", "test-", "other-r" + "0" * 20, "\x1b[2J")):
        document["workflow_job"] |= {"id": 500 + number, "runner_name": name, "labels": list(LABELS)}
        assert (await deliver(place, document))[0] == 202
    world = replica.daemon.world
    assert world is not None
    await until(lambda: len(world.jobs) == 5)
    assert not world.runners


async def test_a_redirect_takes_no_credentials_elsewhere(place: Place, trap: Trap) -> None:
    """GitHub redirects to renamed repositories; an answer that names another host takes no token of ours there."""
    await place.leading()
    headers = {"Location": f"{trap.url}/steal"}
    rule = place.around.github.faults.add(Fault(path="/repos/*", status=302, headers=headers))
    place.push(1)
    async with asyncio.timeout(20):
        while not trap.asked:  # noqa: ASYNC110  the daemon asks in its own time
            await asyncio.sleep(0.02)
    assert rule.hits
    assert not trap.credentials
    place.around.github.faults.clear()
    await until(place.done)
