"""Tokens and their principals. Permissions are in `iris.controller.access.authority`.

A token is `<kind>:<name>:<HMAC-SHA256(secret, kind:name)>`: the controller stores one secret and nothing per token.
Kinds: `a` an admin, `u` a user, `w` a worker, `j` a job. Other tokens contain a secret instead of a signature, and the
controller stores its digest (`iris.controller.access`): `n` lets a new worker join, `c` is a worker that has joined,
and `u:<user>:<id>.<secret>` is a user's token. User tokens of earlier releases, `u:<user>:<signature>`, are valid, too.
`u:<user>#<id>:<signature>` acts for the holder of the token `<id>` and is revoked with that token; dashboard pages use
it. From a job's token a worker derives the attempt's token (`attempt_token`), which names the attempt and is revoked at
its end.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from iris.domain.ids import AttemptId, JobId, user_of
from rigging.errors import Denied, MarinError
from rigging.filesystem.private import load_or_create


class PrincipalKind(StrEnum):
    """The kind of a principal. The value is the first letter of the kind's tokens."""

    ADMIN = "a"
    USER = "u"
    WORKER = "w"
    JOB = "j"
    JOIN = "n"

    @property
    def word(self) -> str:
        return _KIND_WORDS[self]


_SECRET_BYTES: Final = 32
_KIND_WORDS: Final = {
    PrincipalKind.ADMIN: "admin",
    PrincipalKind.USER: "user",
    PrincipalKind.WORKER: "worker",
    PrincipalKind.JOB: "job",
    PrincipalKind.JOIN: "join token",
}


CREDENTIAL_PREFIX: Final = "c:"
"""Prefix of the token of a worker that has joined."""
_DOT: Final = "."
"""A character that signatures do not contain."""
_BY: Final = "#"
"""Separates the user from the id of a token for whose holder a signed token acts; no user name contains it."""


def credential_token(worker_id: str, secret: str) -> str:
    """Return the token of a worker that has joined."""
    return f"{CREDENTIAL_PREFIX}{worker_id}:{secret}"


def join_bearer(token_id: str, secret: str) -> str:
    """Return a join token in the form sent to a controller."""
    return f"{PrincipalKind.JOIN.value}:{token_id}:{secret}"


def user_token(user: str, token_id: str, secret: str) -> str:
    """Return a user's token, `u:<user>:<id>.<secret>`; the controller stores its digest.

    Args:
        user: The user.
        token_id: The id among the user's tokens; eight hex digits.
        secret: The secret of the token's holder.
    """
    return f"{PrincipalKind.USER.value}:{user}:{token_id}{_DOT}{secret}"


def parts_of_user_token(text: str) -> tuple[str, str, str]:
    """Split a user's token, unverified, into user, id and secret."""
    claim, _, rest = text.rpartition(":")
    token_id, _, secret = rest.partition(_DOT)
    return claim.partition(":")[2], token_id, secret


def is_kept(token: str) -> bool:
    """Return whether the controller stores the token's digest; other tokens are signed."""
    if token.startswith(f"{PrincipalKind.USER.value}:"):
        return _DOT in token.rpartition(":")[2]
    return token.startswith((CREDENTIAL_PREFIX, f"{PrincipalKind.JOIN.value}:"))


class Unauthenticated(Denied):
    """The caller's token is missing or was not created by this cluster."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller.

    Args:
        name: A user's name (also for an admin), a worker id, a job id or the id of a join token.
        attempt_id: The calling attempt; None for the job's token.
        token_id: Id of a user's stored token; empty for a signed token or another principal.
    """

    kind: PrincipalKind
    name: str
    attempt_id: AttemptId | None = None
    token_id: str = ""

    def __str__(self) -> str:
        return f"{self.kind.word} {self.name}"

    @property
    def user(self) -> str:
        """The user for whom the principal acts; empty for a worker or a join token."""
        if self.kind is PrincipalKind.JOB:
            return user_of(self.name)
        return "" if self.kind in (PrincipalKind.WORKER, PrincipalKind.JOIN) else self.name

    @property
    def job_id(self) -> JobId | None:
        """The id of the job; None for users and workers."""
        return JobId(self.name) if self.kind is PrincipalKind.JOB else None


def make_token(secret: bytes, kind: PrincipalKind, name: str, token_id: str = "") -> str:
    """Return the token of `name` for the cluster with this `secret`.

    Args:
        secret: The cluster's secret.
        kind: The kind of the principal.
        name: Its name, e.g. a user's or a job's id.
        token_id: Id of the user's token whose revocation also revokes this token; empty for none.
    """
    claim = f"{kind.value}:{name}{_BY}{token_id}" if token_id else f"{kind.value}:{name}"
    return f"{claim}:{_mac(secret, claim)}"


def attempt_token(job_token: str, attempt_id: str) -> str:
    """Derive the token of one attempt of a job from the job's token, without the cluster's secret."""
    job_mac = job_token.rpartition(":")[2]
    return f"{PrincipalKind.JOB.value}:{attempt_id}:{_mac(job_mac.encode(), attempt_id)}"


def verify_token(secret: bytes, token: str) -> Principal:
    """Return the principal of a token. Raises Unauthenticated if it is invalid."""
    claim, _, mac = token.rpartition(":")
    kind, _, name = claim.partition(":")
    if kind not in _KINDS or not name:
        raise Unauthenticated("the token is malformed: expected <a|u|w|j>:<name>:<signature>")
    principal, expected = _claimed(secret, PrincipalKind(kind), name)
    if not hmac.compare_digest(mac.encode(), expected.encode()):
        raise Unauthenticated(f"the token of {principal.kind.word} {name} was not made by this cluster")
    return principal


def _claimed(secret: bytes, kind: PrincipalKind, name: str) -> tuple[Principal, str]:
    """Return the principal that a token claims, and the signature that proves it."""
    task, separator, _ = name.rpartition(":")
    if kind is PrincipalKind.JOB and separator:
        job_id = task.rpartition("/")[0]
        job_mac = _mac(secret, f"{kind.value}:{job_id}")
        return Principal(kind, job_id, AttemptId(name)), _mac(job_mac.encode(), name)
    expected = _mac(secret, f"{kind.value}:{name}")
    if kind is PrincipalKind.USER:
        user, _, token_id = name.partition(_BY)
        return Principal(kind, user, token_id=token_id), expected
    return Principal(kind, name), expected


def user_of_token(token: str) -> str:
    """Return the only user for whom a token can act (unverified); empty for an admin's token or another principal's."""
    kind, _, rest = token.partition(":")
    return rest.partition(":")[0] if kind == PrincipalKind.USER.value else ""


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind if kind is not PrincipalKind.JOIN)


def _mac(secret: bytes, claim: str) -> str:
    signer = _signer(secret).copy()
    signer.update(claim.encode())
    return signer.hexdigest()


@lru_cache(maxsize=4)  # starting one takes OpenSSL longer than signing
def _signer(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod=hashlib.sha256)


def load_or_create_secret(path: Path) -> bytes:
    """Return the cluster's secret, creating it on first use: 32 random bytes in hex, in a file that only its owner can
    read.

    Args:
        path: The file.

    Raises:
        Denied: The file belongs to another user, or others can read it.
        MarinError: The file contains no valid secret, or cannot be created.
    """
    try:
        text = load_or_create(path, lambda: secrets.token_hex(_SECRET_BYTES).encode(), "the cluster's secret")
    except Denied:
        raise
    except OSError as error:
        raise MarinError(f"cannot read or create the cluster's secret {path}: {error.strerror or error}") from error
    try:
        secret = bytes.fromhex(text.decode())
    except ValueError:
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise MarinError(
            f"the cluster's secret {path} is damaged: expected 64 hex digits; remove it to create a new one"
        )
    return secret
