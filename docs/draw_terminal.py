"""Draw what a command shows at a terminal as an SVG: the pictures of the README.

uv run --extra quickstart python docs/draw_terminal.py docs/images/examples/sweep.svg [--last 29] -- COMMAND...
uv run python docs/draw_terminal.py docs/images/hello.svg --record -- COMMAND...

The command really runs, in tmux, with a storage prefix and a cluster of its own. What stands on the screen when it has
ended is drawn, or its last lines; with --record all that it showed, each screen for as long as it stood there.
"""

import argparse
import html
import io
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
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
    parser.add_argument("--record", action="store_true", help="draw every screen, as a film")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        longer = len(folder) - len("/tmp")  # paths are this much longer than they will be drawn
        shown = [
            (at, screen.replace(f"{folder}/", "/tmp/"))
            for at, screen in screens(
                options.command, Path(folder), options.width + longer, options.height, options.timeout
            )
        ]
    command = shlex.join(options.command)
    frames = [(at, screen.rstrip().splitlines()[-options.last :]) for at, screen in shown]
    rows = max(len(lines) for _, lines in frames)
    if options.record:
        drawn = [(at, draw(command, lines + [""] * (rows - len(lines)), options.width, f"f{at * 1000:.0f}"))
                 for at, lines in frames]  # fmt: skip
        svg = film(drawn)
    else:
        svg = draw(command, frames[-1][1], options.width, "run")
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(svg, encoding="utf-8")


def draw(command: str, lines: list[str], width: int, unique_id: str) -> str:
    """Return a terminal with a command and what it shows, as an SVG."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_svg(
        title=command,
        theme=DIMMED_MONOKAI,
        code_format=_SVG.replace("@TITLE@", html.escape(command)),
        unique_id=unique_id,
    )


def film(frames: list[tuple[float, str]]) -> str:
    """Return one SVG that shows SVGs of one size, each from its second on; the last one stands for four seconds."""
    whole = frames[-1][0] + 4.0
    styles, groups = ["@media (prefers-reduced-motion: reduce) { .frame { animation: none !important; } }"], []
    for number, (at, svg) in enumerate(frames):
        is_last = number + 1 == len(frames)
        begin, end = at / whole * 100, 100.0 if is_last else frames[number + 1][0] / whole * 100
        before = "" if number == 0 else f"0%, {begin - 0.001:.3f}% {{ opacity: 0; }} "
        after = "" if is_last else f" {end:.3f}%, 100% {{ opacity: 0; }}"
        styles.append(f"@keyframes k{number} {{ {before}{begin:.3f}%, {end - 0.001:.3f}% {{ opacity: 1; }}{after} }}")
        style = f"opacity: {int(is_last)}; animation: k{number} {whole:.2f}s infinite step-end;"
        groups.append(f'<g class="frame" style="{style}">{svg}</g>')
    box = frames[0][1].partition('viewBox="')[2].partition('"')[0]
    return (
        f'<svg viewBox="{box}" xmlns="http://www.w3.org/2000/svg" role="img">\n<style>{" ".join(styles)}</style>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def screens(command: list[str], place: Path, width: int, height: int, timeout: float) -> Iterator[tuple[float, str]]:
    """Run a command in a terminal of its own; yield each screen, with its colours as escapes, and since which second.

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
        begun, before, has_ended = time.monotonic(), None, False
        while not has_ended:
            has_ended = ended.exists()  # before the screen is taken, so that the last one is whole
            now = time.monotonic() - begun
            if now > timeout:
                raise TimeoutError(f"{shlex.join(command)} takes longer than {timeout:.0f} s")
            captured = subprocess.run(
                [*tmux, "capture-pane", "-e", "-p", "-t", "draw"], check=True, capture_output=True
            )
            if (screen := captured.stdout.decode()) != before:
                yield now, screen
            before = screen
            time.sleep(0.1)
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
        subprocess.run(["iris", "cluster", "stop", "--force"], env={**os.environ, **variables}, check=False)


if __name__ == "__main__":
    main()
