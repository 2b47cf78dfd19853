"""Reads a task's progress file, and makes the task dump its threads.

A task touches the file (`iris.report_progress`), and each of its Python processes adds a line once: its pid and the
signal that makes it dump its threads to stderr. The task owns the file, so its content is not trusted: signals are sent
only to processes of that attempt that handle them.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 4096
_ATTEMPT: Final = b"IRIS_ATTEMPT_ID="


def touched_ns(path: str) -> int:
    """Return when the file was last touched, in ns; 0 if the file does not exist."""
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def dump_threads(path: str, attempt_id: str, proc: Path = Path("/proc")) -> list[int]:
    """Signal the Python processes of an attempt to dump their threads; return their pids.

    Args:
        path: Its progress file.
        attempt_id: The attempt.
        proc: The proc file system.
    """
    asked = []
    for pid, number in _registered(path):
        if pid not in asked and _is_of(proc / str(pid), attempt_id) and _catches(proc / str(pid), number):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                asked.append(pid)
    return asked


def _registered(path: str) -> list[tuple[int, int]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.read(descriptor, _MOST_BYTES)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    found = []
    for line in data.decode("ascii", errors="replace").splitlines():
        words = line.split()
        if len(words) == 2 and all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
            pid, number = map(int, words)
            if pid > 1 and signal.SIGRTMIN <= number <= signal.SIGRTMAX:
                found.append((pid, number))
    return found


def _is_of(process: Path, attempt_id: str) -> bool:
    try:
        return _ATTEMPT + attempt_id.encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _catches(process: Path, number: int) -> bool:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return False
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (number - 1) & 1)
