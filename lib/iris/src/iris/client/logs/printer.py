"""Print logs for people and pipes: byte for byte, with a prefix only if several tasks write."""

import sys
from collections.abc import Callable, Collection
from typing import BinaryIO

from iris.client.logs.for_programs import ProgramLines
from iris.client.types import LogLine
from rigging.text.printable import printable_line


class LogPrinter:
    """Write log lines: a task's stdout to `out`, its stderr to `err`.

    If the followed job has one task, its output is written unchanged and immediately. Lines of other tasks get the
    task's relative name in brackets as a prefix. They are buffered until complete, so that they never mix. Notes about
    missing output go to `err`, marked "iris:". Lines for programs are hidden (`for_programs`).

    Args:
        job_id: The followed job.
        prefix_own: Whether to prefix the job's own tasks, because there are several.
        name_attempts: Whether lines of a retried task name their attempt.
        retried: Whether a task was already retried. If not, the first line of a second attempt shows a retry.
        silent: Streams (False: stdout, True: stderr) to omit (see `own_output`).
        before: Called before any output.
        on_retry: Called with a task's id and attempt number before the first line of a later attempt.
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
        name_attempts: bool = False,
        retried: bool = False,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._before = before
        self._program_lines: dict[tuple[str, bool, int], ProgramLines] = {}
        self._name_attempts = name_attempts
        self._retried = retried
        self._silent = silent
        self._on_retry = on_retry
        self._attempts: dict[str, int] = {}
        self._base = job_id + "/"
        self._prefix_own = prefix_own
        self._streams = {False: out or sys.stdout.buffer, True: err or sys.stderr.buffer}
        self._held: dict[tuple[str, bool, int], list[bytes]] = {}
        self._open_line = {False: False, True: False}

    def write(self, line: LogLine) -> None:
        """Write a line, or buffer a part of one. Raise BrokenPipeError if the reader has exited."""
        if line.note:
            self._show(line)
            return
        stream = (line.task_id, line.is_stderr, line.attempt)
        for shown in self._program_lines.setdefault(stream, ProgramLines()).take(line):
            self._show(shown)

    def _show(self, line: LogLine) -> None:
        name = line.task_id.removeprefix(self._base)
        if self._attempts.setdefault(line.task_id, line.attempt) < line.attempt:
            self._attempts[line.task_id] = line.attempt
            self._retried = True
            if self._on_retry is not None:
                self._on_retry(line.task_id, line.attempt)
        if line.note:
            self._write_note(line)
            return
        if self._name_attempts and self._retried:
            name = f"{name}, attempt {line.attempt}"
        elif "/" not in name and not self._prefix_own:
            self._emit(line.is_stderr, line.data if line.partial else line.data + b"\n")
            self._open_line[line.is_stderr] = line.partial
            return
        key = (name, line.is_stderr, line.attempt)
        if line.partial:
            self._held.setdefault(key, []).append(line.data)
            return
        self._write_whole(name, line.is_stderr, b"".join((*self._held.pop(key, ()), line.data)))

    def finish(self) -> None:
        """Write the buffered text (last lines without a newline) and flush."""
        for lines in self._program_lines.values():
            for line in lines.finish():
                self._show(line)
        for (name, is_stderr, _), pieces in self._held.items():
            self._write_whole(name, is_stderr, b"".join(pieces))
        self._held.clear()
        self.flush()

    def flush(self) -> None:
        """Flush all output to the operating system."""
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
        if self._before is not None:
            self._before()
        stream = self._streams[is_stderr]
        stream.write(data)
        # A line is seen when it is written, also through a pipe.
        stream.flush()
