"""Tokens, and the principals they stand for. Their permissions: `iris.controller.access.authority`.

A token is `<kind>:<name>:<HMAC-SHA256(secret, kind:name)>`: the controller keeps one secret and nothing per token.
Kinds: `a` an admin, `u` a user, `w` a worker, `j` a job. Others are no signatures but secrets of which the controller
keeps digests (`iris.controller.access`): `n` lets a new worker join, `c` is the worker that has joined, and the tokens
that users get, `u:<user>:<id>.<secret>`; such as releases before made, `u:<user>:<signature>`, are good, too.
`u:<user>#<id>:<signature>` acts for whoever holds the token `<id>`, and ends with it: pages of the dashboard do.
What a worker is sent is the token of a job; what it gives to an attempt is derived from that (`attempt_token`) and
names the attempt, so that it ends with the attempt.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.domain.ids import AttemptId, JobId, user_of
from rigging.errors import Denied, MarinError
from rigging.filesystem.private import load_or_create


class PrincipalKind(StrEnum):
    """Kind of a principal; the value is the first letter of its tokens."""

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
"""Of the token of a worker that has joined."""
_DOT: Final = "."
"""A signature has none."""
_BY: Final = "#"
"""Before the id of the token for whose holder a signed one acts; no name of a user has it."""


def credential_token(worker_id: str, secret: str) -> str:
    """Return the token of a worker that has joined."""
    return f"{CREDENTIAL_PREFIX}{worker_id}:{secret}"


def join_bearer(token_id: str, secret: str) -> str:
    """Return a join token as it is shown to a controller."""
    return f"{PrincipalKind.JOIN.value}:{token_id}:{secret}"


def user_token(user: str, token_id: str, secret: str) -> str:
    """Return a user's token of which the controller keeps a digest: `u:<user>:<id>.<secret>`.

    Args:
        user: Whose it is.
        token_id: Tells it from the user's others; eight hex digits.
        secret: What only its holder knows.
    """
    return f"{PrincipalKind.USER.value}:{user}:{token_id}{_DOT}{secret}"


def parts_of_user_token(text: str) -> tuple[str, str, str]:
    """Take such a token apart, unverified: user, id, secret."""
    claim, _, rest = text.rpartition(":")
    token_id, _, secret = rest.partition(_DOT)
    return claim.partition(":")[2], token_id, secret


def is_kept(token: str) -> bool:
    """Whether a token is one that the controller knows by its digest; all others are signed with its secret."""
    if token.startswith(f"{PrincipalKind.USER.value}:"):
        return _DOT in token.rpartition(":")[2]
    return token.startswith((CREDENTIAL_PREFIX, f"{PrincipalKind.JOIN.value}:"))


class Unauthenticated(Denied):
    """The caller's token is missing or was not made by this cluster."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller.

    Args:
        name: A user's name (an admin is a user, too), a worker id, a job id or the id of a join token.
        attempt_id: The attempt of the job that calls; None: the token is the job's own.
        token_id: Of a user's token that the controller keeps; empty: it is signed, or no user's.
    """

    kind: PrincipalKind
    name: str
    attempt_id: AttemptId | None = None
    token_id: str = ""

    def __str__(self) -> str:
        return f"{self.kind.word} {self.name}"

    @property
    def user(self) -> str:
        """The user for whom it acts; empty for a worker and a join token."""
        if self.kind is PrincipalKind.JOB:
            return user_of(self.name)
        return "" if self.kind in (PrincipalKind.WORKER, PrincipalKind.JOIN) else self.name

    @property
    def job_id(self) -> JobId | None:
        """The job it is; None for people and workers."""
        return JobId(self.name) if self.kind is PrincipalKind.JOB else None


def make_token(secret: bytes, kind: PrincipalKind, name: str, token_id: str = "") -> str:
    """Return the token by which `name` is known to the cluster that holds `secret`.

    Args:
        secret: The cluster's secret.
        kind: Kind of the principal.
        name: Its name, e.g. a user's or a job's id.
        token_id: Of a user's token, with which this one ends; empty: it does with no other.
    """
    claim = f"{kind.value}:{name}{_BY}{token_id}" if token_id else f"{kind.value}:{name}"
    return f"{claim}:{_mac(secret, claim)}"


def attempt_token(job_token: str, attempt_id: str) -> str:
    """The token of one attempt of a job, made from the job's without the cluster's secret."""
    job_mac = job_token.rpartition(":")[2]
    return f"{PrincipalKind.JOB.value}:{attempt_id}:{_mac(job_mac.encode(), attempt_id)}"


def verify_token(secret: bytes, token: str) -> Principal:
    """The principal a token was made for. Raises Unauthenticated on anything else."""
    claim, _, mac = token.rpartition(":")
    kind, _, name = claim.partition(":")
    if kind not in _KINDS or not name:
        raise Unauthenticated("the token is malformed: expected <a|u|w|j>:<name>:<signature>")
    principal, expected = _claimed(secret, PrincipalKind(kind), name)
    if not hmac.compare_digest(mac.encode(), expected.encode()):
        raise Unauthenticated(f"the token of {principal.kind.word} {name} was not made by this cluster")
    return principal


def _claimed(secret: bytes, kind: PrincipalKind, name: str) -> tuple[Principal, str]:
    """Return the principal that a token claims, and the signature that would prove it."""
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
    """The only user for whom a token can act (unverified); empty when it is no user's, or an admin's."""
    kind, _, rest = token.partition(":")
    return rest.partition(":")[0] if kind == PrincipalKind.USER.value else ""


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind if kind is not PrincipalKind.JOIN)


def _mac(secret: bytes, claim: str) -> str:
    return hmac.digest(secret, claim.encode(), hashlib.sha256).hex()


def load_or_create_secret(path: Path) -> bytes:
    """The cluster's secret, made on first use: 32 random bytes in hex, in a file only its owner can read.

    Args:
        path: The file.

    Raises:
        Denied: The file is another user's, or others can read it.
        MarinError: The file is no such secret, or cannot be made.
    """
    try:
        text = load_or_create(path, lambda: secrets.token_hex(_SECRET_BYTES).encode(), "the cluster's secret")
    except Denied:
        raise
    except OSError as error:
        raise MarinError(f"cannot read or make the cluster's secret {path}: {error.strerror or error}") from error
    try:
        secret = bytes.fromhex(text.decode())
    except ValueError:
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise MarinError(f"the cluster's secret {path} is damaged: expected 64 hex digits; remove it to make a new one")
    return secret
