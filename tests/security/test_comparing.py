"""Secrets are compared in constant time, and with every active one, whichever fits."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import aiohttp
import pytest

from autoscaler.http.runner_api import callback_token
from tests.daemon.place import Place
from tests.security.conftest import deliver, payload

RUNNER = "r" + "0" * 20


class Spy:
    """Counts real comparisons."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compared: list[tuple[bytes | str, bytes | str]] = []
        self._real = hmac.compare_digest
        monkeypatch.setattr(hmac, "compare_digest", self)

    def __call__(self, a: bytes | str, b: bytes | str) -> bool:
        self.compared.append((a, b))
        return bool(self._real(a, b))  # type: ignore[arg-type, type-var]


@pytest.mark.parametrize("signed_with", [b"first secret", b"second secret", b"third secret", b"unknown"])
async def test_a_signature_is_compared_with_every_active_secret(
    place: Place, monkeypatch: pytest.MonkeyPatch, signed_with: bytes
) -> None:
    secrets = (b"first secret", b"second secret", b"third secret")
    Path(place.env["AUTOSCALER_WEBHOOK_SECRET_FILE"]).write_bytes(b"\n".join(secrets))  # noqa: ASYNC240
    await place.replica()
    spy = Spy(monkeypatch)
    status, _ = await deliver(place, payload(), signed_with)
    assert status == (202 if signed_with in secrets else 401)
    assert len(spy.compared) == 3
    assert {len(made) for made, _ in spy.compared} == {len("sha256=") + 64}


@pytest.mark.parametrize("token", ["reader-token", "writer-token", "unknown"])
async def test_an_api_token_is_compared_with_every_known_one(
    place: Place, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    path = place.directory / "tokens.yaml"
    lines = [
        f"- {{name: {scope}er, sha256: {hashlib.sha256(f'{word}-token'.encode()).hexdigest()}, scope: {scope}}}\n"
        for scope, word in (("read", "reader"), ("write", "writer"))
    ]
    path.write_text("".join(lines))
    await place.replica(AUTOSCALER_API_TOKENS_FILE=str(path))
    spy = Spy(monkeypatch)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(place.url, headers=headers) as session,
        session.get("/api/v1/summary") as answer,
    ):
        assert answer.status == (401 if token == "unknown" else 200)
    assert len(spy.compared) == 2


async def test_a_callback_token_is_compared_so_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await place.replica()
    spy = Spy(monkeypatch)
    headers = {"Authorization": "Bearer wrong"}
    async with (
        aiohttp.ClientSession(place.url, headers=headers) as session,
        session.post(f"/runner/v1/{RUNNER}/stages", json={"stage": "booted"}) as answer,
    ):
        assert answer.status == 401
    key = Path(place.env["AUTOSCALER_FLEET_KEY_FILE"]).read_bytes().strip()  # noqa: ASYNC240
    assert spy.compared == [(f"Bearer {callback_token(key, RUNNER)}".encode(), b"Bearer wrong")]
