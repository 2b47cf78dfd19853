"""Who holds a lease: ids that no two acquisitions share, and what this machine knows of the process that made one."""

import functools
import os
import re
import threading
from dataclasses import dataclass
from enum import StrEnum

_ID = re.compile(r"(?P<node>.+)-(?P<pid>\d+)-\d+-(?P<place>[0-9a-f]+)\.(?P<started>\d+)-[0-9a-f]{12}")
_BOOT_ID = re.compile("[0-9a-f]{32}")

# Leases that this process gave up although it could not remove the lock file.
_given_up: set[str] = set()


class HolderState(StrEnum):
    """State of the process that took a lease, as this machine sees it."""

    ALIVE = "alive"
    STOPPED = "stopped"
    """By SIGSTOP, Ctrl-Z or a debugger: it does nothing now, and may go on at any time."""
    GONE = "gone"
    UNKNOWN = "unknown"
    """Another machine, a container with process ids of its own, or an id that people chose."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """State of a process: when it began, in clock ticks since boot, and whether it has ended or is stopped."""

    started: int
    ended: bool
    stopped: bool


@dataclass(frozen=True)
class ProcessTable:
    """The processes of this machine, as /proc shows them.

    Args:
        proc: Where /proc is.
    """

    proc: str = "/proc"

    def status(self, pid: int) -> ProcessStatus | None:
        """Return the state of a process; None when nothing is told of it."""
        try:
            with open(f"{self.proc}/{pid}/stat", "rb", buffering=0) as handle:
                content = handle.read(4096)
        except OSError:
            return None
        # The name, in brackets, may have spaces and brackets of its own.
        fields = content.rpartition(b")")[2].split()
        if len(fields) < 20:
            return None
        # Killed but not yet waited for by its parent; the main thread alone may have ended while others run on.
        ended = fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
        return ProcessStatus(started=int(fields[19]), ended=ended, stopped=fields[0] in (b"T", b"t"))

    @functools.cached_property
    def place(self) -> str | None:
        """A hexadecimal name of this boot of the kernel (random at each) and this process namespace, or None."""
        try:
            with open(f"{self.proc}/sys/kernel/random/boot_id", "rb", buffering=0) as handle:
                boot = handle.read(64).decode("ascii", "replace").strip().replace("-", "")
            namespace = os.stat(f"{self.proc}/self/ns/pid").st_ino
        except OSError:
            return None
        return f"{boot}{namespace:x}" if _BOOT_ID.fullmatch(boot) else None


PROCESSES = ProcessTable()


def acquisition_id(processes: ProcessTable = PROCESSES) -> str:
    """Return a holder id that no other process, thread or acquisition has.

    It is {host}-{pid}-{thread}-{place}.{started}-{random}, or without the fourth part where the system does not tell:
    place names this boot of this kernel and the process namespace, started is when the process began, in clock ticks.
    """
    pid = os.getpid()
    return f"{os.uname().nodename}-{pid}-{threading.get_native_id()}{_where(pid, processes)}-{os.urandom(6).hex()}"


def holder_state(worker_id: str, processes: ProcessTable = PROCESSES) -> HolderState:
    """Return what this machine knows of the holder whose id `acquisition_id` made."""
    if worker_id in _given_up:
        return HolderState.GONE
    match = _ID.fullmatch(worker_id)
    if match is None or processes.place is None or match["place"] != processes.place:
        return HolderState.UNKNOWN
    # Machines restored from one image share a boot, and few of them a name as well.
    gone = HolderState.GONE if match["node"] == os.uname().nodename else HolderState.UNKNOWN
    pid = int(match["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return gone
    except OSError:
        pass  # it exists and belongs to another user
    found = processes.status(pid)
    if found is None:
        return HolderState.UNKNOWN
    if found.ended or found.started != int(match["started"]):
        return gone
    return HolderState.STOPPED if found.stopped else HolderState.ALIVE


def process_of(worker_id: str) -> int | None:
    """Return the process id in an id that `acquisition_id` made; None of others."""
    match = _ID.fullmatch(worker_id)
    return None if match is None else int(match["pid"])


def give_up(worker_id: str) -> None:
    """Note that this process does not hold a lease any more although its lock file may still be there.

    Of an id that people chose nothing is noted: another process may hold a lease by the same one.
    """
    if _ID.fullmatch(worker_id):
        _given_up.add(worker_id)


@functools.lru_cache(maxsize=1)
def _where(pid: int, processes: ProcessTable) -> str:
    born, place = processes.status(pid), processes.place
    return f"-{place}.{born.started}" if born and place else ""
