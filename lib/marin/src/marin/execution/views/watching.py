"""Common parts of a run's views: the run's state, and a thread that draws the view at intervals."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from marin.execution.report.earlier_runs import read_usual_seconds
from marin.execution.report.events import RunEnded, RunEvent, RunStarted
from marin.execution.report.run_progress import RunProgress

logger = logging.getLogger(__name__)


class RunView(ABC):
    """An observer that shows a run repeatedly while it continues.

    Args:
        now: Returns the current time, in seconds since the epoch.
        usual: Returns the duration of steps in earlier runs by name, given the run's info file.
        pause_seconds: The pause between two updates.

    Attributes:
        guard: Held while the run's state changes or is drawn.
        run: The run's state.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.time,
        usual: Callable[[str], Mapping[str, float]] = read_usual_seconds,
        pause_seconds: float = 0.2,
    ) -> None:
        self.guard = threading.RLock()
        self.run = RunProgress()
        self.pause_seconds = pause_seconds
        self._now = now
        self._usual = usual
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def on_event(self, event: RunEvent) -> None:
        """Apply an event, and show urgent changes immediately."""
        if isinstance(event, RunEnded):
            self._done.set()
            if self._thread is not None:
                self._thread.join()
        with self.guard:
            if isinstance(event, RunStarted):
                self.run = RunProgress()
            self.run.take(event)
            self.show(event)
        if isinstance(event, RunStarted):
            self._done = threading.Event()
            # In this context, so that a notebook puts the updates below the cell that began the run.
            run_here = contextvars.copy_context().run
            self._thread = threading.Thread(
                target=run_here, args=(self._keep_drawing, self._done), name="marin-view", daemon=True
            )
            self._thread.start()
            if event.info_path is not None:
                threading.Thread(
                    target=self._look_back, args=(event.info_path, self.run), name="marin-earlier-runs", daemon=True
                ).start()

    @abstractmethod
    def show(self, event: RunEvent) -> None:
        """Show the changes of an event. Called with the lock held."""

    @abstractmethod
    def draw(self) -> None:
        """Redraw the run."""

    def _keep_drawing(self, done: threading.Event) -> None:
        while not done.wait(self.pause_seconds):
            try:
                self.draw()
            # Whatever a terminal that is gone, or a notebook's frontend, raises: the run goes on without its view.
            except Exception as error:
                logger.warning("the view of the run is no longer updated: %s", error)
                return

    def _look_back(self, info_path: str, run: RunProgress) -> None:
        """Look up the duration of steps in earlier runs, without delaying the run."""
        run.usual = self._usual(info_path)
