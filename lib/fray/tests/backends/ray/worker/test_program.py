"""Programs of jobs on Ray, and the KeyboardInterrupt by which Ray cancels: it comes between any two steps."""

import _thread
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fray.backends.common.processes import OutputFile, ProcessTree
from fray.testing import Flag, eventually
from fray.testing.contract.lifecycle import HOLD_LOCK, is_held
from fray.types import BinaryEntrypoint

if TYPE_CHECKING:
    from fray.backends.ray.payload import TaskResult

pytestmark = pytest.mark.ray

SLEEPER = BinaryEntrypoint(sys.executable, ("-c", "import signal; signal.pause()"))


def run_program(
    entry: BinaryEntrypoint, workspace: str, output: OutputFile, **changed: Callable[..., object]
) -> "TaskResult | None":
    """Run it, with some methods of its `Program` changed."""
    # Not above: ray must not be imported before a test cluster of another module is there.
    from fray.backends.ray.worker import program

    return program.run_program(entry, workspace, output, type("Changed", (program.Program,), changed))


def test_a_program_cancelled_while_it_starts_is_stopped(tmp_path: Path) -> None:
    from fray.backends.ray.worker.program import Program

    trees: list[ProcessTree] = []
    interrupted = threading.Event()

    def launch(program: Program) -> ProcessTree:
        """Interrupt before anybody can know of the process."""
        trees.append(Program.launch(program))
        _thread.interrupt_main()
        assert interrupted.wait(60)
        return trees[-1]

    def stop(program: Program) -> None:
        interrupted.set()
        Program.stop(program)

    outcome = run_program(SLEEPER, str(tmp_path), OutputFile(), launch=launch, stop=stop)
    assert outcome is not None
    assert "SIGTERM" in (outcome.summary or "")
    (tree,) = trees
    with pytest.raises(ProcessLookupError):
        os.killpg(tree.group, 0)


def test_a_program_cancelled_before_it_starts_never_does(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    entry = BinaryEntrypoint("touch", (str(marker),))
    outcome = run_program(entry, str(tmp_path), OutputFile(), start=interrupted)
    assert outcome is not None
    assert not marker.exists()


def test_a_program_that_cannot_be_started_is_named_and_has_no_exit_code(tmp_path: Path) -> None:
    def refuse(_: object) -> ProcessTree:
        raise ValueError("embedded null byte")

    outcome = run_program(BinaryEntrypoint("/no/such/program"), str(tmp_path), OutputFile())
    assert outcome is not None
    assert "/no/such/program" in (outcome.summary or "")
    outcome = run_program(SLEEPER, str(tmp_path), OutputFile(), launch=refuse)
    assert outcome is not None
    assert "cannot start" in (outcome.summary or "")
    assert "ValueError: embedded null byte" in (outcome.summary or "")
    assert outcome.exit_code is None, "no process has ended"


def test_a_missing_workspace_is_no_reason_to_fail(tmp_path: Path) -> None:
    output = OutputFile()
    assert run_program(BinaryEntrypoint("pwd"), str(tmp_path / "none"), output) is None
    eventually(lambda: os.getcwd() in output.read(), "it ran where this process is")


@pytest.mark.process
def test_a_program_does_not_outlive_the_worker_process_that_runs_it(tmp_path: Path) -> None:
    script = """
import sys
from fray.backends.common.processes import OutputFile, ProcessTree
from fray.backends.ray.worker.program import run_program
from fray.testing import Flag
from fray.types import BinaryEntrypoint

def wait(tree):
    Flag(waits).set()
    return really_wait(tree)

really_wait, ProcessTree.wait = ProcessTree.wait, wait
waits, *words = sys.argv[1:]
run_program(BinaryEntrypoint("sh", ("-c", *words)), None, OutputFile())
"""
    waits, holds = (Flag(str(tmp_path / name)) for name in ("waits", "holds"))
    with subprocess.Popen([sys.executable, "-c", script, waits.path, HOLD_LOCK, "sh", holds.path]) as worker:
        waits.wait()
        holds.wait()
        assert is_held(holds)
        worker.kill()
    eventually(lambda: not is_held(holds), "the program is gone with all it started")
