"""The locks of `create_lock` under their older names, one per kind of storage."""

import functools
import os
import threading

from rigging.errors import InvalidRequest
from rigging.filesystem.location import Url, local_path, url_scheme
from rigging.lease.base import LeaseLock
from rigging.lease.holding import store_of


def default_worker_id() -> str:
    """Return an id that is unique to this thread of this process: {host}-{pid}-{thread}-{random}."""
    pid = os.getpid()
    return f"{os.uname().nodename}-{pid}-{threading.get_ident()}-{_of_process(pid)}"


class FsspecLease(LeaseLock):
    """A lock on the lease at any path, as exclusive as its storage allows.

    Args:
        lock_path: The lock file, as in `create_lock`.
        worker_id: The holder's identity, which may acquire its own lease again. Defaults to this thread's.

    Attributes:
        lock_path: As given.
    """

    #: Schemes of the paths that this kind takes; None for any, "" for plain paths.
    schemes: frozenset[str] | None = None

    def __init__(self, lock_path: Url, worker_id: str | None = None) -> None:
        scheme = "" if local_path(lock_path) is not None else url_scheme(lock_path)
        if self.schemes is not None and scheme not in self.schemes:
            kinds = ", ".join(f"{kind}://" if kind else "a local path" for kind in sorted(self.schemes))
            raise InvalidRequest(f"{type(self).__name__}({os.fspath(lock_path)!r}): takes {kinds}; or use create_lock")
        super().__init__(store_of(lock_path), worker_id or default_worker_id())
        self.lock_path = os.fspath(lock_path)


class LocalFileLease(FsspecLease):
    """A lock on a lease on local disk, exclusive among the processes of this machine."""

    schemes = frozenset({""})


class GcsLease(FsspecLease):
    """A lock on a lease on GCS."""

    schemes = frozenset({"gs", "gcs"})


class S3Lease(FsspecLease):
    """A lock on a lease on S3."""

    schemes = frozenset({"s3", "s3a"})


@functools.lru_cache(maxsize=1)
def _of_process(pid: int) -> str:
    # Containers may share a host name, and all have a process 1.
    del pid
    return os.urandom(4).hex()
