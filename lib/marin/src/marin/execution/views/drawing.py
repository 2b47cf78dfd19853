"""The lines of a run's view, from its state, independent of terminal and notebook. Only this module uses rich."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from marin.execution.report.events import StepEnd
from marin.execution.report.run_progress import RunProgress, Unfinished
from marin.execution.report.words import clock_text, progress_words, summary_lines
from rigging.text.printable import printable_line

_BAR_CELLS: Final = 20
_MOST_NAME_CELLS: Final = 40
_CLOCK_CELLS: Final = 7
# With less room the path of a running step is left out: the end of the run shows it.
_LEAST_PATH_CELLS: Final = 16

STYLES: Final = {
    None: "",
    StepEnd.CACHED: "dim",
    StepEnd.SUCCEEDED: "green",
    StepEnd.FAILED: "red",
    StepEnd.LOST: "red",
    StepEnd.DEP_FAILED: "yellow",
}

# Of a notebook: rows of ended steps and of steps at work, and characters of a line.
MOST_ROWS: Final = 40
_MOST_AT_WORK: Final = 20
_NOTEBOOK_CELLS: Final = 300
# Colours that can be read on white and on black; other text has the notebook's own colour.
_GREY, _RED, _GREEN, _YELLOW, _BLUE = (138, 138, 138), (224, 82, 77), (42, 157, 92), (192, 138, 30), (59, 142, 219)
_THEME: Final = TerminalTheme(_GREY, _GREY, [_GREY, _RED, _GREEN, _YELLOW, _BLUE, _RED, _BLUE, _GREY])
_HTML: Final = (
    '<pre class="marin-run" style="font-family:var(--jp-code-font-family,var(--vscode-editor-font-family,monospace));'
    'font-size:12px;line-height:1.5;white-space:pre;overflow-x:auto;color:inherit;background:transparent">{code}</pre>'
)


class Pen:
    """Draw lines for a terminal: in colours, unless `NO_COLOR` is set or the terminal has none.

    Args:
        terminal: The target terminal; None for a notebook.
    """

    def __init__(self, terminal: TextIO | None = None) -> None:
        self._console = Console(
            file=io.StringIO() if terminal is None else terminal,
            record=terminal is None,
            force_terminal=True,
            force_jupyter=False,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def line(self, words: str, style: str) -> Text:
        """Return a line in a style from `STYLES`."""
        return Text(words, style)

    def draw(self, lines: Sequence[Text]) -> str:
        """Return lines in terminal form, each with its newline."""
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        return captured.get()

    def bundle(self, lines: Sequence[Text]) -> dict[str, str]:
        """Return lines in notebook form: text by MIME type, with escaped HTML."""
        for line in lines:
            self._console.print(line, soft_wrap=True)
        html = self._console.export_html(theme=_THEME, code_format=_HTML, inline_styles=True)
        return {"text/html": html, "text/plain": "\n".join(line.plain for line in lines)}

    def view(
        self, run: RunProgress, now: float, width: int, height: int, open_line: Callable[[str], str] = lambda _: ""
    ) -> list[Text]:
        """Return the view of a run: the active steps, and below them the counts.

        Args:
            run: The run.
            now: The current time, in seconds since the epoch.
            width: The terminal's width in columns. The last one stays empty.
            height: Maximum number of lines. Steps take precedence over progress bars.
            open_line: Returns the unfinished line (a progress bar) of the step at a path; "" for none.
        """
        at_work = run.at_work()
        # One line is for the counts, and one for those that are left out.
        shown = at_work[: max(0, height - 2)]
        left_out = len(at_work) - len(shown)
        widest = max((Text(printable_line(step.name)).cell_len for step in shown), default=0)
        name_cells = min(_MOST_NAME_CELLS, max(8, width // 3), widest)
        bars_left = height - len(shown) - bool(left_out) - 1
        lines: list[Text] = []
        for step in shown:
            lines.append(self._step_line(step, now, run.usual.get(step.name), name_cells, width))
            unfinished = open_line(step.path)
            if unfinished.strip() and bars_left > 0:
                bars_left -= 1
                lines.append(Text("    ").append_text(Text.from_ansi(unfinished)))
        if left_out:
            lines.append(Text(f"  and {left_out} more at work"))
        counts = printable_line(run.counts(now))
        lines.append(Text(counts if len(counts) < width else run.counts(now, short=True), "bold"))
        for line in lines:
            line.truncate(max(1, width - 1), overflow="ellipsis")
        return lines

    def page(self, run: RunProgress, now: float) -> list[Text]:
        """Return the view of a run in a notebook: the counts, the ended steps, and the active ones."""
        *at_work, counts = self.view(run, now, _NOTEBOOK_CELLS, _MOST_AT_WORK + 2)
        lines = [counts, *self.summary(run, MOST_ROWS), *at_work]
        if run.end is not None and run.start is not None and run.start.info_path is not None:
            lines.append(Text(printable_line(f"run info: {run.start.info_path}"), "dim"))
        return lines

    def summary(self, run: RunProgress, most: int) -> list[Text]:
        """Return a limited number of ended steps, and the number of other ended steps."""
        left_out = dict(run.ended)
        for event in run.ends:
            left_out[event.status] -= 1
        lines = [Text(printable_line(line), STYLES[end]) for end, line in summary_lines(run.ends, left_out, most)]
        for line in lines:
            line.truncate(_NOTEBOOK_CELLS - 1, overflow="ellipsis")
        return lines

    def _step_line(self, step: Unfinished, now: float, usual: float | None, name_cells: int, width: int) -> Text:
        name = Text(printable_line(step.name))
        name.truncate(name_cells, overflow="ellipsis", pad=True)
        line = Text.assemble("  ", name, "  ", clock_text(now - step.since).rjust(_CLOCK_CELLS))
        if step.words:
            line.append(f"  {printable_line(step.words)}", "yellow")
        elif step.share is not None and step.done is not None:
            line.append("  ").append_text(self._bar(step.share))
            line.append(f"  {progress_words(step.done, step.total)}")
        left = step.seconds_left(now, usual)
        if left:  # one that is late says nothing
            line.append(f"  {clock_text(left)} left", "cyan")
        if line.cell_len + 2 + _LEAST_PATH_CELLS < width:
            line.append(f"  {printable_line(step.path)}", "dim")
        return line

    def _bar(self, share: float) -> Text:
        bar = ProgressBar(total=1.0, completed=share, width=_BAR_CELLS)
        pieces = self._console.render(bar, self._console.options.update(width=_BAR_CELLS))
        drawn = Text.assemble(*((piece.text, piece.style or "") for piece in pieces if not piece.control))
        drawn.truncate(_BAR_CELLS, pad=True)  # without colours, only what is done is drawn
        return drawn
