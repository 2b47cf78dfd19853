"""Tokens, and the principals they stand for. Their permissions: `iris.controller.access.authority`.

A token is `<kind>:<name>:<HMAC-SHA256(secret, kind:name)>`: the controller keeps one secret and nothing per token.
Kinds: `a` an admin, `u` a user, `w` a worker, `j` a job. What a worker is sent is the token of a job; what it gives to
an attempt is derived from that (`attempt_token`) and names the attempt, so that it ends with the attempt.
"""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.domain.ids import AttemptId, JobId, user_of
from rigging.errors import Denied, MarinError
from rigging.filesystem.atomic import sync_names


class PrincipalKind(StrEnum):
    """Kind of a principal; the value is the first letter of its tokens."""

    ADMIN = "a"
    USER = "u"
    WORKER = "w"
    JOB = "j"

    @property
    def word(self) -> str:
        return _KIND_WORDS[self]


_KIND_WORDS: Final = {
    PrincipalKind.ADMIN: "admin",
    PrincipalKind.USER: "user",
    PrincipalKind.WORKER: "worker",
    PrincipalKind.JOB: "job",
}


class Unauthenticated(Denied):
    """The caller's token is missing or was not made by this cluster."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller.

    Args:
        name: A user's name (an admin is a user, too), a worker id or a job id.
        attempt_id: The attempt of the job that calls; None: the token is the job's own.
    """

    kind: PrincipalKind
    name: str
    attempt_id: AttemptId | None = None

    def __str__(self) -> str:
        return f"{self.kind.word} {self.name}"

    @property
    def user(self) -> str:
        """The user for whom it acts; empty for a worker."""
        if self.kind is PrincipalKind.JOB:
            return user_of(self.name)
        return "" if self.kind is PrincipalKind.WORKER else self.name

    @property
    def job_id(self) -> JobId | None:
        """The job it is; None for people and workers."""
        return JobId(self.name) if self.kind is PrincipalKind.JOB else None


def make_token(secret: bytes, kind: PrincipalKind, name: str) -> str:
    """Return the token by which `name` is known to the cluster that holds `secret`.

    Args:
        secret: The cluster's secret.
        kind: Kind of the principal.
        name: Its name, e.g. a user's or a job's id.
    """
    return f"{kind.value}:{name}:{_mac(secret, f'{kind.value}:{name}')}"


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
    return Principal(kind, name), _mac(secret, f"{kind.value}:{name}")


def user_of_token(token: str) -> str:
    """The only user for whom a token can act (unverified); empty when it is no user's, or an admin's."""
    kind, _, rest = token.partition(":")
    return rest.partition(":")[0] if kind == PrincipalKind.USER.value else ""


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind)


def _mac(secret: bytes, claim: str) -> str:
    return hmac.digest(secret, claim.encode(), hashlib.sha256).hex()


def load_or_create_secret(path: Path) -> bytes:
    """The cluster's secret, made on first use: 32 random bytes in hex, in a file only its owner can read.

    Raises MarinError when the file is not such a secret, or can be read by others.
    """
    try:
        # Exclusive creation under another name and a link: a reader never sees half a secret.
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        if not path.exists():
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                pass  # another process was first; its secret is the one
            finally:
                temporary.unlink()
            # Without it a power failure could leave the database and take the secret that all tokens are made with.
            sync_names(path)
        text = path.read_text().strip()
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise MarinError(f"cannot read or make the cluster's secret {path}: {error.strerror}") from error
    if mode & 0o077:
        raise MarinError(f"the cluster's secret {path} has mode {mode:o}, so others can read it: chmod 600 it")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise MarinError(f"the cluster's secret {path} is damaged: expected 64 hex digits; remove it to make a new one")
    return secret
