"""The files of a local cluster: its state, the locks of its processes, and the record for clients."""

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from iris.rpc.protocol import SOCKET_NAME
from rigging.errors import Denied, InvalidRequest, MarinError, Unavailable
from rigging.filesystem.private import check_own_folder, read_private, write_private
from rigging.process.file_lock import open_lock_file, try_lock

STATE_DIR_ENV: Final = "IRIS_STATE_DIR"
WORKER_ID: Final = "local"
"""The id of the embedded cluster's worker."""
_HOST_SUFFIX: Final = "@local"
_LOCK_PAUSE: Final = 0.01
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """The files of the local cluster whose state directory is `root`."""

    root: Path

    @property
    def record(self) -> Path:
        """The address and tokens of the controller (`ClusterRecord`)."""
        return self.root / "cluster.json"

    @property
    def controller_lock(self) -> Path:
        """The lock file of the controller, with its pid."""
        return self.root / "controller.lock"

    @property
    def start_lock(self) -> Path:
        """The lock file of the command that starts a controller."""
        return self.root / "start.lock"

    @property
    def socket(self) -> Path:
        """The controller's socket for processes of this machine; older controllers have none."""
        return self.root / SOCKET_NAME

    @property
    def controller_log(self) -> Path:
        return self.root / "controller.log"

    @property
    def worker_log(self) -> Path:
        return self.root / "worker.log"

    @property
    def worker_dir(self) -> Path:
        return self.root / "worker"

    @property
    def worker_lock(self) -> Path:
        """The lock file of the worker, with its pid."""
        return self.worker_dir / "worker.lock"

    @property
    def guardian_lock(self) -> Path:
        """The lock file of the worker's guardian, with its pid."""
        return self.worker_dir / "guardian.lock"

    @property
    def hosts(self) -> Path:
        """The directories of the hosts of slices, by name; empty for the embedded cluster."""
        return self.root / "hosts"

    def host(self, name: str) -> "HostPaths":
        """Return the files of one host of a slice."""
        return HostPaths(self.hosts / name)

    def known_hosts(self) -> "list[HostPaths]":
        """Return the hosts of slices with files here, running or not."""
        return [HostPaths(path) for path in sorted(self.hosts.iterdir())] if self.hosts.is_dir() else []

    def make(self) -> None:
        """Create the directory, for this user alone.

        Raises:
            Denied: The directory belongs to another user.
            InvalidRequest: The directory cannot be created.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.root.stat()
            if info.st_uid != os.getuid():
                raise Denied(f"the state directory {self.root} belongs to uid {info.st_uid}; set {STATE_DIR_ENV}")
            self.root.chmod(0o700)
        except OSError as error:
            if isinstance(error, MarinError):
                raise
            raise InvalidRequest(
                f"cannot use the state directory {self.root}: {error.strerror}; set {STATE_DIR_ENV} to another"
            ) from None


@dataclass(frozen=True, slots=True)
class HostPaths:
    """The files of one host of a slice: a worker that simulates a separate machine."""

    worker_dir: Path

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.worker_dir.name

    @property
    def description(self) -> Path:
        """The file with the resources and attributes of its worker; exists as long as the host is wanted."""
        return self.worker_dir / "host.json"

    @property
    def worker_log(self) -> Path:
        return self.worker_dir / "worker.log"

    @property
    def worker_lock(self) -> Path:
        """The lock file of its worker, with its pid."""
        return self.worker_dir / "worker.lock"

    @property
    def guardian_lock(self) -> Path:
        """The lock file of the worker's guardian, with its pid."""
        return self.worker_dir / "guardian.lock"


def host_worker_id(name: str) -> str:
    """Return the worker id of a host of a slice of a local cluster."""
    return name + _HOST_SUFFIX


def local_root(worker_id: str, work_dir: str) -> Path | None:
    """Return the state directory of a worker's local cluster; None if the worker belongs to no local cluster.

    Args:
        worker_id: The worker's id.
        work_dir: Its directory, as seen by its tasks.
    """
    if not work_dir:
        return None
    if worker_id == WORKER_ID:
        return Path(work_dir).parent
    return Path(work_dir).parents[1] if worker_id.endswith(_HOST_SUFFIX) else None


def is_local_worker(worker_id: str) -> bool:
    """Return whether a worker id belongs to a local cluster, whose workers see the files of its user's machine."""
    return worker_id == WORKER_ID or worker_id.endswith(_HOST_SUFFIX)


def named_paths(environ: Mapping[str, str], name: str) -> LocalPaths:
    """Return the files of the local run of the cluster file `name`, next to the embedded cluster's.

    Raises InvalidRequest for an invalid directory name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"cluster name {name!r}; allowed are letters, digits and . _ - after a letter or digit")
    embedded = local_paths(environ).root
    return LocalPaths(embedded.with_name(f"{embedded.name}-clusters") / name)


def local_paths(environ: Mapping[str, str]) -> LocalPaths:
    """Return the state directory: IRIS_STATE_DIR, else iris/local below XDG_STATE_HOME or ~/.local/state."""
    explicit = environ.get(STATE_DIR_ENV)
    if explicit:
        return LocalPaths(Path(explicit).expanduser().absolute())
    base = environ.get("XDG_STATE_HOME")
    # The specification says to ignore a relative one.
    if not base or not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return LocalPaths(Path(base) / "iris" / "local")


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """Address and tokens of a local controller, in a file that only its user can read.

    Args:
        ready: Whether a worker has joined, so that the cluster can run jobs.
        worker_trouble: Why its worker does not start; empty if it starts. The start is retried.
        token: The user's admin token.
        worker_token: The local worker's token.
        idle_exit_seconds: Time without work until it exits; 0 for never.
    """

    pid: int
    address: str
    token: str
    worker_token: str
    protocol_version: int
    version: str
    started_at_ms: int
    idle_exit_seconds: float
    ready: bool
    worker_trouble: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the start of the worker has succeeded or failed."""
        return self.ready or bool(self.worker_trouble)

    def __repr__(self) -> str:
        return f"ClusterRecord(pid={self.pid}, address={self.address!r}, ready={self.ready})"


def write_record(paths: LocalPaths, record: ClusterRecord) -> None:
    """Replace the record atomically."""
    write_private(paths.record, json.dumps(asdict(record), indent=1).encode())


def read_record(paths: LocalPaths) -> ClusterRecord | None:
    """Return the record; None if it is missing or damaged.

    Raises:
        Denied: Another user could have written the record, and would receive jobs and tokens.
        Unavailable: The record cannot be read.
    """
    try:
        found = read_private(paths.record, "the record of the local cluster")
        if found is None:
            return None
        # The socket is beside it.
        check_own_folder(paths.root, "the state directory", "remove it")
        fields = json.loads(found)
        known = {field.name for field in dataclasses.fields(ClusterRecord)}
        return ClusterRecord(**{name: value for name, value in fields.items() if name in known})
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
    except Denied as denied:
        raise Denied(f"{denied}; or set {STATE_DIR_ENV} to a directory of your own") from None
    except OSError as error:
        remedy = f"; set {STATE_DIR_ENV} to a directory of your own" if isinstance(error, PermissionError) else ""
        raise Unavailable(f"cannot read {paths.record}: {error.strerror}{remedy}") from None


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. The test acquires the lock for a moment, so other processes must try
    more than once.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> int | None:
    """Return the pid that a lock's holder wrote to it; None if unlocked or unknown."""
    if not is_locked(path):
        return None
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None


@contextlib.contextmanager
def held_lock(path: Path, *, timeout: float) -> Iterator[None]:
    """Context manager: hold a lock file with this process's pid. The system releases the lock when the process exits.

    Raises:
        Unavailable: Another process held the lock for `timeout` seconds, or the file cannot be written (a full disk).
    """
    descriptor = open_lock_file(path)
    try:
        deadline = time.monotonic() + timeout
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                raise Unavailable(f"process {holder} holds {path} and did not release it within {timeout:g} s")
            time.sleep(_LOCK_PAUSE)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}") from None
        yield
    finally:
        os.close(descriptor)


def wait_unlocked(path: Path, *, timeout: float) -> bool:
    """Wait until the lock is free; return False after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while is_locked(path):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOCK_PAUSE)
    return True
