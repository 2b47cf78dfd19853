"""The identity of a lease's holder: unique ids, and the state of the holder's process on this machine."""

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
    """The state of a holder's process, as this machine sees it."""

    ALIVE = "alive"
    STOPPED = "stopped"
    """Suspended by SIGSTOP, Ctrl-Z or a debugger. It may resume at any time."""
    GONE = "gone"
    UNKNOWN = "unknown"
    """Another machine, a container with its own process ids, or an id chosen by the user."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of a process: its start in clock ticks since boot, and whether it has ended or is stopped."""

    started: int
    ended: bool
    stopped: bool


@dataclass(frozen=True)
class ProcessTable:
    """The processes of this machine, from /proc.

    Args:
        proc: The path of /proc.
    """

    proc: str = "/proc"

    def status(self, pid: int) -> ProcessStatus | None:
        """Return the state of a process; None if unknown."""
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
        """Return a hexadecimal name of this boot of the kernel (random each time) and this process namespace,
        or None.
        """
        try:
            with open(f"{self.proc}/sys/kernel/random/boot_id", "rb", buffering=0) as handle:
                boot = handle.read(64).decode("ascii", "replace").strip().replace("-", "")
            namespace = os.stat(f"{self.proc}/self/ns/pid").st_ino
        except OSError:
            return None
        return f"{boot}{namespace:x}" if _BOOT_ID.fullmatch(boot) else None


PROCESSES = ProcessTable()


def acquisition_id(processes: ProcessTable = PROCESSES) -> str:
    """Return a holder id that is unique to this process, thread and acquisition.

    The form is {host}-{pid}-{thread}-{place}.{started}-{random}, without the fourth part where /proc is missing.
    "place" names this boot of the kernel and the process namespace; "started" is the process's start in clock ticks
    since boot.
    """
    pid = os.getpid()
    return f"{os.uname().nodename}-{pid}-{threading.get_native_id()}{_where(pid, processes)}-{os.urandom(6).hex()}"


def holder_state(worker_id: str, processes: ProcessTable = PROCESSES) -> HolderState:
    """Return the state of the holder of an id from `acquisition_id`, as known to this machine."""
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
    """Return the process id in an id from `acquisition_id`; None for other ids."""
    match = _ID.fullmatch(worker_id)
    return None if match is None else int(match["pid"])


def host_of(worker_id: str) -> str | None:
    """Return the name of the machine in an id from `acquisition_id`; None for other ids."""
    match = _ID.fullmatch(worker_id)
    return None if match is None else match["node"]


def give_up(worker_id: str) -> None:
    """Record that this process no longer holds a lease although its lock file may still exist.

    Ids that people chose are not recorded: another process may hold a lease with the same one.
    """
    if _ID.fullmatch(worker_id):
        _given_up.add(worker_id)


@functools.lru_cache(maxsize=1)
def _where(pid: int, processes: ProcessTable) -> str:
    born, place = processes.status(pid), processes.place
    return f"-{place}.{born.started}" if born and place else ""
