"""`--pdb`: open a debugger at the frames of a failed step, in the run's terminal."""

from __future__ import annotations

import contextlib
import sys

from marin.execution.report.events import describe_error
from rigging.errors import InvalidRequest, StepFailed
from rigging.text.printable import printable


class NoDebugger(InvalidRequest):
    """`--pdb` without a terminal for a debugger."""


class RunEndedInDebugger(StepFailed):
    """The user ended the run with `q` in the debugger of a failed step."""


def check_debugger() -> None:
    """Check that there is a terminal for a debugger.

    Raises:
        NoDebugger: Standard input is not a terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise NoDebugger("--pdb: standard input is not a terminal, so a debugger cannot be used")


def debug_failure(name: str, error: BaseException) -> None:
    """Open a debugger where a step failed, and return when the user leaves it with `c`. A live view pauses meanwhile.

    Raises:
        RunEndedInDebugger: The user left the debugger with `q`, or the input ended.
    """
    import pdb  # takes as long to import as the executor itself

    # Of the live view, which may not be there: it leaves the terminal, and keeps what other steps print until the end.
    session = getattr(sys.stdin, "session", contextlib.nullcontext)
    with session():
        debugger = pdb.Pdb(stdout=sys.__stdout__)
        debugger.use_rawinput = True  # with the keys and the history of a line editor
        debugger.message(printable(f"step {name} failed: {describe_error(error)}"))
        debugger.message("c continues the run, q ends it; no other step starts meanwhile")
        debugger.reset()
        debugger.interaction(None, error.__traceback__)
    if debugger.quitting:
        raise RunEndedInDebugger(f"step {name} failed, and the run was ended in its debugger") from error
