"""Starts commands inside running attempts: in their view of the files, control groups and environment."""

import contextlib
import fcntl
import os
import subprocess
import termios
from collections.abc import Sequence
from dataclasses import replace

from iris.worker.guardian.executables import find_executable, start_error, start_forked
from iris.worker.isolation.views import TaskViews
from iris.worker.processes import JoinSpec, ProcessSpec, StartFailed, StartFailure


def joined_spec(attempt: ProcessSpec, join: JoinSpec) -> ProcessSpec:
    """Return the spec of a command inside an attempt.

    Args:
        attempt: The attempt's spec.
        join: The command.
    """
    return replace(
        attempt,
        owner=join.owner,
        argv=join.argv,
        env={**attempt.env, **join.env},
        sharer="",
        log="",
        log_limit=0,
        tail_bytes=0,
        fence_ms=0,
        dies_with_worker=True,
        note={},
        join=join,
    )


def spawn_inside(spec: ProcessSpec, join: JoinSpec, pid: int, group_files: Sequence[str], views: TaskViews) -> int:
    """Start a command inside an attempt, as the leader of its own session; return its pid.

    Args:
        spec: The result of `joined_spec`.
        join: The command.
        pid: The attempt's first process.
        group_files: The files by which a process enters the attempt's control groups.
        views: The views of the file system.

    Raises:
        StartFailed: The command cannot be started.
        OSError: The host has no resources, or the attempt has just ended.
    """
    with contextlib.ExitStack() as stack:
        streams = [_open_stream(path, number, len(join.streams) == 1) for number, path in enumerate(join.streams)]
        # The child moves itself: there, this process could be killed for lack of the attempt's memory.
        groups = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in group_files]
        for descriptor in (*streams, *groups):
            stack.callback(os.close, descriptor)
        if not spec.is_contained:
            stack.callback(views.leave)
            views.enter_view_of(pid)
        executable = find_executable(spec.argv[0], spec.env.get("PATH", ""), spec.cwd)

        def prepare() -> None:
            for descriptor in groups:
                os.write(descriptor, b"0")
            if len(streams) == 1:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        try:
            return start_forked(executable, spec, (streams[0], streams[-2:][0], streams[-1]), prepare)
        except subprocess.SubprocessError as error:
            raise StartFailed(f"it cannot enter the task's control group: {error}", why=StartFailure.HOST) from error
        except OSError as error:
            raise StartFailed(start_error(executable, spec, error)) from error


def _open_stream(path: str, number: int, is_terminal: bool) -> int:
    mode = os.O_RDWR if is_terminal else os.O_WRONLY if number else os.O_RDONLY
    # Never waits for the other end, which the worker holds.
    descriptor = os.open(path, mode | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return descriptor
