"""Proves that a worker has its key: it signs a nonce from the controller with an Ed25519 key, which never leaves the
host.
"""

import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rigging.errors import Denied, InvalidRequest
from rigging.filesystem.private import load_or_create

KEY_FILE: Final = "worker-key"
NONCE_BYTES: Final = 32
_CONTEXT: Final = b"iris worker session\0"


def load_or_create_key(work_dir: Path) -> Ed25519PrivateKey:
    """Return the key in a work directory, creating it on first use, readable only by this user. Raises MarinError or
    OSError.
    """
    seed = load_or_create(work_dir / KEY_FILE, lambda: os.urandom(32).hex().encode(), "the worker's key")
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed.decode()))
    except ValueError:
        raise InvalidRequest(
            f"{work_dir / KEY_FILE} is damaged: restore it, or `iris worker revoke` this worker, remove "
            "this file and credential.json, and give it a new join token"
        ) from None


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def prove(key: Ed25519PrivateKey, worker_id: str, nonce: bytes) -> bytes:
    """Return the signature of a nonce."""
    return key.sign(_claim(worker_id, nonce))


def check_proof(public_key: bytes, worker_id: str, nonce: bytes, proof: bytes) -> None:
    """Raise Denied unless the holder of the key has signed this nonce as this worker.

    Args:
        public_key: 32 bytes, possibly invalid.
        worker_id: The worker of the session.
        nonce: The nonce sent to the worker.
        proof: The received signature.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(proof, _claim(worker_id, nonce))
    except (InvalidSignature, ValueError):
        raise Denied(
            f"worker {worker_id!r} has not proved its key: what it answered is not this session's nonce, signed by it"
        ) from None


def _claim(worker_id: str, nonce: bytes) -> bytes:
    return _CONTEXT + worker_id.encode() + b"\0" + nonce
