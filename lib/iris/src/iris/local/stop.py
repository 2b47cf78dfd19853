"""Stops a local cluster, through its controller or, if that does not answer, with signals."""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.local.state import HostPaths, LocalPaths, is_locked, lock_holder, wait_unlocked
from iris.worker.connection.credential import FILE_NAME as CREDENTIAL_FILE
from iris.worker.host.removal import remove_tree
from rigging.errors import InvalidRequest, Unavailable

LEAVE_SECONDS: Final = 20.0
TERM_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 1.0
_OURS: Final = (b"iris.local.daemon", b"iris.worker.guardian", b"\0worker\0start\0")


def wait_stopped(
    paths: LocalPaths,
    *,
    timeout: float = LEAVE_SECONDS,
    quiet: float = QUIET_SECONDS,
    on_wait: Callable[[str], None] | None = None,
) -> None:
    """Wait until all processes of the local cluster have exited.

    Args:
        paths: The files of the local cluster.
        timeout: Timeout in seconds for each process.
        quiet: Seconds after which `on_wait` is called.
        on_wait: Called with one line for each process that takes longer than `quiet`.

    Raises:
        Unavailable: A process is still running.
    """
    for what, lock in locks_of(paths).items():
        if wait_unlocked(lock, timeout=min(quiet, timeout)):
            continue
        if on_wait is not None:
            on_wait(f"waiting for the local cluster's {what} (process {lock_holder(lock)}) to end")
        if not wait_unlocked(lock, timeout=max(timeout - quiet, 0.0)):
            raise Unavailable(
                f"the local cluster's {what} (process {lock_holder(lock)}) did not exit within {timeout:g} s; "
                "kill it with `iris cluster stop --force`"
            )


def locks_of(paths: LocalPaths) -> dict[str, Path]:
    """Return the lock of each process of the cluster, in the order in which they end."""
    own = {"controller": paths.controller_lock, "worker": paths.worker_lock, "guardian": paths.guardian_lock}
    hosts = paths.known_hosts()
    workers = {f"worker {host.name}": host.worker_lock for host in hosts}
    return own | workers | {f"guardian of {host.name}": host.guardian_lock for host in hosts}


@dataclass(frozen=True)
class ClusterProcesses:
    """The processes of a local cluster, running or not.

    Args:
        paths: The files of the local cluster.
    """

    paths: LocalPaths

    def holders(self) -> dict[str, int]:
        """Return the pid of each running process, by its role in the cluster."""
        found = {what: lock_holder(lock) for what, lock in locks_of(self.paths).items()}
        return {what: pid for what, pid in found.items() if pid is not None}

    def wake(self) -> list[str]:
        """Call `wake`."""
        return wake(self.paths)

    def wait_stopped(self, on_wait: Callable[[str], None]) -> None:
        """Call `wait_stopped`."""
        wait_stopped(self.paths, on_wait=on_wait)

    def kill(self) -> None:
        """Call `kill_cluster`."""
        kill_cluster(self.paths)


def wake(paths: LocalPaths) -> list[str]:
    """Resume suspended processes (SIGSTOP, Ctrl-Z), so that they can end gracefully; return their names."""
    woken = []
    for what, lock in locks_of(paths).items():
        pid = lock_holder(lock)
        if pid is None or not _is_ours(pid):
            continue
        if _is_suspended(pid):
            woken.append(f"{what} (process {pid})")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)  # to all: a stop that was just sent may not be seen yet
    return woken


def _is_suspended(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] == "T"


def kill_cluster(paths: LocalPaths, term_seconds: float = TERM_SECONDS) -> list[int]:
    """Kill the remaining processes of the cluster, including tasks; return the signalled pids."""
    locks = locks_of(paths)
    # The controller first, then what it has just started: a worker that takes its lock only now would outlive them all.
    first = _end(locks.pop("controller"), term_seconds)
    starting = _end_starting(paths)
    others = [_end(lock, term_seconds) for lock in locks.values()]
    _end_leftovers(paths)
    return [pid for pid in (first, *starting, *others) if pid is not None]


def _end_starting(paths: LocalPaths) -> list[int]:
    """Kill starting workers of this cluster, which have no lock and no tasks yet; return their pids."""
    holders = {lock_holder(lock) for lock in locks_of(paths).values()}
    ended = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) in holders or not _starts_for(place, paths):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(place.name), signal.SIGKILL)
            ended.append(int(place.name))
    return ended


def _starts_for(process: Path, paths: LocalPaths) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    place = words.index(b"--state-dir") + 1 if b"--state-dir" in words else len(words)
    is_worker = words[place - 3 : place - 1] in ([b"iris.local.daemon", b"worker"], [b"iris.local.daemon", b"host"])
    return is_worker and words[place : place + 1] == [os.fsencode(paths.root)]


def stop_worker(paths: LocalPaths) -> bool:
    """Stop the workers and their tasks; return whether a worker was running."""
    locks = [lock for what, lock in locks_of(paths).items() if what != "controller"]
    ended = [lock for lock in locks if _end(lock, TERM_SECONDS) is not None]
    return bool(ended)


def stop_host(host: HostPaths) -> None:
    """Stop the worker of one host and its tasks."""
    for lock in (host.worker_lock, host.guardian_lock):
        _end(lock, TERM_SECONDS)


def stop_worker_in(work_dir: Path, *, remove: bool = False) -> bool:
    """Stop the worker of a work directory and all of its tasks; return whether a process was running.

    Args:
        work_dir: The directory.
        remove: Also remove the directory.

    Raises:
        InvalidRequest: The directory is no worker's.
    """
    host = HostPaths(work_dir)
    content = {path.name for path in work_dir.iterdir()} if work_dir.is_dir() else set()
    if content and not content & {host.worker_lock.name, CREDENTIAL_FILE}:
        raise InvalidRequest(f"{work_dir} is no work directory of a worker: give the --work-dir of its start")
    ended = [_end(lock, LEAVE_SECONDS) for lock in (host.worker_lock, host.guardian_lock)]
    if work_dir.is_dir() and not is_locked(host.guardian_lock):
        _end_tasks_in(work_dir)
    if remove and content:
        remove_tree(str(work_dir))
    return any(pid is not None for pid in ended)


def _end_leftovers(paths: LocalPaths) -> None:
    """Kill tasks whose guardian has died."""
    hosts = [(host.worker_dir, host.guardian_lock) for host in paths.known_hosts()]
    for work_dir, guardian_lock in ((paths.worker_dir, paths.guardian_lock), *hosts):
        if work_dir.is_dir() and not is_locked(guardian_lock):
            _end_tasks_in(work_dir)


def _end_tasks_in(work_dir: Path) -> None:
    from iris.worker.strays.leftovers import end_leftovers

    end_leftovers(work_dir)


def _end(lock: Path, term_seconds: float) -> int | None:
    pid = lock_holder(lock)
    if pid is None:
        return None
    if not _is_ours(pid):
        # One that ends already has no command line any more, and for a moment its lock still.
        wait_unlocked(lock, timeout=term_seconds)
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)  # one that is suspended would not hear of it
        if wait_unlocked(lock, timeout=term_seconds):
            break
    return pid


def _is_ours(pid: int) -> bool:
    """Return whether a pid still belongs to the cluster, because the system may have reused it."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(ours in command for ours in _OURS)
