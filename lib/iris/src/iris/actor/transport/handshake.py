"""Mutual authentication: both ends of a connection prove that they belong to the same user.

Both have the user's key, which the controller gives only to the user and the user's jobs. Each side answers the other's
random challenge without revealing the key. A foreign server thus learns nothing useful for calls.

The connection's metadata contains a pass derived from the key (`pass_of`), checked before the server reads any message.
The pass can be copied, so it proves nothing, but keeps out strangers' messages.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

NONCE_BYTES: Final = 32
PASS_KEY: Final = "iris-actor-pass"
"""Metadata key of `pass_of`."""


def new_nonce() -> bytes:
    """Return a random challenge as bytes."""
    return secrets.token_bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Handshake:
    """The values of one connection that both ends know before authentication."""

    client_nonce: bytes
    server_nonce: bytes
    instance: str
    session: str

    @property
    def is_fresh(self) -> bool:
        """Return whether both sides sent random challenges of full length."""
        return len(self.client_nonce) == NONCE_BYTES and len(self.server_nonce) == NONCE_BYTES

    def server_proof(self, key: bytes) -> bytes:
        return self._proof(key, b"server")

    def client_proof(self, key: bytes) -> bytes:
        return self._proof(key, b"client")

    def _proof(self, key: bytes, role: bytes) -> bytes:
        parts = (role, self.client_nonce, self.server_nonce, self.instance.encode(), self.session.encode())
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(key, text, hashlib.sha256)


def pass_of(key: bytes) -> str:
    """Return the pass that a caller must present before its messages are read."""
    nonce = new_nonce()
    return f"{nonce.hex()}:{_pass(key, nonce.hex())}"


def is_pass(text: str, key: bytes) -> bool:
    """Return whether a text was made by `pass_of` with this key."""
    nonce, _, proof = text.partition(":")
    return hmac.compare_digest(proof.encode(), _pass(key, nonce).encode())


def _pass(key: bytes, nonce: str) -> str:
    return hmac.digest(key, f"pass:{nonce}".encode(), hashlib.sha256).hex()


def same(proof: bytes, expected: bytes) -> bool:
    """Compare two values in constant time."""
    return hmac.compare_digest(proof, expected)
