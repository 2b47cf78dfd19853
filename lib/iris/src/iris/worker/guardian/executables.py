"""Finding the executable of a command, starting it by fork, and explaining why it could not be started."""

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from iris.worker.processes import NOT_FOUND, ProcessSpec, StartFailed
from iris.worker.users.identity import gain_nothing


def find_executable(command: str, path: str, cwd: str) -> str:
    """Find the executable of a task's command.

    Args:
        command: `argv[0]`.
        path: The task's PATH.
        cwd: The directory that relative names refer to.

    Raises:
        StartFailed: The executable does not exist.
    """
    if not command:
        raise StartFailed("the command is empty: argv[0] must name a program")
    if "/" in command:
        candidate = os.path.join(cwd, command)
        if not os.path.exists(candidate):
            raise StartFailed(f"command {command!r} not found: {candidate} does not exist", NOT_FOUND)
        if os.path.isdir(candidate) or not os.access(candidate, os.X_OK):
            raise StartFailed(f"command {command!r} cannot be started: {candidate} is not an executable file")
        return candidate
    found = shutil.which(command, path=path)
    if found is None:
        searched = ":".join(dict.fromkeys(path.split(":")))
        raise StartFailed(f"command {command!r} not found; looked in PATH={searched}", NOT_FOUND)
    return os.path.join(cwd, found)


def start_forked(
    executable: str, spec: ProcessSpec, streams: tuple[int, int, int], prepare: Callable[[], None] | None = None
) -> int:
    """Start a command as the leader of its own session, with its identity and directory; return its pid.

    Args:
        executable: The result of `find_executable`.
        spec: The command.
        streams: Descriptors of its stdin, stdout and stderr.
        prepare: Called in the child before the command.

    Raises:
        OSError: The kernel refused. subprocess.SubprocessError: `prepare` failed.
    """
    who: dict[str, Any] = {}
    if spec.run_as is not None:
        gain_nothing()
        who = {"user": spec.run_as.uid, "group": spec.run_as.uid, "extra_groups": spec.run_as.groups}
    stdin, stdout, stderr = streams
    child = subprocess.Popen(
        spec.argv,
        **who,
        executable=executable,
        env=spec.env,
        cwd=spec.cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=prepare,
    )
    child.returncode = 0  # we reap it; Popen must neither wait for the pid nor warn that it still runs
    return child.pid


def start_error(executable: str, spec: ProcessSpec, error: OSError) -> str:
    """Return a readable reason why the kernel did not start the executable.

    Args:
        executable: The result of `find_executable`.
        spec: The command.
        error: The kernel's error.
    """
    if isinstance(error, FileNotFoundError):
        if not os.path.isdir(spec.cwd):
            return f"command {spec.argv[0]!r} cannot be started: its directory {spec.cwd} does not exist"
        return f"command {spec.argv[0]!r} cannot be started: {executable} names an interpreter that does not exist"
    return f"command {spec.argv[0]!r} cannot be started: {executable}: {os.strerror(error.errno or 0)}"
