"""The progress of a run in a notebook: HTML that is updated a few times a second, above the steps' output."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from marin.execution.report.earlier_runs import read_usual_seconds
from marin.execution.report.events import RunEnded, RunEvent, RunStarted
from marin.execution.views.drawing import Pen
from marin.execution.views.watching import RunView

UPDATE_SECONDS: Final = 0.3
# A notebook keeps every update of an open connection waiting until it is shown: a long run needs fewer.
_LATER_SECONDS: Final = 1.0
_LATER_AFTER_SECONDS: Final = 60.0

Bundle = Mapping[str, str]
"""A display bundle: text by MIME type."""


class NotebookView(RunView):
    """An observer that shows a run in a notebook cell. Its thread ends with the run.

    Args:
        show: Shows a bundle; with True, in place of the previous one.
        now: Returns the current time, in seconds since the epoch.
        usual: Returns the duration of steps in earlier runs by name, given the run's info file.
        pause_seconds: The pause between two updates.
    """

    def __init__(
        self,
        show: Callable[[Bundle, bool], None],
        now: Callable[[], float] = time.time,
        usual: Callable[[str], Mapping[str, float]] = read_usual_seconds,
        pause_seconds: float = UPDATE_SECONDS,
    ) -> None:
        super().__init__(now, usual, pause_seconds)
        self._show = show
        self._pen = Pen()

    def show(self, event: RunEvent) -> None:
        """Show the start and end of the run. Other events appear with the next update."""
        if isinstance(event, RunStarted | RunEnded):
            self._show(self._bundle(), isinstance(event, RunEnded))

    def draw(self) -> None:
        """Show the state of the run."""
        bundle = self._bundle()
        self._show(bundle, True)
        if self.run.start is not None and self._now() - self.run.start.time > _LATER_AFTER_SECONDS:
            self.pause_seconds = max(self.pause_seconds, _LATER_SECONDS)

    def _bundle(self) -> Bundle:
        with self.guard:
            return self._pen.bundle(
                self._pen.page(self.run, self._now() if self.run.end is None else self.run.end.time)
            )


def shown_in_cell() -> Callable[[Bundle, bool], None]:
    """Return a function that shows bundles below the notebook's current cell, each replacing the previous one."""
    ipython: Any = importlib.import_module("IPython.display")  # there in every kernel, and no dependency of ours
    handles: list[Any] = []

    def show(bundle: Bundle, instead: bool) -> None:
        if instead and handles:
            handles[-1].update(dict(bundle), raw=True)
        else:
            handles.append(ipython.display(dict(bundle), raw=True, display_id=True))

    return show
