"""The lines of the live view, from what is shown of a run: without a terminal, and the only place that uses rich."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from marin.execution.report.events import StepEnd
from marin.execution.report.log_lines import progress_words, queue_words
from marin.execution.report.run_progress import Activity, ShownRun, ShownStep, clock_text, count_line
from rigging.text.printable import printable

_BAR_CELLS: Final = 20
_MOST_NAME_CELLS: Final = 40
_CLOCK_CELLS: Final = 7
# With less room the path of a running step is left out: the end of the run shows it.
_LEAST_PATH_CELLS: Final = 16

_STYLES: Final = {
    StepEnd.CACHED: "dim",
    StepEnd.SUCCEEDED: "green",
    StepEnd.FAILED: "red",
    StepEnd.LOST: "red",
    StepEnd.DEP_FAILED: "yellow",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines as a terminal takes them.

    Attributes:
        text: The lines, each with its newline, with colours as the terminal has them.
        cells: How many columns each line takes.
    """

    text: str = ""
    cells: tuple[int, ...] = ()

    def rows(self, width: int) -> int:
        """Return how many rows the lines take when the terminal is `width` columns wide.

        One that became narrower has broken the longer lines.
        """
        return sum(max(1, -(-cells // max(1, width))) for cells in self.cells)


class Pen:
    """Draws lines for a terminal: in colours, unless `NO_COLOR` is set or it has none.

    Args:
        terminal: What the lines are for.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._console = Console(file=terminal, force_terminal=True, highlight=False, markup=False, emoji=False)

    def end_line(self, status: StepEnd, words: str) -> str:
        """Return the line that says how a step ended."""
        return self._drawn([Text(words, _STYLES[status])]).text

    def warning_line(self, words: str) -> str:
        """Return a line about what went wrong for the moment."""
        return self._drawn([Text(words, "yellow")]).text

    def view(self, shown: ShownRun, width: int, open_line: Callable[[str], str], height: int) -> Drawn:
        """Return the view of a run.

        Args:
            shown: What is shown.
            width: Columns of the terminal; the last one stays empty.
            open_line: Returns the unfinished line (a progress bar) of the step at a path; "" for none.
            height: At most this many lines; steps come before the progress bars of others.
        """
        name_cells = min(
            _MOST_NAME_CELLS, max(8, width // 3), max((Text(step.name).cell_len for step in shown.steps), default=0)
        )
        lines: list[Text] = []
        bars_left = height - len(shown.steps) - bool(shown.left_out) - 1
        for step in shown.steps:
            lines.append(self._step_line(step, name_cells, width))
            unfinished = open_line(step.path)
            if unfinished.strip() and bars_left > 0:
                bars_left -= 1
                lines.append(Text("    ").append_text(Text.from_ansi(unfinished)))
        if shown.left_out:
            lines.append(Text(f"  and {shown.left_out} more at work"))
        counts = count_line(shown)
        lines.append(Text(counts if len(counts) < width else count_line(shown, short=True), "bold"))
        for line in lines:
            line.truncate(max(1, width - 1), overflow="ellipsis")
        return self._drawn(lines)

    def _step_line(self, step: ShownStep, name_cells: int, width: int) -> Text:
        name = Text(printable(step.name))
        name.truncate(name_cells, overflow="ellipsis", pad=True)
        line = Text.assemble("  ", name, "  ", clock_text(step.seconds).rjust(_CLOCK_CELLS))
        if step.activity is Activity.RUNNING:
            if step.share is not None and step.done is not None and step.total is not None:
                line.append("  ").append_text(self._bar(step.share))
                line.append(f"  {progress_words(step.done, step.total)}")
            if step.seconds_left:  # one that is late says nothing
                line.append(f"  {clock_text(step.seconds_left)} left", "cyan")
        elif step.activity is Activity.QUEUED:
            line.append(f"  {printable(queue_words(step.words))}", "yellow")
        else:
            line.append(f"  retrying: {printable(step.words)}", "yellow")
        if line.cell_len + 2 + _LEAST_PATH_CELLS < width:
            line.append(f"  {printable(step.path)}", "dim")
        return line

    def _bar(self, share: float) -> Text:
        bar = ProgressBar(total=1.0, completed=share, width=_BAR_CELLS)
        pieces = self._console.render(bar, self._console.options.update(width=_BAR_CELLS))
        drawn = Text.assemble(*((piece.text, piece.style or "") for piece in pieces if not piece.control))
        drawn.truncate(_BAR_CELLS, pad=True)  # without colours, only what is done is drawn
        return drawn

    def _drawn(self, lines: Sequence[Text]) -> Drawn:
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        return Drawn(captured.get(), tuple(line.cell_len for line in lines))
