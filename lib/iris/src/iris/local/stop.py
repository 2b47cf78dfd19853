"""Ending a local cluster: politely through its controller, or by signal when that does not answer."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from iris.local.state import LocalPaths, lock_holder, wait_unlocked
from rigging.errors import Unavailable

LEAVE_SECONDS: Final = 20.0
_TERM_SECONDS: Final = 5.0
_OURS: Final = b"iris.local.daemon"


def wait_stopped(paths: LocalPaths, *, timeout: float = LEAVE_SECONDS) -> None:
    """Wait until controller and worker are gone. Raises Unavailable when they are not after `timeout` seconds each."""
    for what, lock in (("controller", paths.controller_lock), ("worker", paths.worker_lock)):
        if not wait_unlocked(lock, timeout=timeout):
            raise Unavailable(
                f"the local cluster's {what} (process {lock_holder(lock)}) did not end within {timeout:g} s; "
                "end it with `iris cluster stop --force`"
            )


def kill_cluster(paths: LocalPaths) -> list[int]:
    """End what still runs of the cluster by signal, the tasks of its worker with it; returns the pids signalled."""
    return [pid for lock in (paths.controller_lock, paths.worker_lock) if (pid := _end(lock)) is not None]


def stop_worker(paths: LocalPaths) -> bool:
    """Make the worker end and stop what it runs; says whether there was one."""
    return _end(paths.worker_lock) is not None


def _end(lock: Path) -> int | None:
    pid = lock_holder(lock)
    if pid is None or not _is_ours(pid):
        return None
    for number, patience in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _TERM_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_unlocked(lock, timeout=patience):
            break
    return pid


def _is_ours(pid: int) -> bool:
    """Guards against a pid that the system gave to somebody else meanwhile."""
    try:
        return _OURS in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
