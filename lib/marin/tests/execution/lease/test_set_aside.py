"""A step that runs again by force: its earlier output stays until that succeeded, on every kind of storage."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin.execution import Executor, ExecutorStep, this_output_path
from marin.execution.explain import explain_steps
from marin.execution.lease.set_aside import ForcedOutputs
from marin.execution.plan.selection import NoSuchStep
from rigging.distributed_lock import lease
from rigging.errors import StepFailed
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
    assert not {"a", ".executor_status"} & files(path)
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
    assert explained[0].reason == "its output is there, and --force makes it again"
    with pytest.raises(NoSuchStep, match="did you mean numbers"):
        executor.run([step], force=["Numbers"])
