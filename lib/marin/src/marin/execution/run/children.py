"""Find, signal and await processes that steps started from this process, through /proc."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

# It ignores signals, and ends by itself when it is not used any more.
_LEFT_ALONE = b"resource_tracker"


@dataclass(frozen=True, slots=True)
class Process:
    """A process in /proc.

    Attributes:
        pid: Its id.
        parent: Its parent's id.
        session: Its session's id.
        started: Its start, in clock ticks since boot.
    """

    pid: int
    parent: int
    session: int
    started: int


def ticks_now() -> int:
    """Return the current time in the unit of `Process.started`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def processes_of_steps(
    processes: Sequence[Process], own: int, session: int, of_threads: frozenset[int], since: int
) -> list[Process]:
    """Return the processes of steps: children of their threads, started during the run, and their descendants.

    A function may start threads. Their children count if they are in this process's session. Daemons and the processes
    of jobs have their own sessions.

    Args:
        processes: All processes.
        own: This process's id.
        session: Its session.
        of_threads: The children of the steps' own threads.
        since: The start of the run, in clock ticks.
    """
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found = [
        child
        for child in children.get(own, ())
        if child.started >= since and (child.pid in of_threads or child.session == session)
    ]
    for process in found:
        found += children.get(process.pid, ())  # grows while it is gone through
    return found


class StepProcesses:
    """The processes of steps, through handles that detect reused ids. A context manager.

    Args:
        threads: The native ids of the steps' threads.
        since: The start of the run, in clock ticks.
        session: Children in this session also count. Defaults to this process's own; 0 for none.
    """

    def __init__(self, threads: Iterable[int], since: int, session: int | None = None) -> None:
        self._handles: dict[int, int] = {}
        of_threads = frozenset(pid for thread in threads for pid in _children_of_thread(thread))
        own, session = os.getpid(), os.getsid(0) if session is None else session
        for process in processes_of_steps(_all_processes(), own, session, of_threads, since):
            with contextlib.suppress(OSError):
                if _LEFT_ALONE not in _read(f"/proc/{process.pid}/cmdline"):
                    self._handles[process.pid] = os.pidfd_open(process.pid)

    @classmethod
    def of_threads(cls, threads: Iterable[int], since: int) -> StepProcesses:
        """Return only processes started by these threads themselves, not by threads that they started."""
        return cls(threads, since, session=0)

    def __enter__(self) -> StepProcesses:
        return self

    def __exit__(self, *exc: object) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def __bool__(self) -> bool:
        return bool(self._handles)

    @property
    def pids(self) -> list[int]:
        """Return the ids of processes not known to have ended."""
        return list(self._handles)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all."""
        for handle in self._handles.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number)

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended, and return whether they have."""
        deadline = time.monotonic() + seconds
        while self._handles:
            left = deadline - time.monotonic()
            # Not select(), which takes no descriptor above 1023.
            poll = select.poll()
            for handle in self._handles.values():
                poll.register(handle, select.POLLIN)
            ended = {handle for handle, _ in poll.poll(1000 * max(0.0, left))}
            for pid, handle in list(self._handles.items()):
                if handle in ended:
                    os.close(self._handles.pop(pid))
            if left <= 0:
                break
        return not self._handles


def _children_of_thread(thread: int) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        return [int(pid) for pid in _read(f"/proc/self/task/{thread}/children").split()]
    return []


def _all_processes() -> list[Process]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            # A process may end at any moment, even between opening its file and reading it.
            with contextlib.suppress(OSError, ValueError, IndexError):
                if name.isdigit():
                    # The name, in brackets, may have spaces and brackets of its own.
                    fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                    if fields[0] not in (b"Z", b"X"):
                        found.append(Process(int(name), int(fields[1]), int(fields[3]), int(fields[19])))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as handle:
        return handle.read()
