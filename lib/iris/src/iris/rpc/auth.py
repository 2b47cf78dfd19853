"""Who a caller is and what it may call.

A token is `<kind>:<name>:<HMAC-SHA256(secret, kind:name)>`: the controller keeps one secret and nothing per token.
Kinds: `u` a user, `w` a worker, `j` a job (given to its tasks, so that they can submit and watch children).
"""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from iris.domain.ids import user_of
from rigging.errors import Denied, MarinError


class PrincipalKind(StrEnum):
    USER = "u"
    WORKER = "w"
    JOB = "j"

    @property
    def word(self) -> str:
        return _KIND_WORDS[self]


_KIND_WORDS: Final = {PrincipalKind.USER: "user", PrincipalKind.WORKER: "worker", PrincipalKind.JOB: "job"}


class Unauthenticated(Denied):
    """The caller's token is missing or was not made by this cluster."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller: a user's name, a worker id or a job id."""

    kind: PrincipalKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.word} {self.name}"

    def check_submit(self, job_id: str) -> None:
        """Raise Denied unless this caller may submit `job_id`: a job only below itself."""
        if self.kind is PrincipalKind.JOB and not job_id.startswith(self.name + "/"):
            raise Denied(f"job {self.name} may submit only jobs below itself ({self.name}/...), not {job_id}")

    def check_access(self, entity_id: str) -> None:
        """Raise Denied unless this caller may see and stop `entity_id` (a job or task): a job only its user's."""
        if self.kind is not PrincipalKind.JOB:
            return
        tree = self.user_tree
        if entity_id != tree and not entity_id.startswith(tree + "/"):
            raise Denied(f"job {self.name} may use only jobs of its own user ({tree}/...), not {entity_id!r}")

    @property
    def user_tree(self) -> str:
        """The id prefix of everything of a job's user, e.g. `/alice`."""
        return "/" + user_of(self.name)


_JOB_METHODS: Final = frozenset(
    f"/iris.v1.JobService/{name}"
    for name in ("SubmitJob", "GetJob", "WaitJobs", "ListJobs", "ListTasks", "GetTask", "StopJob", "FetchLogs")
)
_BLOB_METHODS: Final = frozenset(
    f"/iris.v1.BlobService/{name}" for name in ("FindMissingBlobs", "UploadBlobs", "FetchBlobs")
)
_CLUSTER_METHODS: Final = frozenset(
    f"/iris.v1.ClusterService/{name}"
    for name in (
        *("Status", "Shutdown", "Query", "Checkpoint"),
        *("CordonWorker", "UncordonWorker", "SetBudget", "ListBudgets"),
    )
)

_ENDPOINT_METHODS: Final = frozenset(
    f"/iris.v1.EndpointService/{name}" for name in ("Register", "Unregister", "Resolve", "List", "Watch", "ActorKey")
)

METHODS_ALLOWED: Final[dict[PrincipalKind, frozenset[str]]] = {
    PrincipalKind.USER: _JOB_METHODS | _BLOB_METHODS | _CLUSTER_METHODS | _ENDPOINT_METHODS,
    PrincipalKind.WORKER: frozenset({"/iris.v1.WorkerService/Session", "/iris.v1.BlobService/FetchBlobs"}),
    PrincipalKind.JOB: _JOB_METHODS | _BLOB_METHODS | _ENDPOINT_METHODS,
}
"""Everything that is not listed is refused."""


def check_method(principal: Principal, method: str) -> None:
    """Raise Denied unless this kind of caller may call `method` (`/iris.v1.Service/Method`)."""
    if method not in METHODS_ALLOWED[principal.kind]:
        raise Denied(f"{principal} may not call {method.rpartition('.')[2]}")


def make_token(secret: bytes, kind: PrincipalKind, name: str) -> str:
    """The token by which `name` is known to the cluster that holds `secret`."""
    return f"{kind.value}:{name}:{_mac(secret, f'{kind.value}:{name}')}"


def verify_token(secret: bytes, token: str) -> Principal:
    """The principal a token was made for. Raises Unauthenticated on anything else."""
    claim, _, mac = token.rpartition(":")
    kind, _, name = claim.partition(":")
    if kind not in _KINDS or not name:
        raise Unauthenticated("the token is malformed: expected <u|w|j>:<name>:<signature>")
    if not hmac.compare_digest(mac.encode(), _mac(secret, claim).encode()):
        raise Unauthenticated(f"the token of {PrincipalKind(kind).word} {name} was not made by this cluster")
    return Principal(PrincipalKind(kind), name)


_KINDS: Final = frozenset(kind.value for kind in PrincipalKind)


def _mac(secret: bytes, claim: str) -> str:
    return hmac.new(secret, claim.encode(), hashlib.sha256).hexdigest()


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
