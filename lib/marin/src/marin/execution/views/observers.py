"""The observers of a run: the log or a live view for people, and a file of events for programs."""

from __future__ import annotations

import os
import sys

from marin.execution.report.event_log import EventLog
from marin.execution.report.events import RunObserver
from marin.execution.report.log_lines import LogLines
from marin.execution.report.progress import is_in_step
from marin.execution.report.shell import is_kernel


def default_observers(*, summary: bool = True) -> list[RunObserver]:
    """Return new observers for a run: a live view or log lines, and an event log.

    The view is chosen in a notebook kernel, and if stderr is a capable terminal. The event log only writes for runs
    with an info file.

    Args:
        summary: Whether a view on a terminal ends with a list of the steps. A notebook's view always does.
    """
    shown: RunObserver = LogLines()
    if is_notebook():
        from marin.execution.views.notebook import NotebookView, shown_in_cell

        shown = NotebookView(shown_in_cell())
    elif is_terminal():
        from marin.execution.views.live import LiveView

        shown = LiveView(sys.stderr, summary=summary)
    return [shown, EventLog()]


def is_notebook() -> bool:
    """Return whether this is a notebook kernel, which shows a run as HTML; False for a run inside a step of another
    run.
    """
    return is_kernel() and not is_in_step()


def is_terminal() -> bool:
    """Return whether stderr is a terminal that can show a live view and does not show one yet.

    A run inside a step of another run logs plain lines, which appear above that run's view.
    """
    if os.environ.get("TERM", "dumb") == "dumb" or "CI" in os.environ:
        return False
    # None when standard error was closed before the program began.
    return sys.stderr is not None and sys.stderr.isatty() and not getattr(sys.stderr, "has_view", False)
