"""Write a part of a step's log, for the run or for a process of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from marin.execution.log.files import LogFile
from marin.execution.report.error_text import own_traceback
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.redaction import redact_string
from rigging.text.printable import printable


class PartWriter:
    """Append a part to `.log`, and an error to `.error`. A write error is stored in `trouble` and fails no step.

    Args:
        open_file: Opens one of the two files for appending.
        opening: Returns the first line of the part, on use.

    Attributes:
        trouble: The first storage error. Nothing is added to the log after it.
        is_begun: Whether anything has been added to the log.
    """

    def __init__(self, open_file: Callable[[str], LogFile], opening: Callable[[], str]) -> None:
        self._open_file = open_file
        self._opening = opening
        self._file: LogFile | None = None
        self.trouble: Exception | None = None

    @property
    def is_begun(self) -> bool:
        """Whether the file is open."""
        return self._file is not None

    def add(self, lines: Iterable[str], *, has_opening: bool = True) -> None:
        """Add lines. The opening comes first, unless another process has written it."""
        if self.trouble is not None:
            return
        try:
            if self._file is None:
                self._file = self._open_file(LOG_FILE)
                lines = [self._opening(), *lines] if has_opening else lines
            self._file.write(_encoded(lines))
        # Storage libraries raise errors of many types.
        except Exception as error:
            self.trouble = error

    def close(self, error: BaseException | None = None, *, keep: bool = True) -> None:
        """Complete the file, and write the function's error.

        Args:
            error: The error.
            keep: Whether to publish the unpublished content.
        """
        try:
            if self._file is not None:
                self._file.close(keep=keep)
            if error is not None and keep:
                file = self._open_file(ERROR_FILE)
                file.write(_encoded([self._opening(), printable(redact_string(own_traceback(error)))]))
                file.close(keep=True)
        # As above.
        except Exception as trouble:
            self.trouble = self.trouble or trouble


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
