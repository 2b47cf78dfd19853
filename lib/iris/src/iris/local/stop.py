"""Ending a local cluster: politely through its controller, or by signal when that does not answer."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris.local.state import LocalPaths, is_locked, lock_holder, wait_unlocked
from rigging.errors import Unavailable

LEAVE_SECONDS: Final = 20.0
TERM_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 1.0
_OURS: Final = (b"iris.local.daemon", b"iris.worker.guardian")


def wait_stopped(
    paths: LocalPaths,
    *,
    timeout: float = LEAVE_SECONDS,
    quiet: float = QUIET_SECONDS,
    on_wait: Callable[[str], None] | None = None,
) -> None:
    """Wait until all processes of the local cluster are gone.

    Args:
        paths: The files of the local cluster.
        timeout: Seconds for each.
        quiet: Seconds after which `on_wait` is called.
        on_wait: Called with one line for each process that takes longer.

    Raises:
        Unavailable: One is still there.
    """
    for what, lock in locks_of(paths).items():
        if wait_unlocked(lock, timeout=min(quiet, timeout)):
            continue
        if on_wait is not None:
            on_wait(f"waiting for the local cluster's {what} (process {lock_holder(lock)}) to end")
        if not wait_unlocked(lock, timeout=max(timeout - quiet, 0.0)):
            raise Unavailable(
                f"the local cluster's {what} (process {lock_holder(lock)}) did not end within {timeout:g} s; "
                "end it with `iris cluster stop --force`"
            )


def locks_of(paths: LocalPaths) -> dict[str, Path]:
    """The lock that each process of the cluster holds while it lives, in the order in which they end."""
    return {"controller": paths.controller_lock, "worker": paths.worker_lock, "guardian": paths.guardian_lock}


def wake(paths: LocalPaths) -> list[str]:
    """Let its processes go on that were suspended (SIGSTOP, Ctrl-Z), so that they can end in order; names them."""
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
    """End what still runs of the cluster by signal, the tasks of its worker with it; return the pids signalled."""
    ended = [pid for lock in locks_of(paths).values() if (pid := _end(lock, term_seconds)) is not None]
    _end_leftovers(paths)
    return ended


def stop_worker(paths: LocalPaths) -> bool:
    """Make the worker end and stop what it runs; says whether there was one."""
    found = [_end(lock, TERM_SECONDS) is not None for lock in (paths.worker_lock, paths.guardian_lock)]
    return any(found)


def _end_leftovers(paths: LocalPaths) -> None:
    """End tasks whose guardian died before them."""
    from iris.worker.guardian.leftovers import end_leftovers

    if paths.worker_dir.is_dir() and not is_locked(paths.guardian_lock):
        end_leftovers(paths.worker_dir)


def _end(lock: Path, term_seconds: float) -> int | None:
    pid = lock_holder(lock)
    if pid is None or not _is_ours(pid):
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)  # one that is suspended would not hear of it
        if wait_unlocked(lock, timeout=term_seconds):
            break
    return pid


def _is_ours(pid: int) -> bool:
    """Guard against a pid that the system gave to another process meanwhile."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(ours in command for ours in _OURS)
