"""A worker's credential: created at its first start, stored in its work directory; the controller stores its digest."""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from iris.rpc.auth import credential_token
from iris.rpc.controller_address import ControllerAddress
from rigging.errors import Conflict, Denied, InvalidRequest
from rigging.filesystem.private import read_private, write_private

FILE_NAME: Final = "credential.json"


@dataclass(frozen=True, slots=True)
class Credential:
    """Proof that a process is the worker with this name.

    Args:
        worker_id: The name.
        secret: The secret; sent only after the controller's certificate is verified.
        ca_sha256: Digest of the certificate authority to trust; empty if the cluster has no TLS.
        joined: Whether the controller has accepted the credential.
    """

    worker_id: str
    secret: str = field(repr=False)
    ca_sha256: str
    joined: bool = False

    @property
    def sha256(self) -> str:
        """The digest that the controller stores."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def address(self, controller: str, insecure: bool) -> ControllerAddress:
        """Return the controller's address with this credential, for "host:port"; `insecure` as in ControllerAddress."""
        token = credential_token(self.worker_id, self.secret)
        return ControllerAddress(controller, token, ca_sha256=self.ca_sha256, insecure=insecure)


def new_credential(worker_id: str, ca_sha256: str) -> Credential:
    """Create a credential that no controller knows yet."""
    return Credential(worker_id, secrets.token_urlsafe(32), ca_sha256)


def read_credential(work_dir: Path) -> Credential | None:
    """Return the credential in a work directory; None if the worker has never tried to join.

    Raises:
        InvalidRequest: The file is damaged.
        Denied: Another user owns the file or can read it.
    """
    place = work_dir / FILE_NAME
    try:
        content = read_private(place, "the worker's credential")
        return None if content is None else Credential(**json.loads(content))
    except OSError as error:
        if isinstance(error, Denied):
            raise
        raise InvalidRequest(f"cannot read {place}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise InvalidRequest(f"{place} is damaged: remove it, and give this worker a new join token") from None


def write_credential(work_dir: Path, credential: Credential) -> None:
    """Store a credential, readable by this user only. Raises OSError."""
    write_private(work_dir / FILE_NAME, json.dumps(asdict(credential)).encode(), durable=True)


def check_owner(found: Credential, worker_id: str, work_dir: Path) -> None:
    """Raise Conflict if a work directory belongs to another worker.

    Args:
        found: The credential in the work directory.
        worker_id: The worker that wants to use the directory.
        work_dir: The directory, named in the error.
    """
    if worker_id and found.worker_id != worker_id:
        raise Conflict(
            f"{work_dir} belongs to the worker {found.worker_id!r}: start it under that name, or give {worker_id!r} "
            "its own --work-dir"
        )


def accepted(credential: Credential) -> Credential:
    """Return a copy marked as accepted by the controller."""
    return replace(credential, joined=True)
