"""Looks at a process and prints the result: `python -P -m iris.inspection.program WHAT PID SECONDS [ATTEMPT]`."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from rigging.log_tail import log_tail
from rigging.redaction import redact_string

_ATTEMPT: Final = "IRIS_ATTEMPT_ID"
_LOG_LINES: Final = 1000
_LONGEST_COMMAND: Final = 400
_EXTRA: Final = "install marin-iris[profile] on its host"


class CannotLook(Exception):
    """The process cannot be looked at; the message is for the user."""


def main(argv: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    what, pid, seconds, attempt = argv[0], int(argv[1]), int(argv[2]), (*argv, "")[3]
    try:
        if what == "status":
            print(json.dumps(statuses_of(processes_of(pid, attempt))))
        elif what == "logs":
            print("\n".join(map(redact_string, own_log(pid))))
        else:
            target = python_of(processes_of(pid, attempt))
            sys.stdout.flush()
            profile(what, target, seconds)
    except (CannotLook, psutil.Error, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def processes_of(pid: int, attempt: str = "") -> list[psutil.Process]:
    """Return a process and its descendants, and an attempt's other processes, e.g. in its container.

    Args:
        pid: The first process.
        attempt: The attempt; empty for none.
    """
    first = psutil.Process(pid)
    found = {item.pid: item for item in (first, *first.children(recursive=True))}
    if attempt:
        mark = f"{_ATTEMPT}={attempt}".encode()
        for item in psutil.process_iter():
            if item.pid not in found and mark in _variables(item.pid):
                found[item.pid] = item
    return list(found.values())


def statuses_of(processes: Iterable[psutil.Process]) -> list[dict[str, Any]]:
    """Return what is shown of processes, without those that have ended meanwhile."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # or a zombie
            found.append(status_of(process))
    return found


def status_of(process: psutil.Process) -> dict[str, Any]:
    """Return what is shown of a process. Secrets in its command line are masked."""
    with process.oneshot():
        times = process.cpu_times()
        try:
            files: int | None = process.num_fds()
        except psutil.Error:
            files = None
        return {
            "pid": process.pid,
            "command": redact_string(shlex.join(process.cmdline()) or process.name())[:_LONGEST_COMMAND],
            "memory_bytes": process.memory_info().rss,
            "cpu_seconds": round(times.user + times.system, 2),
            "threads": process.num_threads(),
            "open_files": files,
            "started_at_ms": int(process.create_time() * 1000),
        }


def own_log(pid: int) -> list[str]:
    """Return the last lines of the file to which a process writes its stderr. Raise CannotLook if that is no file."""
    path = os.readlink(f"/proc/{pid}/fd/2")
    if not os.path.isfile(path):
        raise CannotLook(f"process {pid} does not log to a file (a service logs to the journal: journalctl)")
    return list(log_tail(Path(path), 0, _LOG_LINES))


def python_of(processes: Iterable[psutil.Process]) -> int:
    """Return the pid of the first Python process. Raise CannotLook if there is none."""
    for process in processes:
        names = {os.path.basename(word) for word in (process.name(), *_command(process)[:1])}
        if any(name.startswith("python") for name in names):
            return process.pid
    raise CannotLook("none of its processes is a Python interpreter")


def profile(what: str, pid: int, seconds: int) -> None:
    """Write a profile of a Python process to stdout. Raise CannotLook if a program is missing or fails.

    Args:
        what: "threads" for the stack of each thread, "cpu" for a flame graph (SVG), "mem" for one of memory (HTML).
        pid: The process.
        seconds: Duration of "cpu" and "mem".
    """
    if what == "threads":
        print(redact_string(_run((_program("py-spy"), "dump", "--pid", str(pid)))), end="")  # names its command line
        return
    with tempfile.TemporaryDirectory(prefix="iris-profile-") as folder:
        result = os.path.join(folder, "result")
        if what == "cpu":
            words = ("record", "--nonblocking", "--pid", str(pid), "--duration", str(seconds), "--output", result)
            try:
                _run((_program("py-spy"), *words))
            except CannotLook as error:
                if "No stack counts" in str(error):
                    raise CannotLook(f"process {pid} used no processor time within {seconds} s") from None
                raise
        else:
            memray = _program("memray")
            if not any(map(shutil.which, ("gdb", "lldb"))):
                raise CannotLook("memray needs gdb or lldb on its host")
            traced = os.path.join(folder, "trace")
            _run((memray, "attach", "--output", traced, "--duration", str(seconds), str(pid)))
            _wait_for(traced, seconds)
            _run((memray, "flamegraph", "--output", result, traced))
        with open(result, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def _wait_for(path: str, seconds: int) -> None:
    """Wait until a trace is complete: memray returns at once, and the process closes the file at the end."""
    time.sleep(seconds + 1)
    if not os.path.exists(path):
        raise CannotLook("the process wrote no trace: memray must be installed in its environment, too")


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise CannotLook(f"{name} is not installed there: {_EXTRA}")
    return found


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        words = (done.stderr or done.stdout).strip()
        raise CannotLook(f"{os.path.basename(argv[0])} failed: {words[-1000:] or f'exit code {done.returncode}'}")
    return done.stdout


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []  # it has ended


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
