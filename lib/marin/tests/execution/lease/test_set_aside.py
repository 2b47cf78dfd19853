"""A step that runs again by force: its earlier output stays until that succeeded, on every kind of storage."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin.execution import Executor, ExecutorStep, this_output_path
from marin.execution.explain import explain_steps
from marin.execution.lease.set_aside import ForcedOutputs
from marin.execution.plan.selection import NoSuchStep
from marin.execution.record.readers import await_inputs
from marin.execution.report.events import StepEnd, StepEnded
from marin.stored_files import files_added, files_below
from rigging.distributed_lock import lease
from rigging.errors import Conflict, StepFailed
from rigging.filesystem import open_url, url_to_fs
from support.marin.buckets import bucket_root


@pytest.fixture(params=["disk", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        yield str(tmp_path) if request.param == "disk" else stack.enter_context(bucket_root(request.param, "forced"))


class Writer:
    """The function of a step: writes files, and then does what the test says."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def __call__(self, path: str) -> None:
        for name in self.names:
            with open_url(f"{path}/{name}", "w") as file:
                file.write(name)
        print(f"wrote {self.names}")
        self.then()


def files(path: str) -> set[str]:
    fs, place = url_to_fs(path)
    fs.invalidate_cache()
    found = {str(name)[len(place.rstrip("/")) + 1 :] for name in fs.find(place)}
    return found - {".executor_info", ".log", ".error", ".executor_status.lock.fence"}


def bad() -> None:
    raise ValueError("no cheese")


def test_an_output_is_replaced_only_by_a_success(root: str) -> None:
    write = Writer()
    step = ExecutorStep(name="numbers", fn=write, config=this_output_path())
    above = ExecutorStep(name="sum", fn=write, config={"from": step / "a", "to": this_output_path()})

    def run(*force: str, fails: bool = False) -> str:
        executor = Executor(root, f"{root}/experiments")
        write.then = bad if fails else lambda: None
        with pytest.raises(StepFailed, match="no cheese") if fails else contextlib.nullcontext():
            executor.run([step], force=force)
        return executor.output_paths[step]

    write.names = ["a", "part/b"]
    path = run()
    first = files(path)
    assert {"a", "part/b", ".executor_status"} <= first
    write.names = ["a", "c"]
    run()
    assert files(path) == first, "without --force nothing runs"
    run("^numb", fails=True)
    assert files(path) == first, "a failure puts back what was there, and nothing of it stays"
    with open_url(f"{path}/.log", "r") as file:
        assert "wrote ['a', 'c']" in file.read()
    with lease(f"{path}/.executor_status.lock"), pytest.raises(StepFailed, match=r"lock is held"):
        Executor(root, f"{root}/experiments").run([step], force=["numbers"])
    assert files(path) == first

    forced = ForcedOutputs([path])
    forced.set_aside(path)
    assert files(path) == {".executor_status"}
    forced.close()
    assert {"a", "part/b", ".executor_status"} <= files(path), "an interrupt puts it back"
    for force in ((), ("numbers",)):
        ForcedOutputs([path]).set_aside(path)
        with open_url(f"{path}/.executor_status", "w") as file:
            file.write("RUNNING")
        run(*force, fails=bool(force))
        assert {"a", "part/b", ".executor_status"} <= files(path), "what a killed run left aside counts, too"
        assert not files(f"{path}.forced")

    run("numbers")
    assert {"a", "c"} <= files(path)
    assert "part/b" not in files(path)
    assert not files(f"{path}.forced")
    executor = Executor(root, f"{root}/experiments")
    explained = explain_steps(executor, [above], force=["numbers"])
    assert [str(item.action) for item in explained] == ["run", "run"]
    assert explained[0].reason == "its output exists, and --force makes it again"
    with pytest.raises(NoSuchStep, match="did you mean numbers"):
        executor.run([step], force=["Numbers"])


def put(path: str, text: str = "x") -> None:
    with open_url(path, "w") as file:
        file.write(text)


def test_an_output_that_is_read_or_holds_foreign_files_is_not_replaced(root: str) -> None:
    write = Writer()
    write.names = ["a"]
    step = ExecutorStep(name="numbers", fn=write, config=this_output_path())
    reader = ExecutorStep(name="sum", fn=lambda config: None, config={"from": step / "a", "to": this_output_path()})

    def run(*force: str) -> Executor:
        executor = Executor(root, f"{root}/experiments")
        executor.run([reader], force=force)
        return executor

    executor = run()
    path, above = executor.output_paths[step], executor.output_paths[reader]
    first, names = files(path), f"sum ({above}) of run test_set_aside-"
    with lease(f"{above}/.executor_status.lock") as held:
        with pytest.raises(Conflict, match=r"numbers-\w+ is being read by .*Wait until that ends") as refused:
            run("numbers")
        assert names in str(refused.value)
        assert f"process {os.getpid()} of {os.uname().nodename}" in str(refused.value)
        assert held.worker_id not in str(refused.value)
        # A reader that started after that look: the status has changed by now, and everything else is where it was.
        forced = ForcedOutputs([path], lambda _: ["sum"] if read_status(path) == "RUNNING" else [])
        with pytest.raises(Conflict, match="being read by sum"):
            forced.set_aside(path)
    assert files(path) == first
    assert not files(f"{path}.forced")

    if not path.startswith("gs://"):
        for name in ("a", ".executor_info"):  # and so of all files
            os.chmod(f"{path}/{name}", 0o640)
        ForcedOutputs([path]).check([path])
    put(f"{path}/notes.md")
    with pytest.raises(Conflict, match=r"changed after its step ended.*: notes.md. Move"):
        run("numbers")
    assert files(path) == first | {"notes.md"}


def read_status(path: str) -> str:
    with open_url(f"{path}/.executor_status", "r") as file:
        return str(file.read())


def test_a_step_waits_for_an_input_that_is_made_again(root: str) -> None:
    path = f"{root}/numbers-abcdef"
    forced = ForcedOutputs([path])
    put(f"{path}/a")
    put(f"{path}.SUCCESS")  # the mark of an output from before status files
    await_inputs([path], "sum", lambda _: pytest.fail("nothing to wait for"))
    forced.set_aside(path)
    assert files(path) == {".executor_status"}
    ends = iter(["FAILED", "RUNNING", "SUCCESS"])  # a failure may be followed by another attempt

    def make(seconds: float) -> bool:
        put(f"{path}/b")
        put(f"{path}/.executor_status", next(ends))
        return False

    await_inputs([path], "sum", make)
    assert not list(ends), "it waited for the last"
    forced.on_event(StepEnded(0.0, "numbers", path, StepEnd.SUCCEEDED))
    assert files(path) == {".executor_status", "b"}
    assert not files(f"{path}.forced")

    forced.set_aside(path)  # by a run that is then killed
    await_inputs([path], "sum", lambda _: False, patience_seconds=0)
    assert files(path) == {".executor_status", "b"}


def test_a_run_waits_with_its_step_until_an_input_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write, read = Writer(), Writer()
    write.names = ["a"]
    numbers = ExecutorStep(name="numbers", fn=write, config=this_output_path())
    other = ExecutorStep(name="other", fn=read, config=this_output_path())
    config = {"numbers": numbers / "a", "other": other}
    reader = ExecutorStep(name="sum", fn=lambda config: Path(config["numbers"]).read_text(), config=config)
    executor = Executor(str(tmp_path), f"{tmp_path}/experiments")
    forced = ForcedOutputs([executor.run([numbers])[numbers]])
    read.then = lambda: forced.set_aside(executor.output_paths[numbers])  # once this run has seen that it is there

    class PutBack(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "a run with --force makes its input again" in record.getMessage():
                forced.close()

    handler = PutBack()
    caplog.set_level(logging.INFO)
    logging.getLogger("marin.execution.record.readers").addHandler(handler)
    executor.run([reader])
    logging.getLogger("marin.execution.record.readers").removeHandler(handler)
    assert "waiting: " in caplog.text


def test_what_a_kill_has_left_in_two_places_belongs_together(tmp_path: Path) -> None:
    path = tmp_path / "numbers-abcdef"
    for name in ("numbers-abcdef/b", "numbers-abcdef.forced/a"):  # moved: one of two
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    (path / ".executor_status").write_text("RUNNING")
    ForcedOutputs([]).resume([str(path)])
    assert files(str(path)) == {"a", "b", ".executor_status"}
    assert read_status(str(path)) == "SUCCESS"
    (path / ".marin-tmp-.executor_status.lock").write_text("")  # from a full disk
    assert files_added(list(files_below(str(path)))) == [], "what came back is not somebody's own"
