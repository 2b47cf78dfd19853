"""The failures of a run, reported once at its end: each step's own frames, its log, and the command to run it again."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from marin.execution.report.error_text import full_traceback, own_traceback
from marin.execution.report.events import describe_error
from marin.execution.report.rerun import step_pattern
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.errors import Denied
from rigging.filesystem.location import path_in
from rigging.redaction import redact_string
from rigging.text.printable import printable

logger = logging.getLogger(__name__)

MOST_TOLD: Final = 10
_FILES: Final = (("log:  ", LOG_FILE), ("error:", ERROR_FILE))


def rerun_by_executor(name: str, tag: str | None = None) -> str:
    """Return the call that runs a step again, in a program without a command line.

    Args:
        name: The step's name.
        tag: The run's `rerun_changed`.
    """
    return f"Executor.run(steps, {_options(name, tag)})"


def rerun_by_main(name: str, tag: str | None = None) -> str:
    """Return the call that runs a step again, in a notebook. Arguments are those of `rerun_by_executor`."""
    return f"executor_main(ExecutorMainConfig({_options(name, tag)}), steps=...)"


def _options(name: str, tag: str | None) -> str:
    return f"run_only=[{step_pattern(name)!r}]" + (f", rerun_changed={tag!r}" if tag is not None else "")


@dataclass(slots=True)
class _Alike:
    """Failures with the same error: the first in full or in one line, the names of others, and their number."""

    text: str
    others: list[str] = field(default_factory=list)
    count: int = 1


class FailureReport:
    """Collect the failures of a run and report them once.

    Failures with the same frames, type and message are reported once, with the names of their steps. Messages are the
    same if they differ only in numbers and in the step's name and path.

    Args:
        rerun: Returns the command that runs a step again, by name; None if there is none.
        job: The id of this process's job; None to detect an Iris task.
        most: Maximum number of errors reported in full, and of steps named for each. The other errors have one line.
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
        self._errors: dict[tuple[str, ...], _Alike] = {}
        self._is_told = False

    def add(self, name: str, output_path: str, error: BaseException, log: str | None = None) -> None:
        """Add a step's failure.

        Args:
            name: The step's name.
            output_path: Its output path.
            error: Its error.
            log: The location of its job's log; None without a job.
        """
        with self._guard:
            # Nothing was written there: no attempt has begun (`without_right`).
            is_refused = isinstance(error, Denied) and error.__traceback__ is None
            is_verbose = logger.isEnabledFor(logging.DEBUG)
            story = redact_string(full_traceback(error) if is_verbose else own_traceback(error))
            first = printable(f"step {name} failed: {describe_error(error).partition(chr(10))[0]}")
            frames = [line for line in story.splitlines() if line.lstrip().startswith("File ")]
            own = rf"{re.escape(output_path)}|(?<![\w-]){re.escape(name)}(?![\w-])|\d+"
            known = self._errors.get(key := (*frames, re.sub(own, "#", first.partition(" failed: ")[2])))
            if known is None:
                is_full = len(self._errors) < self._most
                text = (
                    self._text(first, name, output_path, story, log, is_refused)
                    if is_full
                    else f"{first} -> {output_path}"
                )
                self._errors[key] = _Alike(text)
                return
            known.count += 1
            if len(known.others) < self._most:
                known.others.append(printable(f"  the same error: {name} -> {output_path}"))

    def text(self) -> str:
        """Return the report; "" if nothing failed."""
        with self._guard:
            errors = list(self._errors.values())
        count = sum(error.count for error in errors)
        kinds = f" with {len(errors)} different errors" if len(errors) > 1 else ""
        head = [f"{count} step(s) failed{kinds}, the first of each in full:", ""] if count > len(errors) else []
        full, short = errors[: self._most], errors[self._most :]
        told = "\n\n".join("\n".join([error.text, *_others(error)]) for error in full)
        rest = [f"{error.text}{f' (and {error.count - 1} more)' if error.count > 1 else ''}" for error in short]
        return "\n".join([*head, *([told] if told else ()), *(["", *rest] if rest else ())])

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
        """Whether there were failures, all of them reported."""
        return self._is_told

    def _take(self) -> str:
        if self._is_told:
            return ""
        text = self.text()
        self._is_told = bool(text)
        return text

    def _text(self, first: str, name: str, output_path: str, story: str, log: str | None, is_refused: bool) -> str:
        again = self.rerun(name)
        job = log.removeprefix("job ") if log else self._job
        lines = [
            first,
            *(f"  {line}".rstrip() for line in story.splitlines()),
            *(f"  {what} {path_in(output_path, file)}" for what, file in _FILES if not is_refused),
            *([f"  job:   {job}"] if job else ()),
            *([f"  to run it again: {again}"] if again else ()),
        ]
        return printable("\n".join(lines))


def _others(error: _Alike) -> list[str]:
    more = error.count - 1 - len(error.others)
    return [*error.others, *([f"  and {more} more with the same error"] if more else ())]
