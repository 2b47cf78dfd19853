"""A tour of what people see in a terminal, as golden screens.

`TOUR_REWRITE=1 uv run --group dev pytest tests/tour` writes the screens anew; read the difference before you commit.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tour.terminal import Terminal, has_tmux, normalised

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not has_tmux(), reason="tmux is not installed: what people see in a terminal is not tested"),
]


class Tour:
    """Programs in a terminal, and the screens that are expected of them."""

    def __init__(self, terminal: Terminal, columns: int) -> None:
        self.terminal = terminal
        self._golden = HERE / "golden" / str(columns)

    def signal(self, *names: str) -> None:
        """Let steps go on."""
        for name in names:
            (self.terminal.folder / "signals" / name).touch()

    def await_signal(self, name: str) -> None:
        """Wait until a step says so."""
        self.terminal.wait_for(lambda _: (self.terminal.folder / "signals" / name).exists())

    def next(self, scene: str) -> None:
        """Begin the next scene of a program, which empties the terminal."""
        self.signal(f"scene-{scene}")

    def check(self, name: str, *shown: str) -> None:
        """Wait until all these texts are shown, and compare the screen with the golden one.

        A screen may be drawn again while it is read: it has to be right at some moment.
        """
        path = self._golden / f"{name}.txt"
        self.terminal.wait_for(lambda screen: all(text in screen for text in shown))
        if "TOUR_REWRITE" in os.environ:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._screen(self.terminal.settled()))
            return
        expected = path.read_text()
        try:
            self.terminal.wait_for(lambda screen: self._screen(screen) == expected, seconds=20.0)
        except AssertionError:
            assert self._screen(self.terminal.screen()) == expected, f"{path} (TOUR_REWRITE=1 writes it anew)"

    def _screen(self, screen: str) -> str:
        return normalised(screen, self.terminal.folder)


@pytest.fixture(params=[80, 200])
def tour(request: pytest.FixtureRequest) -> Iterator[Tour]:
    # Always of one length: the view cuts paths. And short, as a socket's path must be.
    folder = Path(tempfile.mkdtemp(prefix="tour", dir="/tmp"))
    shutil.copytree(HERE / "scripts", folder, dirs_exist_ok=True)
    (folder / "signals").mkdir()
    terminal = Terminal(folder, request.param, {"MARIN_PREFIX": str(folder / "out"), "FRAY_CLIENT": "local"})
    try:
        terminal.start()
        yield Tour(terminal, request.param)
    finally:
        terminal.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_steps_at_work(tour: Tour) -> None:
    terminal = tour.terminal
    terminal.type("python play.py run,retry,queue,tqdm,prints,breakpoint")
    tour.check("run", "tour/read: done in", " left", "tour/load ", "1 done")
    tour.signal("tokenize")
    terminal.wait_for("tour/tokenize: done in")
    tour.signal("load-1")
    tour.check("run-ended", "end of run")
    tour.next("retry")
    tour.await_signal("hiccup")
    tour.signal("hiccup-again")
    tour.check("retry", "end of retry")
    tour.next("queue")
    tour.check("queue", "1 running, 1 queued", "no TPU")
    tour.signal("load-1")
    terminal.wait_for("tour/queue/first: done in")
    tour.signal("load-2")
    tour.check("queue-ended", "end of queue")
    tour.next("tqdm")
    tour.check("tqdm", "shards  50%|", "2 running")
    tour.signal("bars")
    terminal.wait_for("tour/bars: done in")
    tour.signal("load-1")
    tour.check("tqdm-ended", "end of tqdm")
    tour.next("prints")
    terminal.wait_for("b says 2")
    tour.signal("end-a")
    terminal.wait_for("tour/talk/a: done in")
    tour.signal("end-b")
    tour.check("prints", "end of prints")
    tour.next("breakpoint")
    terminal.wait_for("(Pdb)")
    terminal.type("p answer")
    terminal.wait_for(lambda screen: screen.count("(Pdb)") == 2)
    terminal.type("c")
    terminal.wait_for("tour/ask: done in")
    tour.signal("load-1")
    tour.check("breakpoint", "end of breakpoint\n$")


def test_a_failure_and_the_command_that_runs_its_step_again(tour: Tour) -> None:
    tour.terminal.type("python play.py failure")
    tour.check("failure", "see above\n$")
    again = tour.terminal.screen().partition("to run it again: ")[2].partition("\n")[0]
    tour.signal("mended")
    tour.terminal.clear()
    tour.terminal.type(again)
    tour.check("failure-mended", "end of failure\n$")


def test_a_debugger_at_a_failed_step(tour: Tour) -> None:
    terminal = tour.terminal
    terminal.type("python play.py failure --pdb")
    terminal.wait_for("(Pdb)")
    terminal.type("p total")
    terminal.wait_for(lambda screen: screen.count("(Pdb)") == 2)
    terminal.type("c")
    tour.check("pdb", "see above\n$")


def test_ctrl_c_twice(tour: Tour) -> None:
    terminal = tour.terminal
    terminal.type("python play.py interrupt")
    tour.await_signal("stubborn")
    tour.check("interrupt", "1 running, 1 retrying", "again in 600 s")
    terminal.press("C-c")
    terminal.wait_for("ending the processes")
    terminal.press("C-c")
    tour.check("interrupt-left", "was interrupted\n\n$")


@pytest.mark.parametrize("change", ["narrower", "wider"])
def test_a_terminal_that_is_resized_while_steps_are_at_work(tour: Tour, change: str) -> None:
    """What was shown before may be broken anew by the terminal; the view is drawn once, and fits."""
    terminal = tour.terminal
    terminal.type("python play.py run")
    terminal.wait_for(lambda screen: all(text in screen for text in ("tour/read: done in", " left", "tour/load ")))
    terminal.resize({"narrower": 60, "wider": 120}[change] * terminal.columns // 80)
    tour.check(f"resized-{change}", "tour/read: done in", "tour/load ", "1/3 steps: 2 running")
    tour.signal("tokenize")
    terminal.wait_for("tour/tokenize: done in")
    tour.signal("load-1")
    tour.check(f"resized-{change}-ended", "end of run\n$")
