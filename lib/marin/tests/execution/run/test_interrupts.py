"""Runs that are interrupted: nobody else gets an output whose function, or its child, is still at work on it."""

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from marin.execution import step_lease
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.step_lease import LeaseTerms
from marin.execution.report.events import StepEnd
from marin.execution.run.children import Process, StepProcesses, processes_of_steps, ticks_now
from marin.execution.run.interruption import EndingTerms
from marin.execution.run.plan_source import run_tasks
from marin.execution.run.step_task import StepTask

BRIEF = EndingTerms(notice_seconds=0.1, grace_seconds=5)


def interrupted_run(path: Path, work: Callable[[], None], **options: Any) -> None:
    """As a notebook's cell that is interrupted while a step is at work."""
    started = threading.Event()

    def begin() -> None:
        started.set()
        work()

    def interrupt() -> None:
        started.wait(20)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        run_tasks([StepTask("a", str(path), frozenset(), begin)], {}, ending=BRIEF, **options)
    interrupter.join()


def test_a_cell_run_again_waits_for_the_interrupted_function(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    go_on, order = threading.Event(), []

    def stubborn() -> None:
        lease = step_lease()
        assert lease.lost_event.wait(20), "it is told"
        go_on.wait(20)
        order.append("first ended")

    interrupted_run(tmp_path, stubborn)
    assert StatusFile(str(tmp_path)).status == "RUNNING"
    assert StatusFile(str(tmp_path)).has_active_lock()
    assert "the function of step a still runs" in caplog.text
    threading.Timer(0.3, go_on.set).start()
    again = StepTask("a", str(tmp_path), frozenset(), lambda: order.append("second began"))
    [result] = run_tasks([again], {})
    assert result.end is StepEnd.SUCCEEDED
    assert order == ["first ended", "second began"]
    assert StatusFile(str(tmp_path)).status == "SUCCESS"


def test_what_an_interrupted_function_still_makes_does_not_count(tmp_path: Path) -> None:
    go_on = threading.Event()
    interrupted_run(tmp_path, lambda: go_on.wait(20))
    go_on.set()
    eventually(lambda: not StatusFile(str(tmp_path)).has_active_lock(), "its lease is given up")
    assert StatusFile(str(tmp_path)).status == "FAILED"
    said = (tmp_path / ".log").read_text().splitlines()
    assert said[1] == "=== interrupted: the run was stopped by Ctrl-C"
    assert said[2].startswith("=== failed: LeaseLostError: step a: its run was interrupted, so its output does not")
    assert "its run was interrupted" in (tmp_path / ".error").read_text()


def test_the_lease_of_an_interrupted_function_is_renewed_until_it_ends(tmp_path: Path) -> None:
    go_on, lock = threading.Event(), tmp_path / ".executor_status.lock"
    interrupted_run(tmp_path, lambda: go_on.wait(20), terms=LeaseTerms(0.02, 30))
    for _ in range(3):
        before = lock.read_bytes()
        eventually(lambda before=before: lock.read_bytes() != before, "it is renewed")
    go_on.set()
    eventually(lambda: not lock.exists(), "it is given up")


SCRIPT = """
import subprocess, sys, time
from pathlib import Path
from marin.execution import ExecutorStep, executor_main, this_output_path
from marin.execution.script.main import ExecutorMainConfig

def work(path):
    {work}

executor_main(ExecutorMainConfig(prefix={prefix!r}), [ExecutorStep(name="a", fn=work, config=this_output_path())])
"""

WITH_CHILD = """
    child = subprocess.Popen([sys.executable, "-c", {child!r}, path])
    child.wait()
"""

# Writes as long as it lives, and takes its time to end.
CHILD = """
import fcntl, signal, sys, time
def end(*_):
    time.sleep(0.5)
    open(sys.argv[1] + "/ended-well", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, end)
witness = open(sys.argv[1] + "/witness", "w")
fcntl.flock(witness, fcntl.LOCK_EX)
open(sys.argv[1] + "/started", "w").close()
while True:
    time.sleep(0.01)
"""


class Script:
    """A script with one step, in a process of its own; `command` goes before its command line."""

    def __init__(self, prefix: Path, work: str, command: Sequence[str] = ()) -> None:
        program = SCRIPT.format(prefix=str(prefix), work=textwrap.indent(textwrap.dedent(work), "    ").strip())
        self._prefix, self._said = prefix, prefix / "script.err"
        with self._said.open("w") as said:
            words = [*command, sys.executable, "-X", "faulthandler", "-c", program]
            self.process = subprocess.Popen(words, stderr=said)

    def output_with(self, name: str) -> Path:
        """Wait for a file of its step's output; returns the output path."""
        found: list[Path] = eventually(
            lambda: list(self._prefix.glob(f"a-*/{name}")), f"{name} is there", instead=self._state
        )
        return found[0].parent

    def _state(self) -> str:
        code = self.process.poll()
        self.process.send_signal(signal.SIGABRT)
        self.process.wait(30)
        return f"exit code {code}, {self._said.read_text()}"


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_steps_child_ends_before_its_lease(tmp_path: Path, number: signal.Signals) -> None:
    script = Script(tmp_path, WITH_CHILD.format(child=CHILD))
    output = script.output_with("started")
    script.process.send_signal(number)
    ran_after_child = []

    def take_over() -> None:
        taken = subprocess.run(["flock", "--nonblock", str(output / "witness"), "true"], check=False)
        ran_after_child.append(taken.returncode == 0)

    [result] = run_tasks([StepTask("a", str(output), frozenset(), take_over)], {str(output): "RUNNING"})
    assert result.end is StepEnd.SUCCEEDED
    assert ran_after_child == [True]
    assert (output / "ended-well").exists()
    script.process.wait(30)


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -2)])
def test_a_script_that_is_ended_leaves_a_true_status(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Its function knows nothing of it, and ends with the process."""
    script = Script(tmp_path, 'Path(path, "started").touch()\ntime.sleep(600)')
    output = script.output_with("started")
    script.process.send_signal(number)
    script.process.wait(30)
    assert script.process.returncode == code
    assert StatusFile(str(output)).status == "FAILED"
    assert not StatusFile(str(output)).has_active_lock()
    said = (output / ".log").read_text()
    by_keyboard = " by Ctrl-C" if number is signal.SIGINT else ""
    assert f"\n=== interrupted: the run was stopped{by_keyboard}\n" in said
    assert said.splitlines()[-1].startswith("=== failed: StepInterrupted: the run was interrupted, and its process")
    # Where the function was, and nothing of what called it.
    where = (output / ".error").read_text().partition("The function was here:\n")[2]
    assert re.fullmatch(r'  File "<string>", line \d+, in work\n', where)


@pytest.mark.process
def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    work = 'Path(path, "started").touch()\nwhile not Path(path, "go").exists(): time.sleep(0.01)'
    script = Script(tmp_path, work, ("nohup",))
    output = script.output_with("started")
    script.process.send_signal(signal.SIGHUP)
    (output / "go").touch()
    script.process.wait(30)
    assert script.process.returncode == 0
    assert StatusFile(str(output)).status == "SUCCESS"


def test_which_processes_are_a_steps() -> None:
    own, session, since = 10, 7, 100
    processes = [
        Process(11, 10, 7, 150),  # of this session, began during the run
        Process(12, 10, 7, 50),  # began before
        Process(13, 10, 13, 150),  # detached: a daemon, or a job's
        Process(14, 10, 14, 150),  # detached, but a child of a step's own thread
        Process(15, 14, 15, 160),  # what descends from it
        Process(18, 10, 18, 50),  # of that thread too, but from before the run
        Process(16, 1, 7, 160),  # another's
        Process(17, 16, 7, 170),
    ]
    found = processes_of_steps(processes, own, session, frozenset({14, 18}), since)
    assert sorted(process.pid for process in found) == [11, 14, 15]


@pytest.mark.parametrize("open_files", [0, 1100])
def test_children_are_found_signalled_and_seen_to_end(open_files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    before = ticks_now()
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(open_files)]
    try:
        with StepProcesses([], before) as processes:
            assert child.pid not in processes.pids
        with StepProcesses([threading.get_native_id()], before) as processes:
            assert processes.pids == [child.pid]
            assert not processes.wait(0.0)
            processes.signal(signal.SIGKILL)
            assert processes.wait(20)
            assert not processes
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        child.kill()
    assert child.wait() == -signal.SIGKILL
