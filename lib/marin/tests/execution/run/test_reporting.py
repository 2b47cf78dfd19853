"""Reporting never decides: what is shown and written down about a run does not change how it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep, executor_main, this_output_path
from marin.execution.lease.status_file import StatusFile
from marin.execution.report.events import StepEnd
from marin.execution.script.main import ExecutorMainConfig
from rigging.errors import StepFailed


class Mute(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class MuteValue:
    def __str__(self) -> str:
        raise ZeroDivisionError


def fail_mutely(_: Any) -> None:
    raise Mute


def do_nothing(_: Any) -> None: ...


def test_a_run_whose_own_file_cannot_be_written_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As on a read-only prefix, all of whose outputs are there."""
    step = ExecutorStep(name="a", fn=do_nothing, config=this_output_path())
    Executor(str(tmp_path), str(tmp_path / "experiments")).run([step])
    (tmp_path / "no-directory").write_text("")
    executor = Executor(str(tmp_path), str(tmp_path / "no-directory"))
    executor.run([step])
    assert [result.end for result in executor.results] == [StepEnd.CACHED]
    assert executor.executor_info_path is None
    assert f"info file could not be written to {tmp_path}/no-directory" in caplog.text


def test_an_error_without_words_fails_its_step_only(tmp_path: Path) -> None:
    mute = ExecutorStep(name="mute", fn=fail_mutely, config=None)
    after = ExecutorStep(name="other", fn=do_nothing, config=MuteValue())
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    with pytest.raises(StepFailed, match=r"(?s)1 step\(s\) failed:.*a Mute whose str\(\) raises ZeroDivisionError"):
        executor.run([mute, after])
    assert StatusFile(executor.output_paths[mute]).status == "FAILED"
    assert StatusFile(executor.output_paths[after]).status == "SUCCESS"


SCRIPT = """
import os, sys
from marin.execution import ExecutorStep, executor_main
from marin.execution.script.main import ExecutorMainConfig
def work(_): {work}
executor_main(ExecutorMainConfig(prefix=sys.argv[1]), [ExecutorStep(name="schritt/\u00fc", fn=work, config=None)])
"""


def run_script(tmp_path: Path, work: str, stdout: int | None, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(work=work), str(tmp_path)],
        stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize(("work", "code"), [("pass", 0), ("1 / 0", 1)])
def test_a_closed_pipe_changes_no_end(tmp_path: Path, work: str, code: int) -> None:
    import os

    reads, writes = os.pipe()
    os.close(reads)
    done = run_script(tmp_path, work, writes)
    os.close(writes)
    assert done.returncode == code, done.stderr
    assert "BrokenPipe" not in done.stderr
    assert ("StepFailed" in done.stderr) is (code == 1)


@pytest.mark.e2e
def test_a_closed_stdout_changes_no_end(tmp_path: Path) -> None:
    script = f"exec {sys.executable} -c '{SCRIPT.format(work='pass')}' {tmp_path} >&-"
    done = subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.e2e
def test_names_that_stdout_cannot_show_are_escaped(tmp_path: Path) -> None:
    done = run_script(tmp_path, "pass", subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "schritt/\\xfc  SUCCESS" in done.stdout


def test_a_raising_summary_hides_no_failure(tmp_path: Path) -> None:
    class Gone:
        encoding = "utf-8"

        def write(self, _: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    gone: Any = Gone()
    with contextlib.redirect_stdout(gone), pytest.raises(StepFailed, match="division by zero"):
        executor_main(
            ExecutorMainConfig(prefix=str(tmp_path)), [ExecutorStep(name="a", fn=lambda _: 1 / 0, config=None)]
        )
