"""The live view of a run."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from marin.execution.report.events import (
    RunEnded,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepQueued,
    StepStarted,
)
from marin.execution.report.view import LiveView, RunProgress, clock_text


def progress(running: int = 1) -> RunProgress:
    result = RunProgress()
    result.take(RunStarted(100.0, running + 3))
    for index in range(running + 3):
        result.take(StepQueued(100.0, f"s{index}", f"/p/s{index}"))
    for index in range(running):
        result.take(StepStarted(101.0, f"s{index}", f"/p/s{index}"))
    result.take(StepEnded(102.0, f"s{running}", f"/p/s{running}", StepEnd.CACHED))
    result.take(StepEnded(102.0, f"s{running + 1}", f"/p/s{running + 1}", StepEnd.FAILED, error="bad"))
    return result


def test_what_a_view_says() -> None:
    assert progress().lines(now=163.0, width=80, height=20) == [
        "  s0     1:02  /p/s0",
        "[1:03] 2/4 steps: 1 running, 1 waiting, 0 done, 1 cached, 1 failed",
    ]


def test_a_view_fits_its_terminal() -> None:
    lines = progress(running=50).lines(now=102.0, width=20, height=6)
    assert len(lines) == 5
    assert all(len(line) < 20 for line in lines)
    assert lines[3] == "  and 47 more at wo"


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0s"), (59.9, "59.9s"), (65, "1:05"), (3723, "1:02:03")])
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def screen(text: str) -> list[str]:
    """What a terminal shows after a text with the two movements that the view uses."""
    lines = [""]
    for part in re.findall(r"\x1b\[\d+F\x1b\[J|\x1b\[\d*m|\n|[^\x1b\n]+", text):
        if part == "\n":
            lines.append("")
        elif part.endswith("J"):
            up = int(part[2 : part.index("F")])
            del lines[len(lines) - 1 - up + 1 :]
            lines[-1] = ""
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_what_is_said_goes_above_the_view() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 101.0)
    view.on_event(RunStarted(100.0, 2))
    view.on_event(StepQueued(100.0, "a", "/p/a"))
    view.on_event(StepStarted(100.0, "a", "/p/a"))
    view.draw()
    view.write_above("a program's line\n")
    view.draw()
    assert screen(terminal.getvalue())[:3] == [
        "a program's line",
        "  a     1.0s  /p/a",
        "[1.0s] 0/2 steps: 1 running, 0 waiting, 0 done, 0 cached, 0 failed",
    ]
    view.write_above("unfinished ")
    view.draw()
    view.write_above("line\n")
    view.on_event(StepEnded(103.0, "a", "/p/a", StepEnd.SUCCEEDED, 3.0))
    view.on_event(RunEnded(104.0, 4.0))
    assert screen(terminal.getvalue()) == [
        "a program's line",
        "unfinished line",
        "a: done in 3.00 s -> /p/a",
        "[4.0s] 1/2 steps: 0 running, 0 waiting, 1 done, 0 cached, 0 failed",
        "",
    ]


def test_cached_steps_are_only_counted() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 101.0)
    view.on_event(RunStarted(100.0, 1))
    view.on_event(StepEnded(100.0, "a", "/p/a", StepEnd.CACHED))
    view.on_event(RunEnded(101.0, 1.0))
    assert screen(terminal.getvalue()) == ["[1.0s] 1/1 steps: 0 running, 0 waiting, 0 done, 1 cached, 0 failed", ""]


SCRIPT = """
import logging, sys
from marin.execution.run.step_runner import StepRunner
from marin.execution.step_spec import StepSpec
logging.basicConfig(level=logging.INFO)
def work(path):
    print("said by the step")
    sys.stdout.writelines(["said in ", "two parts\\n"])
    inner = [] if path.endswith("inner") else [StepSpec(name="i", override_output_path=sys.argv[1] + "/inner", fn=work)]
    StepRunner().run(inner)
    logging.info("logged by the step")
StepRunner().run([StepSpec(name="a", output_path_prefix=sys.argv[1], fn=work)])
print("after the run")
"""


@pytest.mark.e2e
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_has_a_view_and_a_file_has_lines(tmp_path: Path, is_terminal: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "xterm"}
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # a terminal that nobody has open any more
            break
        if not part:
            break
        output += part
    os.close(ours)
    assert process.wait(30) == 0
    text = output.decode()
    for expected in ("said by the step", "said in two parts", "logged by the step", "after the run", "a: done in"):
        assert expected in text
    # The run within the step has plain lines, on a terminal too: two views would draw over each other.
    assert "step i: done in" in text
    assert ("0 running, 0 waiting, 1 done, 0 cached, 0 failed" in text) == is_terminal
    assert ("step a: done in" in text) != is_terminal
    assert ("\x1b[" in text) == is_terminal


def test_a_step_whose_job_waits_is_queued_until_it_starts() -> None:
    found = RunProgress()
    found.take(RunStarted(100.0, 1))
    found.take(StepQueued(100.0, "s", "/p/s"))
    found.take(StepJobQueued(101.0, "s", "/p/s", "no TPU is free"))
    line, summary = found.lines(now=101.0, width=80, height=20)
    assert line.startswith("  s  ")
    assert "no TPU is free" in line
    assert line.endswith("/p/s")
    assert "0 running, 1 queued, 0 waiting" in summary
    found.take(StepStarted(102.0, "s", "/p/s"))
    assert "1 running, 0 waiting" in found.summary(102.0)
    found.take(StepJobQueued(103.0, "t", "/p/t", "no TPU is free"))
    found.take(StepEnded(103.0, "t", "/p/t", StepEnd.FAILED, error="bad"))
    assert "1 running, 0 waiting" in found.summary(103.0)
