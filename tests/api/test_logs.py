"""Logs: one JSON object a line with ids, plain lines for a terminal, and no secret in either."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler import logs

JIT = base64.b64encode(json.dumps({".runner": "secret" * 40}).encode()).decode()
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAxyz\nabcdefghijkl\n-----END RSA PRIVATE KEY-----\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    root, known = logging.getLogger(), logs.REDACTOR
    before = (root.level, list(root.handlers))
    logs.REDACTOR = logs.Redactor()
    yield
    logs.REDACTOR = known
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_one_json_object_a_line_with_ids() -> None:
    out = io.StringIO()
    logs.set_up(out)
    ids = {"runner": "r1", "job": "7.1"}
    logging.getLogger("autoscaler.effects").warning("launch of %s failed", "r1", extra=ids)
    try:
        raise ValueError("no such thing")
    except ValueError:
        logging.getLogger("x").exception("oh")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.pop("at")[10] == "T"
    assert first == {
        "level": "warning",
        "log": "autoscaler.effects",
        "text": "launch of r1 failed",
        **ids,
    }
    assert "ValueError: no such thing" in second["error"]


def test_plain_lines_on_a_terminal_obey_no_control_characters() -> None:
    out = Terminal()
    logs.set_up(out)
    logging.getLogger("x").warning("label \x1b[31mred\r\nnext", extra={"job": "7.1"})
    (line,) = out.getvalue().splitlines()[:1]
    assert "warning" in line
    assert "\\x1b[31mred\\r" in line
    assert out.getvalue().rstrip().endswith("job=7.1")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_i11_secrets_are_struck_out(stream: type[io.StringIO]) -> None:
    logs.REDACTOR.hide([b"fleet-key-of-this-fleet", PEM, 'quo"ted-secret'])
    out = stream()
    logs.set_up(out)
    log = logging.getLogger("x")
    secrets = [
        JIT, "fleet-key-of-this-fleet", "MIIEowIBAAKCAQEAxyz", "abcdefghijkl", "ghs_" + "a" * 36, "hunter2hunter2",
        "0123456789abcdef" * 4, 'quo"ted-secret', "s3cr3tpass",
    ]  # fmt: skip
    log.error("config %s of %s", JIT, "fleet-key-of-this-fleet", extra={"key": PEM, "quoted": 'quo"ted-secret'})
    log.error("Authorization: Bearer hunter2hunter2; token ghs_%s", "a" * 36)
    log.error("X-Hub-Signature-256: sha256=%s redis://user:s3cr3tpass@host:1/0", "0123456789abcdef" * 4)
    try:
        raise ValueError(f"bad key {PEM}")
    except ValueError:
        log.exception("failed with %r", PEM)
    text = out.getvalue()
    for secret in secrets:
        assert secret not in text
        assert json.dumps(secret)[1:-1] not in text
    assert text.count(logs.HIDDEN) >= 9


def test_chatty_libraries_speak_from_warnings_on() -> None:
    out = io.StringIO()
    logs.set_up(out)
    logging.getLogger("httpx").info("GET https://api.github.com/app")
    logging.getLogger("autoscaler").info("hello")
    assert out.getvalue().count("\n") == 1


async def test_what_is_no_http_leaves_nothing_in_the_log() -> None:
    """Anybody can send it, as often as they like; and its bytes may be somebody's token."""
    out = io.StringIO()
    logs.set_up(out)
    server = TestServer(web.Application())
    await server.start_server()
    for sent in (b"GET / HTTP/1.1\r\nAuthorization: token-of-a-person\x00\r\n\r\n", b"\x16\x03\x01" * 9):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent + b"\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    await server.close()
    assert out.getvalue() == ""
