"""The progress of a run in a notebook: HTML that is updated a few times a second, above the steps' output."""

from __future__ import annotations

import contextvars
import importlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from marin.execution.report.earlier_runs import read_usual_seconds
from marin.execution.report.events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded
from marin.execution.report.notebook.page import run_html, run_text
from marin.execution.report.run_progress import MOST_ENDS, RunProgress

logger = logging.getLogger(__name__)

UPDATE_SECONDS: Final = 0.3
# A notebook keeps every update of an open connection waiting until it is shown: a long run needs fewer.
_LATER_SECONDS: Final = 1.0
_LATER_AFTER_SECONDS: Final = 60.0

Bundle = Mapping[str, str]
"""One thing to show, in several forms: text by MIME type."""


class NotebookView:
    """Observer that shows a run in a notebook's cell. Its thread ends with the run.

    Args:
        show: Shows a bundle; with True instead of the one before.
        now: Returns seconds since the epoch.
        usual: Returns how long steps took in earlier runs, by name, given the run's info file.
        update_seconds: The pause between two updates.
    """

    def __init__(
        self,
        show: Callable[[Bundle, bool], None],
        now: Callable[[], float] = time.time,
        usual: Callable[[str], Mapping[str, float]] = read_usual_seconds,
        update_seconds: float = UPDATE_SECONDS,
    ) -> None:
        self._show = show
        self._now = now
        self._usual = usual
        self._pause = update_seconds
        self._guard = threading.Lock()
        self._progress = RunProgress()
        self._reused: list[StepEnded] = []
        self._info_path: str | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def on_event(self, event: RunEvent) -> None:
        """Take an event; the beginning and the end of the run are shown at once, other events with the next update."""
        with self._guard:
            self._progress.take(event)
            # One that other code made is worth a row, as a warning.
            if isinstance(event, StepEnded) and event.status is StepEnd.CACHED and event.differences:
                self._reused[MOST_ENDS:] = []
                self._reused.append(event)
        if isinstance(event, RunStarted):
            self._info_path = event.info_path
            self._show(self._bundle(), False)
            # In this context, so that a notebook puts the updates below the cell that began the run.
            run_here = contextvars.copy_context().run
            self._thread = threading.Thread(target=run_here, args=(self._update,), name="marin-notebook-view")
            self._thread.daemon = True
            self._thread.start()
        elif isinstance(event, RunEnded):
            self._done.set()
            if self._thread is not None:
                self._thread.join()
            self._show(self._bundle(), True)

    def _bundle(self) -> Bundle:
        with self._guard:
            end = self._progress.end
            shown = self._progress.shown(self._now() if end is None else end.time)
            ended = [*self._reused, *self._progress.ends]
            told = (shown, ended, end, self._info_path)
            return {"text/html": run_html(*told), "text/plain": run_text(*told)}

    def _update(self) -> None:
        if self._info_path is not None:
            threading.Thread(
                target=self._look_back, args=(self._info_path,), name="marin-earlier-runs", daemon=True
            ).start()
        began = time.monotonic()
        while not self._done.wait(self._pause):
            if time.monotonic() - began > _LATER_AFTER_SECONDS:
                self._pause = max(self._pause, _LATER_SECONDS)
            try:
                self._show(self._bundle(), True)
            # Whatever a frontend's publisher raises: the run goes on without its view.
            except Exception as error:
                logger.warning("the notebook's view of the run is not updated any more: %s", error)
                return

    def _look_back(self, info_path: str) -> None:
        usual = self._usual(info_path)
        with self._guard:
            self._progress.usual = usual


def shown_in_cell() -> Callable[[Bundle, bool], None]:
    """Return a function that shows bundles below the notebook's current cell, each instead of the one before."""
    ipython: Any = importlib.import_module("IPython.display")  # there in every kernel, and no dependency of ours
    handles: list[Any] = []

    def show(bundle: Bundle, instead: bool) -> None:
        if instead and handles:
            handles[-1].update(dict(bundle), raw=True)
        else:
            handles.append(ipython.display(dict(bundle), raw=True, display_id=True))

    return show
