"""I11 on GitHub's side: no token, JWT, key or JIT config in a log, an exception or a repr, whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator

import jwt
import pytest

from autoscaler.github.client import AppCredentials, GitHub, GitHubError
from autoscaler.sandbox.github import Fault, GitHubStandIn
from tests.github.world import LABELS, OWNER, REPOSITORY, Connect

REPO = f"repo:{REPOSITORY}"


class Everything(logging.Handler):
    """Every record of every logger, with its arguments and its exception, as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter())
        self.text: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.text.append(self.format(record) + repr(record.args) + repr(vars(record)))


@pytest.fixture
def logged() -> Iterator[Everything]:
    handler, root = Everything(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def told(error: BaseException) -> str:
    """All that a log could show of an error: its text, its fields and its traceback, with those of its chain."""
    parts = []
    seen: BaseException | None = error
    while seen is not None:
        lines = traceback.TracebackException.from_exception(seen)
        parts += [*lines.format(), repr(seen), repr(vars(seen))]
        seen = seen.__cause__ or seen.__context__
    return "".join(parts)


async def test_no_secret_is_ever_shown(
    standin: GitHubStandIn, connect: Connect, logged: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str] = []
    sign = jwt.encode

    def watched(*arguments: object) -> str:
        signed.append(sign(*arguments))  # type: ignore[arg-type]
        return signed[-1]

    monkeypatch.setattr(jwt, "encode", watched)
    github = await connect(warm=False)
    shown: list[str] = [repr(github), repr(vars(github))]
    jit = await github.create_jit(REPO, "fleet-r1", LABELS)
    shown += [repr(jit), repr(standin.registrations())]
    await asyncio.gather(*(github.find_runner(REPO, f"r{number}") for number in range(3)))
    token = standin.access.tokens()[-1]
    loud = f"token {token} of {signed[-1]} may not fetch {jit.config}"
    faults = [
        Fault("/repos/*", status=401, message=loud),
        Fault("/repos/*", status=403, message=loud),
        Fault("/repos/*", status=429, message=loud),
        Fault("/repos/*", status=404, message=loud),
        Fault("/repos/*", status=422, message=loud),
        Fault("/repos/*", status=409, message=loud),
        Fault("/repos/*", status=418, message=loud),
        Fault("/repos/*", drop=True, applied=True),
        Fault("/repos/*", status=201, message=loud),
        Fault("/app/*", status=500, message=loud),
        Fault("/app/*", status=403, message=loud),
    ]
    for number, fault in enumerate(faults):
        standin.faults.clear()
        standin.faults.add(fault)
        if fault.path == "/app/*":
            standin.access.revoke_tokens()
        fresh = await connect(warm=False)
        with pytest.raises(GitHubError) as said:
            await fresh.create_jit(REPO, f"fleet-x{number}", LABELS)
        shown.append(told(said.value))
    bad = GitHub([AppCredentials("9", "PRIVATE canary")], base_url=standin.url, clock=standin.clock)
    with pytest.raises(GitHubError) as said:
        await bad.open()
    shown += [told(said.value), repr(bad), repr(AppCredentials("9", "PRIVATE canary"))]
    await bad.close()

    everything = "".join(shown + logged.text)
    assert OWNER in everything
    assert logged.text
    key_lines = standin.new_app("pem", []).splitlines()[1:3]
    secrets = [*standin.access.tokens(), token, *signed, jit.config, "PRIVATE canary", *key_lines]
    assert len(secrets) > 6
    for secret in secrets:
        assert secret not in everything
        assert secret[:40] not in everything
