"""What a run promises: true statuses, ends that no report changes, and a debugger at failures."""

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution import Executor, ExecutorStep, compute_output_path, this_output_path, versioned
from marin.execution.jobs.remote import remote
from marin.execution.lease.status_file import StatusFile
from marin.execution.report.events import StepEnd
from marin.execution.run.step_runner import run_step
from marin.execution.run.step_task import StepResult
from marin.execution.script.main import ExecutorMainConfig, executor_main
from marin.execution.step_spec import StepSpec
from rigging.errors import InvalidRequest, StepFailed
from support.marin.steps import MakeExecutor, MakeStep, fail


def write_there(path: str) -> None:
    Path(path, "there").write_text(os.getcwd())


async def write_there_later(path: str) -> str:
    write_there(path)
    return "kept"


def yields(path: str) -> Iterator[str]:
    write_there(path)
    yield path


async def yields_later(path: str) -> AsyncIterator[str]:
    write_there(path)
    yield path


@pytest.mark.process
@pytest.mark.parametrize("prefix", ["relout", "./a/../relout", "~/relout"])
def test_a_relative_prefix_is_the_same_everywhere(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here, there = (
        ExecutorStep(name=name, fn=fn, config=this_output_path())
        for name, fn in [("here", write_there), ("there", remote(write_there))]
    )
    with set_current_client(LocalClient(processes=True)) as client:
        paths = executor_main(ExecutorMainConfig(prefix=prefix), steps=[here, there])
        client.shutdown()
    for path in paths.values():
        assert path.startswith(f"{tmp_path}/relout/"), path
        assert Path(path, "there").exists()
    assert compute_output_path("here", this_output_path(), prefix=prefix) == paths[here]
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    assert compute_output_path("here", this_output_path()) == paths[here]


@pytest.mark.parametrize("prefix", ["", "  "])
def test_an_empty_prefix_is_refused(prefix: str) -> None:
    for use in (
        lambda: executor_main(ExecutorMainConfig(prefix=prefix), steps=[]),
        lambda: Executor(prefix, "/x"),
        lambda: compute_output_path("n", None, prefix=prefix),
    ):
        with pytest.raises(InvalidRequest, match=rf"prefix='{prefix}': empty; give a path or a URL"):
            use()


@pytest.mark.parametrize("wrap", [lambda fn: fn, remote, functools.partial], ids=["plain", "remote", "partial"])
def test_coroutines_run_to_their_end(wrap: Any, make_executor: MakeExecutor) -> None:
    step = ExecutorStep(name="n", fn=wrap(write_there_later), config=this_output_path())
    with set_current_client(LocalClient()):
        (path,) = make_executor().run([step]).values()
    assert Path(path, "there").exists()
    assert Path(path, ".artifact").read_text() == '"kept"'


def test_a_remote_coroutine_that_is_called_runs(tmp_path: Path) -> None:
    with set_current_client(LocalClient()):
        remote(write_there_later)(str(tmp_path))
    assert (tmp_path / "there").exists()


@pytest.mark.parametrize("fn", [yields, yields_later, remote(yields), functools.partial(yields)])
def test_generators_are_refused(fn: Any, make_step: MakeStep, make_executor: MakeExecutor, prefix: str) -> None:
    first = ExecutorStep(name="first", fn=write_there, config=this_output_path())
    step = ExecutorStep(name="bad", fn=fn, config={"path": this_output_path(), "x": versioned(1), "first": first})
    with pytest.raises(InvalidRequest, match=r"step 'bad': yields(_later)? is a generator function"):
        make_executor().run([step])
    assert not os.path.exists(f"{prefix}/first")


def test_a_generator_that_comes_out_of_a_function_fails_the_step(make_executor: MakeExecutor) -> None:
    step = ExecutorStep(name="bad", fn=lambda path: yields(path), config=this_output_path())
    with pytest.raises(StepFailed, match=r"is a generator function: calling it runs none of its code"):
        make_executor().run([step])
    spec = StepSpec("bad", fn=yields, output_path_prefix=make_executor().prefix)
    with pytest.raises(InvalidRequest, match=r"yields is a generator function"):
        run_step(spec)


class Mute(Exception):
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
    after = ExecutorStep(name="other", fn=do_nothing, config=Mute())
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
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(work=work), str(tmp_path)],
        stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(("work", "code"), [("pass", 0), ("1 / 0", 1)])
def test_a_closed_pipe_changes_no_end(tmp_path: Path, work: str, code: int) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = run_script(tmp_path, work, writes)
    os.close(writes)
    assert done.returncode == code, done.stderr
    assert "BrokenPipe" not in done.stderr
    assert ("StepFailed" in done.stderr) is (code == 1)


@pytest.mark.process
def test_names_that_stdout_cannot_show_are_escaped(tmp_path: Path) -> None:
    done = run_script(tmp_path, "pass", subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "schritt/\\xfc  SUCCESS" in done.stdout


class Gone:
    encoding = "utf-8"

    def write(self, *_: str) -> None:
        raise BrokenPipeError

    flush = write


def test_a_raising_summary_hides_no_failure(tmp_path: Path) -> None:
    gone: Any = Gone()
    step = ExecutorStep(name="a", fn=lambda _: 1 / 0, config=None)
    with contextlib.redirect_stdout(gone), pytest.raises(StepFailed, match="division by zero"):
        executor_main(ExecutorMainConfig(prefix=str(tmp_path)), [step])


def test_no_step_starts_while_a_failure_is_debugged(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor, ran = make_executor(), list[str]()
    threads: list[threading.Thread] = []

    def debug(result: StepResult) -> None:
        assert isinstance(result.error, ValueError)
        threads.append(threading.current_thread())
        assert not started.wait(0.1)

    started = threading.Event()

    def note(config: Any) -> None:
        started.set()
        ran.append("later")

    executor.debug = debug
    with pytest.raises(StepFailed, match="1 step"):
        executor.run([make_step("bad", fn=fail), make_step("later", fn=note)], max_concurrent=1)
    assert threads == [threading.current_thread()]
    assert ran == ["later"], "after the debugger was left"
    assert executor.failures.is_told


def test_every_failure_is_debugged_after_its_last_attempt(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor, seen = make_executor(), list[str]()
    executor.debug = lambda result: seen.append(result.task.name)
    bad = [make_step(f"bad{number}", fn=fail, retries=number, retry_delay=0.0) for number in range(3)]
    with pytest.raises(StepFailed, match="3 step"):
        executor.run([make_step("after", bad)])
    assert sorted(seen) == ["bad0", "bad1", "bad2"]


def test_what_is_raised_by_the_debugger_ends_the_run(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor, ran = make_executor(), list[str]()

    def leave(result: StepResult) -> None:
        raise StepFailed("left by q")

    executor.debug = leave
    steps = [make_step("bad", fn=fail), make_step("later", fn=lambda _: ran.append("later"))]
    with pytest.raises(StepFailed, match="left by q"):
        executor.run(steps, max_concurrent=1)
    assert ran == []
    assert [result.task.name for result in executor.results] == ["bad"], "what has ended by then is known"
