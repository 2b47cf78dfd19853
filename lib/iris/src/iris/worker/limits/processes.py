"""Measures the processes of attempts through /proc, for hosts without control groups."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_TICKS_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_DEEPEST: Final = 10_000


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat.

    Args:
        parent: The parent's pid.
        cpu_ms: Processor time, including reaped children.
        memory_bytes: Resident memory; shared memory counts for each process.
        threads: Number of threads; 0 for a zombie.
    """

    parent: int
    cpu_ms: int
    memory_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The total usage of the living processes of one attempt."""

    cpu_ms: int = 0
    memory_bytes: int = 0
    processes: int = 0

    def add(self, stat: ProcessStat) -> "Tally":
        """Return the tally with another process added."""
        return Tally(self.cpu_ms + stat.cpu_ms, self.memory_bytes + stat.memory_bytes, self.processes + stat.threads)


def read_table(proc: str = "/proc") -> dict[int, ProcessStat]:
    """Return all visible processes of this host."""
    table: dict[int, ProcessStat] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                descriptor = os.open(f"{proc}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # it has ended
            try:
                table[int(name)] = parse_stat(os.read(descriptor, 4096))
            except (OSError, ValueError, IndexError):
                continue
            finally:
                os.close(descriptor)
    return table


def parse_stat(line: bytes) -> ProcessStat:
    """Parse a line of /proc/PID/stat. Raises ValueError or IndexError if it is invalid."""
    # The second field is the program's name in parentheses, which may itself hold any character.
    words = line[line.rindex(b")") + 2 :].split()
    is_dead = words[0] in (b"Z", b"X")
    return ProcessStat(
        parent=int(words[1]),
        cpu_ms=int(sum(map(int, words[11:15])) * _TICKS_MS),
        memory_bytes=max(int(words[21]), 0) * _PAGE_BYTES,
        threads=0 if is_dead else int(words[17]),
    )


def tally(table: Mapping[int, ProcessStat], owners: Mapping[int, str]) -> dict[str, Tally]:
    """Return the usage of each owner's processes.

    Args:
        table: The result of `read_table`.
        owners: Owner by pid, for processes with a known owner. Other processes belong to the owner of their nearest
            known ancestor.
    """
    known: dict[int, str | None] = dict(owners)
    found: dict[str, Tally] = {}
    for pid, stat in table.items():
        owner = _owner_of(pid, table, known)
        if owner is not None:
            found[owner] = found.get(owner, Tally()).add(stat)
    return found


def _owner_of(pid: int, table: Mapping[int, ProcessStat], known: dict[int, str | None]) -> str | None:
    path: list[int] = []
    owner: str | None = None
    while len(path) < _DEEPEST:
        if pid in known:
            owner = known[pid]
            break
        stat = table.get(pid)
        if stat is None:
            break
        path.append(pid)
        pid = stat.parent
    for passed in path:
        known[passed] = owner
    return owner


def members(table: Mapping[int, ProcessStat], owners: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the living processes of each owner; arguments as in `tally`."""
    known: dict[int, str | None] = dict(owners)
    found: dict[str, list[int]] = {}
    for pid, stat in table.items():
        owner = _owner_of(pid, table, known) if stat.threads else None
        if owner is not None:
            found.setdefault(owner, []).append(pid)
    return found


def pids_of(owner: str, table: Mapping[int, ProcessStat], owners: Mapping[int, str]) -> set[int]:
    """Return the living processes of one owner; arguments as in `tally`."""
    known: dict[int, str | None] = dict(owners)
    return {pid for pid, stat in table.items() if stat.threads and _owner_of(pid, table, known) == owner}


def proportional_bytes(pids: set[int], proc: str = "/proc") -> int:
    """Return the memory of some processes, with shared memory counted once; 0 if unknown.

    Args:
        pids: The processes.
        proc: The proc file system.
    """
    total = 0
    for pid in pids:
        try:
            with open(f"{proc}/{pid}/smaps_rollup", "rb") as file:
                line = next((line for line in file if line.startswith(b"Pss:")), b"")
        except FileNotFoundError:
            continue  # it has ended
        except OSError:
            return 0
        if len(words := line.split()) == 3:
            total += int(words[1]) * 1024
    return total
