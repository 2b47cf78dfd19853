"""Draw what a command shows at a terminal as an SVG: the picture of the README.

uv run --extra quickstart python docs/draw_terminal.py docs/images/run.svg [--last 29] -- COMMAND...

The command really runs, in tmux, with a storage prefix and a cluster of its own; what stands on the screen when it has
ended is drawn, or its last lines.
"""

import argparse
import html
import io
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

# Rich's own format fetches its font from elsewhere; a reader's browser has one.
_SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>@TITLE@</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    """Run, wait for the end, draw."""
    parser = argparse.ArgumentParser(description="Draw a command's terminal.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--width", type=int, default=110)
    parser.add_argument("--height", type=int, default=50)
    parser.add_argument("--last", type=int, default=50, metavar="LINES", help="draw so many of the screen's lines")
    parser.add_argument("--timeout", type=float, default=600, help="seconds")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        longer = len(folder) - len("/tmp")  # paths are this much longer than they will be drawn
        screen = screen_after(options.command, Path(folder), options.width + longer, options.height, options.timeout)
        told = screen.replace(f"{folder}/marin", "/tmp/marin")
    lines = told.rstrip().splitlines()[-options.last :]
    command = shlex.join(options.command)
    console = Console(record=True, width=options.width, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    svg = console.export_svg(
        title=command, theme=DIMMED_MONOKAI, code_format=_SVG.replace("@TITLE@", html.escape(command)), unique_id="run"
    )
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(svg, encoding="utf-8")


def screen_after(command: list[str], place: Path, width: int, height: int, timeout: float) -> str:
    """Run a command in a terminal of its own and return the screen at its end, with its colours as escapes.

    Raises:
        TimeoutError: It takes longer than `timeout` seconds.
    """
    ended = place / "ended"
    variables = {"MARIN_PREFIX": f"{place}/marin", "IRIS_STATE_DIR": f"{place}/iris", "TERM": "xterm-256color"}
    line = f"{shlex.join(command)}; touch {ended}; sleep 600"
    tmux = ["tmux", "-L", f"draw-{os.getpid()}", "-f", os.devnull]
    environment = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    subprocess.run(
        [*tmux, "new-session", "-d", "-s", "draw", "-x", str(width), "-y", str(height), *environment, line], check=True
    )
    try:
        deadline = time.monotonic() + timeout
        while not ended.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{shlex.join(command)} takes longer than {timeout:.0f} s")
            time.sleep(0.2)
        captured = subprocess.run([*tmux, "capture-pane", "-e", "-p", "-t", "draw"], check=True, capture_output=True)
        return captured.stdout.decode()
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
        subprocess.run(["iris", "cluster", "stop", "--force"], env={**os.environ, **variables}, check=False)


if __name__ == "__main__":
    main()
