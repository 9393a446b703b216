"""Encryption of JIT configs on their way to the machine: what lies in Redis opens only with the fleet key."""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE_BYTES = 12


class Seal:
    """AES-256-GCM under a key derived from the fleet key. A sealed text opens for its own runner only."""

    def __init__(self, fleet_key: bytes) -> None:
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"autoscaler jit config").derive(fleet_key)
        self._cipher = AESGCM(key)

    def __repr__(self) -> str:
        return "Seal(...)"

    def seal(self, runner_id: str, text: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text.encode(), runner_id.encode())

    def unseal(self, runner_id: str, sealed: bytes) -> str | None:
        """The text; None where another key, another runner or a damaged store made it."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], runner_id.encode()).decode()
        except (InvalidTag, ValueError):
            return None
