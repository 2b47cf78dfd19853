"""Errors of runs as a notebook or an IPython shell shows them: their message, without the executor's frames."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator

from marin.execution.report.events import FURTHER_LINES
from marin.execution.report.notebook.shell import interactive_shell
from rigging.errors import MarinError
from rigging.text.printable import printable

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def short_errors() -> Iterator[None]:
    """Context manager: let errors of a run, and interrupts, be shown by their message alone; elsewhere without effect.

    The failed step's own frames are in the log by then. All frames are shown when debug messages are logged (`-v`), and
    are there for `%debug` and for code that catches the error.
    """
    try:
        yield
    except (MarinError, KeyboardInterrupt) as error:
        if interactive_shell() is not None and not logger.isEnabledFor(logging.DEBUG):
            # IPython asks an exception for its lines by this name. A function that can be pickled, as the error may be.
            error._render_traceback_ = functools.partial(_lines, message_of(error))  # type: ignore[union-attr]
        raise


def message_of(error: BaseException) -> str:
    """Return what is shown of an error."""
    if isinstance(error, KeyboardInterrupt):
        return "KeyboardInterrupt: the run was interrupted; the next run makes what is missing"
    # The report of failures, which stands above, has all lines of a job's error.
    lines = [line for line in str(error).splitlines() if not line.startswith(FURTHER_LINES)]
    return printable(f"{type(error).__name__}: {chr(10).join(lines)}")


def _lines(text: str) -> list[str]:
    return text.splitlines()
