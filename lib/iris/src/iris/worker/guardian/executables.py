"""Finding the executable of a command, and explaining why it could not be started."""

import os
import shutil

from iris.worker.processes import NOT_FOUND, ProcessSpec, StartFailed


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
