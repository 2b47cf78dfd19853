"""Running: order, events, failures, limits, interrupts, and what is left in storage."""

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, output_path_of, versioned
from marin.execution.lease.status_file import PreviousTaskFailedError, StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.run.plan_source import PlanSource, run_tasks
from marin.execution.run.runner import StepRun
from marin.execution.run.step_task import StepResult, StepTask
from rigging.errors import StepFailed
from support.marin.steps import MakeExecutor, MakeStep


class Journal:
    def __init__(self) -> None:
        self.names: list[str] = []

    def fn(self, name: str) -> Callable[[Any], None]:
        return lambda _: self.names.append(name)


@pytest.fixture
def journal() -> Journal:
    return Journal()


def statuses(executor: Executor) -> dict[str, str | None]:
    return {step.name: StatusFile(path).status for step, path in executor.output_paths.items()}


def test_a_step_that_fails_on_a_full_disk_says_which(tmp_path: Path) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    [result] = run_tasks([StepTask("a", str(tmp_path / "out"), frozenset(), fill)], {})
    [note] = result.error.__notes__
    assert note.startswith(f"the disk of {tmp_path}/out is full: ")
    assert note.endswith(" are free; free some space, and run it again")


def test_a_step_without_a_function_is_done_after_its_inputs(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    executor.run([make_step("all", make_step("a"), fn=None)])
    assert statuses(executor) == {"a": STATUS_SUCCESS, "all": STATUS_SUCCESS}


def test_a_defect_of_the_run_itself_ends_the_run(tmp_path: Path) -> None:
    class Broken(PlanSource):
        def ended(self, result: StepResult) -> list[StepTask | StepResult]:
            raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError, match="a defect"):
        StepRun(Broken([StepTask("a", str(tmp_path), frozenset(), lambda: None)], {})).run()


def test_files_in_an_output_path(make_step: MakeStep, make_executor: MakeExecutor, prefix: str) -> None:
    a = make_step("a", versioned(1), description="for people")
    b = make_step("b", a / "f", 3, fn=repr)
    executor = make_executor()
    path = Path(executor.run([b])[b])
    assert (path / ".executor_status").read_bytes() == b"SUCCESS"
    assert not (path / ".executor_status.lock").exists()
    text = (path / ".executor_info").read_text()
    assert text == json.dumps(json.loads(text), indent=2)
    assert json.loads(text) == {
        "name": "b",
        "fn_name": "builtins.repr",
        "config": {"x": f"{executor.output_paths[a]}/f", "y": 3},
        "override_output_path": None,
        "version": {
            "name": "b",
            "config": {"x": "DEP[0]/f"},
            "dependencies": [{"name": "a", "config": {"x": 1}, "dependencies": []}],
        },
        "dependencies": [executor.output_paths[a]],
        "output_path": str(path),
        "unversioned": {"y": 3},
        "source": {},
        "classes": {"(config)": f"{type(b.config).__module__}.AnyConfig"},
    }
    assert executor.executor_info_path.startswith(f"{prefix}/experiments/test_runner-")
    run_info = json.loads(Path(executor.executor_info_path).read_text())
    assert {"worker_id", "git_commit", "caller_path", "created_date", "user", "prefix", "steps"} <= set(run_info)
    assert run_info["caller_path"] == __file__
    assert [step["name"] for step in run_info["steps"]] == ["a", "b"]
    assert "description" not in run_info["steps"][0]
    assert executor.get_experiment_url() == executor.executor_info_path


def test_what_failed_is_tried_again_or_not(make_step: MakeStep, make_executor: MakeExecutor, journal: Journal) -> None:
    broken = [True]

    def sometimes(_: Any) -> None:
        if broken[0]:
            raise OSError("disk")

    a = make_step("a", fn=sometimes)
    b = make_step("b", a, fn=journal.fn("b"))
    with pytest.raises(StepFailed):
        make_executor().run([b])
    broken[0] = False
    with pytest.raises(StepFailed, match=r"1 step\(s\) failed[\s\S]*failed previously") as caught:
        make_executor().run([b], force_run_failed=False)
    assert isinstance(caught.value.__cause__, PreviousTaskFailedError)
    make_executor().run([b])
    assert journal.names == ["b"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), SystemExit()])
def test_an_exit_is_the_steps_failure(make_step: MakeStep, make_executor: MakeExecutor, error: BaseException) -> None:
    def leave(_: Any) -> None:
        raise error

    executor = make_executor()
    with pytest.raises(StepFailed, match=type(error).__name__) as caught:
        executor.run([make_step("a", fn=leave)])
    assert caught.value.__cause__ is error
    assert statuses(executor) == {"a": STATUS_FAILED}


def test_pseudo_dependencies_are_only_named(make_step: MakeStep, make_executor: MakeExecutor, journal: Journal) -> None:
    below = make_step("below", fn=journal.fn("below"))
    named = make_step("named", below, fn=journal.fn("named"))
    seen: list[Any] = []
    user = make_step("user", output_path_of(named, "f").nonblocking(), fn=lambda config: seen.append(config.x))
    executor = make_executor()
    executor.run([user])
    assert journal.names == []
    assert seen == [f"{executor.output_paths[named]}/f"]
    assert executor.is_pseudo_dep == {below: True, named: True, user: False}
    executor.run([user, named])
    assert journal.names == ["below", "named"]
    assert executor.is_pseudo_dep == {below: False, named: False, user: False}


def test_a_dry_run_touches_no_storage(
    make_step: MakeStep, make_executor: MakeExecutor, prefix: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def refuse(*_: Any) -> Any:
        raise AssertionError("storage was touched")

    monkeypatch.setattr("marin.execution.run.pipeline.read_output_states", refuse)
    paths = make_executor().run([make_step("b", make_step("a"))], dry_run=True)
    printed = capsys.readouterr().out
    assert all(path in printed for path in paths.values())
    assert not os.path.exists(prefix)


def test_executors_at_once_run_steps_once(make_step: MakeStep, make_executor: MakeExecutor, journal: Journal) -> None:
    steps = [make_step(f"s{index}", fn=journal.fn(f"s{index}")) for index in range(8)]
    last = make_step("last", steps, fn=journal.fn("last"))
    runs = [threading.Thread(target=make_executor().run, args=([last],)) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
    assert sorted(journal.names) == sorted([*(f"s{index}" for index in range(8)), "last"])


def test_threads_that_waited_for_work_all_take_it_up_again(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    """Wide, narrow and wide again, often: whoever counts them wrong ends with too few, and steps wait for nothing."""
    gates = [threading.Barrier(30, timeout=20) for _ in range(4)]
    step = make_step("start")
    for index, gate in enumerate(gates):
        wide = [make_step(f"w{index}-{number}", step, fn=lambda _, gate=gate: gate.wait()) for number in range(30)]
        step = make_step(f"narrow{index}", wide)
    executor = make_executor()
    executor.run([step])
    assert set(statuses(executor).values()) == {STATUS_SUCCESS}


def test_steps_are_found_by_the_text_of_their_versions(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    a = make_step("a", versioned(1))
    b, again = make_step("b", a), make_step("a", versioned(1))
    executor = make_executor()
    executor.run([b, again])
    assert len(executor.version_str_to_step) == 2
    assert {step.name: executor.version_strs[step] for step in (a, b)} == {
        step.name: text for text, step in executor.version_str_to_step.items()
    }
    with pytest.raises(KeyError):
        executor.version_str_to_step["{}"]


def test_threads_end_with_the_run(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    own: list[str] = []
    before = set(threading.enumerate())  # an interrupted run keeps its lease's thread

    def note_threads(_: Any) -> None:
        own.extend(thread.name for thread in threading.enumerate() if thread.name.startswith("marin-"))

    make_executor().run([make_step(f"s{index}", versioned(index), fn=note_threads) for index in range(5)])
    assert {name.rstrip("0123456789") for name in own} >= {"marin-step-", "marin-lease-keeper", "marin-event-log"}
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("marin-"):
            thread.join(10)
            assert not thread.is_alive()
