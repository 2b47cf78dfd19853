"""How the two ends of a connection prove to each other that they belong to the same user.

Both hold the user's key, which the controller gives only to that user's jobs and to the user. Neither shows it: each
answers the other's random number. Nothing that a foreign server could use is ever sent to it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

NONCE_BYTES: Final = 32


def new_nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True)
class Handshake:
    """What both ends know of one connection before they trust each other."""

    client_nonce: bytes
    server_nonce: bytes
    instance: str
    session: str

    @property
    def is_fresh(self) -> bool:
        """Whether both sides gave random numbers of full length."""
        return len(self.client_nonce) == NONCE_BYTES and len(self.server_nonce) == NONCE_BYTES

    def server_proof(self, key: bytes) -> bytes:
        return self._proof(key, b"server")

    def client_proof(self, key: bytes) -> bytes:
        return self._proof(key, b"client")

    def _proof(self, key: bytes, role: bytes) -> bytes:
        parts = (role, self.client_nonce, self.server_nonce, self.instance.encode(), self.session.encode())
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(key, text, hashlib.sha256)


def same(proof: bytes, expected: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(proof, expected)
