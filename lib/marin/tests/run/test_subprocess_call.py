"""Calls in processes of their own: what comes back, what is left, and when they end."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from fray.errors import JobFailed
from fray.testing.waiting import eventually
from marin.run import in_subprocess
from rigging.errors import InvalidRequest
from support.rigging.processes import is_gone

pytestmark = pytest.mark.process


class OddError(Exception):
    def __init__(self, device: str, chips: int) -> None:
        super().__init__(f"{device} has {chips} chips")
        self.chips = chips


def test_a_call_returns_prints_and_raises_as_if_it_were_here(capfd: pytest.CaptureFixture[str]) -> None:
    @in_subprocess
    def work(number: int, *, fail: bool = False) -> tuple[int, int]:
        print("from the work")
        if fail:
            raise OddError("v4-8", number)
        return number, os.getpid()

    number, process = work(3)
    assert number == 3
    assert process != os.getpid()
    assert capfd.readouterr().out == "from the work\n"
    with pytest.raises(OddError, match="v4-8 has 4 chips") as caught:
        work(4, fail=True)
    assert caught.value.chips == 4
    assert "in work" in str(caught.value.__cause__), "where it was raised there"
    assert work.__name__ == "work"


def test_a_process_that_dies_is_told_with_its_signal_and_takes_along_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "child"

    @in_subprocess
    def die() -> None:
        child = subprocess.Popen(["sleep", "600"])
        note.write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(JobFailed, match=r"die: its process ended without a result: signal 9") as caught:
        die()
    assert caught.value.exit_code == -9
    eventually(lambda: is_gone(int(note.read_text())), "it ends")


CALLER = """
import os, sys, time
from pathlib import Path
from marin.run import in_subprocess

@in_subprocess
def work(note):
    Path(note + ".part").write_text(str(os.getpid()))
    os.rename(note + ".part", note)
    time.sleep(600)

try:
    work(sys.argv[1])
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 7)])
def test_the_call_ends_when_its_caller_is_killed_or_interrupted(tmp_path: Path, number: int, code: int) -> None:
    script, note = tmp_path / "caller.py", tmp_path / "note"
    script.write_text(CALLER)
    with subprocess.Popen([sys.executable, str(script), str(note)], process_group=0) as caller:
        eventually(lambda: note.exists() or caller.poll() is not None, "it has begun")
        caller.send_signal(number)
        assert caller.wait(30) == code
    eventually(lambda: is_gone(int(note.read_text())), "it ends")


def test_what_cannot_be_run_apart_is_refused() -> None:
    def steps() -> Generator[int, None, None]:
        yield 1

    def wrapped() -> None: ...

    wrapped.remote = wrapped  # type: ignore[attr-defined]
    things: tuple[tuple[Any, str], ...] = (
        (steps, "steps is a generator or coroutine function"),
        *((thing, "is not a function; put it over one") for thing in (5, staticmethod(steps), classmethod(steps))),
        (wrapped, r"put it below @ray\.remote, so that .*wrapped runs where Ray starts it"),
    )
    for thing, said in things:
        with pytest.raises(InvalidRequest, match=said):
            in_subprocess(thing)

    @in_subprocess
    def work(lock: object) -> None: ...

    with pytest.raises(InvalidRequest, match="work or its arguments cannot be sent"):
        work(threading.Lock())

    @in_subprocess
    def give() -> object:
        return threading.Lock()

    with pytest.raises(InvalidRequest, match=r"what .*give returned cannot be sent"):
        give()
