"""What steps print: whole lines with their names, bars and prompts on a terminal with a view."""

import contextlib
import contextvars
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.types import ResourceConfig
from marin.execution.jobs.remote import remote
from marin.execution.log.rows import Rows
from marin.execution.log.step_output import BAR_SECONDS, StepOutput, speaking, step_output
from marin.execution.views.live import LiveView
from support.marin.steps import MakeExecutor, MakeStep


@pytest.mark.parametrize(
    ("written", "whole", "left"),
    [
        (["one\ntwo\nthr"], ["one", "two"], "thr"),
        (["a\r\nb"], ["a"], "b"),
        (["", "\n", "\n", "x"], ["", ""], "x"),
        (["\r 10%", "\r 20%"], [], " 20%"),
        (["\r 10%", "\r100%", "\n", "next\n"], ["100%", "next"], ""),
        # Two bars of tqdm, the lower one written by going down and up again.
        (["\router 0", "\n", "\rinner 0", "\x1b[A", "\n", "\rinner 1", "\x1b[A", "\router 1"], [], "outer 1"),
        (["\x1b[32mgreen\x1b[0m\n"], ["\x1b[32mgreen\x1b[0m"], ""),
    ],
)
def test_lines_of_one_step(written: list[str], whole: list[str], left: str) -> None:
    rows = Rows()
    assert [line for text in written for line in rows.feed(text)] == whole
    assert rows.texts[rows.at] == left


def test_a_bar_that_ended_is_a_line() -> None:
    rows = Rows()
    assert rows.feed("\r100%\n") == []
    assert rows.settle() == ["100%"]
    assert rows.feed("after\n\n") == ["after"]
    assert rows.end() == [""]


def test_a_bar_below_those_of_other_steps_is_one_line() -> None:
    rows = Rows()
    drawn = ["\n", "\n", "\rb: 0%", "\x1b[A", "\x1b[A", "said\n", "\n\n\rb:  90%", "\x1b[A\x1b[A", "\rb: 100%", "\n"]
    assert [line for text in drawn for line in rows.feed(text)] == ["said"]
    assert rows.end() == ["b: 100%"]


def test_lines_do_not_mix(make_step: MakeStep, make_executor: MakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    turn = threading.Barrier(4, timeout=20)

    def talk(config: Any) -> None:
        for index in range(20):
            turn.wait()
            for part in ("line ", str(index)):
                sys.stdout.write(part)
            sys.stdout.writelines([" of ", config.x, "\n"])
            print("half", config.x, end="")
            print(" whole", config.x)

    make_executor().run([make_step(f"s{index}", f"s{index}", fn=talk) for index in range(4)])
    lines = capsys.readouterr().out.splitlines()
    expected = [f"[s{s}] line {i} of s{s}" for s in range(4) for i in range(20)]
    expected += [f"[s{s}] half s{s} whole s{s}" for s in range(4)] * 20
    assert sorted(lines) == sorted(expected)


def test_replica_lines(make_step: MakeStep, make_executor: MakeExecutor, capsys: pytest.CaptureFixture[str]) -> None:
    turn = threading.Barrier(3, timeout=20)

    def talk(_config: Any) -> None:
        for index in range(5):
            for part in ("line ", str(index), "\n"):
                turn.wait()
                sys.stdout.write(part)
                sys.stdout.flush()
        print("left", end="")

    step = make_step("s", fn=remote(talk, resources=ResourceConfig.with_cpu(cpu=0.1, replicas=3)))
    executor = make_executor()
    with LocalClient() as client, set_current_client(client):
        executor.run([step])
    said = [*(f"line {line}" for line in range(5)), "left"]
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"[s/{replica}] {text}" for replica in range(3) for text in said)
    logged = (Path(executor.output_paths[step]) / ".log").read_text().splitlines()
    for replica in range(3):
        assert [line for line in logged if line.startswith(f"[{replica}] ")] == [f"[{replica}] {text}" for text in said]


def test_what_is_flushed_is_there_at_once_and_others_begin_a_new_line() -> None:
    stream = io.StringIO()
    output = StepOutput(prefixed=True, is_live=False)
    contexts = {name: contextvars.copy_context() for name in ("a", "b")}
    speakers = {name: speaking(name, f"/p/{name}") for name in contexts}
    for name, speaker in speakers.items():
        contexts[name].run(speaker.__enter__)
    for name, text, shown in (
        ("a", "waiting", "[a] waiting"),
        ("a", ".", "[a] waiting."),
        ("b", "b says\n", "[a] waiting.\n[b] b says\n"),
        ("a", ". done\n", "[a] waiting.\n[b] b says\n[a] . done\n"),
    ):
        contexts[name].run(output.write, stream, text)
        contexts[name].run(output.flush, stream)
        assert stream.getvalue() == shown
    for name, speaker in speakers.items():
        contexts[name].run(speaker.__exit__, None, None, None)


def test_a_bar_in_a_log_is_written_now_and_then() -> None:
    stream, clock = io.StringIO(), [100.0]
    output = StepOutput(prefixed=False, is_live=False, now=lambda: clock[0])
    with speaking("a", "/p/a"):
        for percent in range(100):
            clock[0] += BAR_SECONDS / 20
            output.write(stream, f"\r{percent}%")
            output.flush(stream)
        output.write(stream, "\r100%\n")
        output.settle()
    assert stream.getvalue().splitlines() == ["20%", "40%", "60%", "80%", "100%"]


class Unread(io.StringIO):
    def write(self, text: str = "") -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    flush = write  # type: ignore[assignment]


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_goes_on_when_nobody_reads_what_it_prints(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    def speak(_config: Any) -> None:
        print("one", flush=True)
        print("half", end="", flush=True)
        print(" two")

    steps = [make_step(f"s{index}", fn=speak) for index in range(count)]
    with contextlib.redirect_stdout(Unread()):
        paths = make_executor().run(steps)
    for path in paths.values():
        assert (Path(path) / ".log").read_text().splitlines()[1:] == ["one", "half two"]
    told = [record.getMessage() for record in caplog.records if "cannot be shown" in record.getMessage()]
    assert len(told) <= 1  # in a process once, whichever run it is


def test_a_step_that_closes_its_stream_closes_it_for_nobody_else(
    make_step: MakeStep, make_executor: MakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    def close(_config: Any) -> None:
        with sys.stdout as file:
            file.write("first\n")
        sys.stdout.close()

    steps = [make_step("a", fn=close), make_step("b", fn=lambda _: print("second"))]
    make_executor().run(steps, max_concurrent=1)
    print("and the script")
    assert capsys.readouterr().out == "first\nsecond\nand the script\n"


@pytest.mark.parametrize("count", [1, 2])
def test_bytes_are_in_the_log_too(make_step: MakeStep, make_executor: MakeExecutor, count: int) -> None:
    def speak(_config: Any) -> None:
        print("text")
        sys.stdout.buffer.write("gr\u00fc".encode()[:-1])
        sys.stdout.buffer.write("gr\u00fc".encode()[-1:] + b"n \xff\n")
        text = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8")
        text.write("wrapped\n")
        text.close()
        print("end")

    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(shown):
        paths = make_executor().run([make_step(f"s{index}", fn=speak) for index in range(count)])
    for path in paths.values():
        assert (Path(path) / ".log").read_text().splitlines()[1:] == ["text", "gr\u00fcn \\xff", "wrapped", "end"]
    if count == 1:  # as it came
        assert shown.buffer.getvalue() == "text\ngr\u00fcn ".encode() + b"\xff\nwrapped\nend\n"  # type: ignore[attr-defined]


def test_the_streams_are_put_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with step_output(is_parallel=True):
        held = sys.stdout
        assert held is not before[0]
        with step_output(is_parallel=True):
            assert sys.stdout is held
    assert (sys.stdout, sys.stderr) == before
    assert held.write("said") == 4  # who kept one may go on writing
    assert capsys.readouterr().out == "said"


@pytest.mark.parametrize(
    ("name", "closed"), [("stdout", contextlib.redirect_stdout), ("stderr", contextlib.redirect_stderr)]
)
def test_a_stream_closed_before(make_step: MakeStep, make_executor: MakeExecutor, name: str, closed: Any) -> None:
    with closed(None):
        make_executor().run([make_step(f"s{index}", fn=lambda _: print("said")) for index in range(2)])
        assert getattr(sys, name) is None


class Blocked(io.StringIO):
    """A stream that takes nothing, but in forks."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.go_on = threading.Event(), threading.Event()
        self.process = os.getpid()

    def write(self, text: str) -> int:
        if os.getpid() == self.process:
            self.written.set()
            self.go_on.wait(20)
        return super().write(text)


def ends_in_a_fork(say: Callable[[], object]) -> bool:
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        say()
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_prints_though_another_step_was_printing() -> None:
    stream = Blocked()

    def talk() -> None:
        with speaking("a", "/p/a"):
            print("a", file=sys.stdout)

    with contextlib.redirect_stdout(stream), step_output(is_parallel=True):
        other = threading.Thread(target=talk)
        other.start()
        assert stream.written.wait(20)
        with speaking("b", "/p/b"):
            assert ends_in_a_fork(lambda: print("b"))
            # In this process, "b" ends after what "a" writes.
            stream.go_on.set()
        other.join()


def test_a_fork_prints_though_the_view_was_being_drawn() -> None:
    terminal = Blocked()
    view = LiveView(terminal, size=lambda: (80, 24))
    other = threading.Thread(target=view.draw)
    other.start()
    assert terminal.written.wait(20)
    assert ends_in_a_fork(lambda: view.write_above("said\n"))
    terminal.go_on.set()
    other.join()
