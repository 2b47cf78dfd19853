"""The failures of a run, reported once at its end: each step's own frames, its log, and the command to run it again."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from marin.execution.report.error_text import full_traceback, own_traceback
from marin.execution.report.events import describe_error
from marin.execution.report.rerun import step_pattern
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.filesystem.location import path_in
from rigging.redaction import redact_string
from rigging.text.printable import printable

logger = logging.getLogger(__name__)

# When hundreds of steps fail they mostly fail alike; each has its own `.error` file.
MOST_TOLD: Final = 10


def rerun_by_executor(name: str) -> str:
    """Return the call that runs a step again, in a program without a command line."""
    return f"Executor.run(steps, run_only=[{step_pattern(name)!r}])"


def rerun_by_main(name: str) -> str:
    """Return the call that runs a step again, in a notebook."""
    return f"executor_main(ExecutorMainConfig(run_only=[{step_pattern(name)!r}]), steps=...)"


class FailureReport:
    """Collect the failures of a run and report them once.

    Args:
        rerun: Returns the command that runs a step again, by name; None if there is none.
        job: The id of the job that this process is; None for the Iris task that it is, if it is one.
        most: Maximum number of failures reported in full. The others are only named.
    """

    def __init__(
        self,
        rerun: Callable[[str], str | None] = rerun_by_executor,
        most: int = MOST_TOLD,
        job: str | None = None,
    ) -> None:
        self.rerun = rerun
        self._job = os.environ.get("IRIS_JOB_ID") if job is None else job
        self._most = most
        self._guard = threading.Lock()
        self._texts: list[str] = []
        self._others: list[str] = []
        self._count = 0
        self._is_told = False

    def add(self, name: str, output_path: str, error: BaseException, log: str | None = None) -> None:
        """Add a step's failure.

        Args:
            name: The step's name.
            output_path: Its output path.
            error: Its error.
            log: The location of its job's log; None if it had none.
        """
        with self._guard:
            self._count += 1
            if len(self._texts) < self._most:
                self._texts.append(self._text(name, output_path, error, log))
            elif len(self._others) < self._most:
                self._others.append(f"  {name} -> {output_path}")

    def text(self) -> str:
        """Return the report; "" if nothing failed."""
        with self._guard:
            if not self._texts:
                return ""
            head = f"{self._count} step(s) failed, the first ones in full:" if self._others else ""
            more = self._count - len(self._texts) - len(self._others)
            tail = [*self._others, *([f"  and {more} more"] if more else ())]
            return "\n".join([*([head, ""] if head else ()), "\n\n".join(self._texts), *(["", *tail] if tail else ())])

    def log(self) -> None:
        """Log the report, unless it was already shown."""
        if text := self._take():
            logger.error("%s", text)

    def show(self) -> None:
        """Write the report to stderr, unless it was already shown."""
        text = self._take()
        if not text:
            return
        try:
            if sys.stdout is not None:
                sys.stdout.flush()  # what was printed before comes before it, in a file, too
            if sys.stderr is not None:
                print(f"\n{text}\n", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            logger.error("%s", text)  # a standard stream is closed; a log may be elsewhere

    @property
    def is_told(self) -> bool:
        """Whether there were failures and all have been reported."""
        return self._is_told

    def _take(self) -> str:
        if self._is_told:
            return ""
        text = self.text()
        self._is_told = bool(text)
        return text

    def _text(self, name: str, output_path: str, error: BaseException, log: str | None) -> str:
        is_verbose = logger.isEnabledFor(logging.DEBUG)
        story = redact_string(full_traceback(error) if is_verbose else own_traceback(error))
        again = self.rerun(name)
        job = log.removeprefix("job ") if log else self._job
        lines = [
            f"step {name} failed: {describe_error(error).partition(chr(10))[0]}",
            *(f"  {line}".rstrip() for line in story.splitlines()),
            f"  log:   {path_in(output_path, LOG_FILE)}",
            f"  error: {path_in(output_path, ERROR_FILE)}",
            *([f"  job:   {job}"] if job else ()),
            *([f"  to run it again: {again}"] if again else ()),
        ]
        return printable("\n".join(lines))
