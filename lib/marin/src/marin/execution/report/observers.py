"""Who watches a run: the log or a live view for people, and a file of events for programs."""

from __future__ import annotations

import os
import sys

from marin.execution.report.event_log import EventLog
from marin.execution.report.events import RunObserver
from marin.execution.report.log_lines import LogLines


def default_observers() -> list[RunObserver]:
    """The observers of an ordinary run, each made anew.

    A live view when stderr is a terminal that can show one, else plain log lines; and the event log, which writes only
    for runs that have an info file.
    """
    shown: RunObserver = LogLines()
    if is_terminal():
        from marin.execution.report.view import LiveView

        shown = LiveView(sys.stderr)
    return [shown, EventLog()]


def is_terminal() -> bool:
    """Whether stderr is a terminal on which lines can be drawn over, and no view is drawn on it yet.

    A run inside a step of another run has plain lines, above the view of that one.
    """
    if os.environ.get("TERM", "dumb") == "dumb" or "CI" in os.environ:
        return False
    # Standard error that was closed before the program began is None.
    return sys.stderr is not None and sys.stderr.isatty() and not getattr(sys.stderr, "has_view", False)
