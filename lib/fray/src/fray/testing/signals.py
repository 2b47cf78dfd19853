"""Signals between a test and its jobs, through files, wherever the jobs run."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from fray.testing.waiting import eventually

__all__ = ["Flag", "Tally", "eventually", "is_running"]


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie. Killed orphans can stay zombies.

    Reads Linux's /proc.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False
    return state != "Z"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, set while its file exists. It works across processes of one machine, and can be an argument of jobs."""

    path: str

    def set(self, text: str = "") -> None:
        """Set the flag. The file appears atomically with `text` in it."""
        partial = f"{self.path}.{os.getpid()}.{threading.get_ident()}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, self.path)

    def is_set(self) -> bool:
        return os.path.exists(self.path)

    def text(self) -> str:
        """Return the text of `set`."""
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until the flag is set. Raise AssertionError after `timeout` seconds."""
        eventually(self.is_set, f"{os.path.basename(self.path)} is raised", timeout)
        return True


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts events across processes: each appends a byte to a file."""

    path: str

    def add(self) -> int:
        """Count one more and return the new count."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, b"x")
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def count(self) -> int:
        """The current count."""
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0
