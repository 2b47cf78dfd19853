"""Proof between the two ends of a connection that they belong to the same user.

Both hold the user's key, which the controller gives only to that user's jobs and to the user. Neither shows it: each
answers the other's random number. Nothing by which a foreign server could call is ever sent to it.

The metadata of a connection shows, before the server reads any of its messages, that its caller has seen the key, or
such metadata (`pass_of`). That proves nothing, but spares the server the messages of all others.
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
    """Return a random number of the handshake, as bytes."""
    return secrets.token_bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Handshake:
    """The values of one connection that both ends know before they trust each other."""

    client_nonce: bytes
    server_nonce: bytes
    instance: str
    session: str

    @property
    def is_fresh(self) -> bool:
        """True if both sides gave random numbers of full length."""
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
    """The pass that a caller shows to have its messages read at all."""
    nonce = new_nonce()
    return f"{nonce.hex()}:{_pass(key, nonce.hex())}"


def is_pass(text: str, key: bytes) -> bool:
    """True if a text was made by `pass_of` with this key."""
    nonce, _, proof = text.partition(":")
    return hmac.compare_digest(proof.encode(), _pass(key, nonce).encode())


def _pass(key: bytes, nonce: str) -> str:
    return hmac.digest(key, f"pass:{nonce}".encode(), hashlib.sha256).hex()


def same(proof: bytes, expected: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(proof, expected)
