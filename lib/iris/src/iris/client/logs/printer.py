"""Logs for people and pipes: what a task wrote, byte for byte, with a prefix only where several write."""

import sys
from collections.abc import Callable, Collection
from typing import BinaryIO

from iris.client.types import LogLine
from rigging.printable import printable_line


class LogPrinter:
    """Writes log lines: a task's stdout to `out`, its stderr to `err`.

    The followed job's only task is written as it is, at once. Lines of other tasks get the task's name relative to the
    job in brackets, and are held until they are complete, so that they never mix. What iris says about output that is
    missing goes to `err`, marked "iris:".

    Args:
        job_id: The job followed.
        prefix_own: Whether the job's own tasks are prefixed too (it has several).
        silent: Streams (False: stdout, True: stderr) on which nothing is written: see `own_output`.
        on_retry: Called with a task's id and attempt number before the first line of an attempt after its first.
    """

    def __init__(
        self,
        job_id: str,
        *,
        prefix_own: bool,
        on_retry: Callable[[str, int], None] | None = None,
        out: BinaryIO | None = None,
        err: BinaryIO | None = None,
        silent: Collection[bool] = (),
    ) -> None:
        self._silent = silent
        self._on_retry = on_retry
        self._attempts: dict[str, int] = {}
        self._base = job_id + "/"
        self._prefix_own = prefix_own
        self._streams = {False: out or sys.stdout.buffer, True: err or sys.stderr.buffer}
        self._held: dict[tuple[str, int, bool], list[bytes]] = {}
        self._open_line = {False: False, True: False}

    def write(self, line: LogLine) -> None:
        """Write a line, or keep the piece of one. Raises BrokenPipeError when the reader is gone."""
        name = line.task_id.removeprefix(self._base)
        if self._attempts.setdefault(line.task_id, line.attempt) < line.attempt:
            self._attempts[line.task_id] = line.attempt
            if self._on_retry is not None:
                self._on_retry(line.task_id, line.attempt)
        if line.note:
            self._write_note(line)
            return
        if "/" not in name and not self._prefix_own:
            self._emit(line.is_stderr, line.data if line.partial else line.data + b"\n")
            self._open_line[line.is_stderr] = line.partial
            return
        key = (line.task_id, line.attempt, line.is_stderr)
        if line.partial:
            self._held.setdefault(key, []).append(line.data)
            return
        self._write_whole(name, line.is_stderr, b"".join((*self._held.pop(key, ()), line.data)))

    def finish(self) -> None:
        """Write what is still held (last lines without a newline) and flush."""
        for (task_id, _, is_stderr), pieces in self._held.items():
            self._write_whole(task_id.removeprefix(self._base), is_stderr, b"".join(pieces))
        self._held.clear()
        self.flush()

    def flush(self) -> None:
        """Hand everything to the operating system."""
        for stream in self._streams.values():
            stream.flush()

    def _write_note(self, line: LogLine) -> None:
        # Always where iris speaks, so that what is kept of stdout stays what the task wrote.
        start = b"\n" if self._open_line[True] else b""
        self._open_line[True] = False
        self._emit(True, b"%siris: task %s: %s\n" % (start, line.task_id.encode(), printable_line(line.text).encode()))

    def _write_whole(self, name: str, is_stderr: bool, data: bytes) -> None:
        start = b"\n" if self._open_line[is_stderr] else b""
        self._open_line[is_stderr] = False
        self._emit(is_stderr, b"%s[%s] %s\n" % (start, name.encode(), data))

    def _emit(self, is_stderr: bool, data: bytes) -> None:
        if is_stderr in self._silent:
            return
        stream = self._streams[is_stderr]
        stream.write(data)
        # A line is seen when it is written, also through a pipe.
        stream.flush()
