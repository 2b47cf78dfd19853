"""The files with the tokens of tasks for the controller, readable by their owner only."""

import contextlib
import os

from iris.rpc.auth import attempt_token
from iris.worker.paths import WorkPaths
from iris.worker.types import StartRequest


class TokenFiles:
    """Keeps tokens on disk as long as this worker knows the attempts that use them.

    An attempt's token is revoked when the attempt ends. First attempts of a job with many tasks share the job's token,
    because one file each would be too expensive. The controller identifies them by the name in their calls.
    """

    def __init__(self, paths: WorkPaths) -> None:
        self._paths = paths
        self._written: dict[str, tuple[str, str]] = {}
        self._users: dict[str, int] = {}

    def hold(self, request: StartRequest) -> None:
        """Add an attempt."""
        holder = _holder(request)
        self._users[holder] = self._users.get(holder, 0) + 1

    def path(self, request: StartRequest) -> str:
        """Return the attempt's token file, creating it if necessary. Raises OSError."""
        holder = _holder(request)
        token = request.launch.token
        written = self._written.get(holder)
        if written is not None and written[0] == token:
            return written[1]
        path = self._paths.token(holder)
        own = token if holder == request.launch.job_id else attempt_token(token, request.attempt_id)
        write_private(path, own.encode(), self._paths.uid)
        self._written[holder] = (token, path)
        return path

    def release(self, request: StartRequest) -> None:
        """Remove an attempt, and its token file if no other attempt uses it."""
        holder = _holder(request)
        users = self._users.get(holder, 0) - 1
        if users > 0:
            self._users[holder] = users
            return
        self._users.pop(holder, None)
        self._written.pop(holder, None)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._paths.token(holder))


def write_private(path: str, content: bytes, owner: int) -> None:
    """Write or replace the file `path` with this content and owner (0 for this process's uid). Raises OSError."""
    new = f"{path}!"  # no id has this character
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, content)
        if owner:
            os.fchown(descriptor, owner, owner)
    finally:
        os.close(descriptor)
    os.rename(new, path)


def _holder(request: StartRequest) -> str:
    """Return the id that the attempt's token names."""
    alone = request.launch.replicas == 1 or not request.attempt_id.endswith(":0")
    return request.attempt_id if alone else request.launch.job_id
