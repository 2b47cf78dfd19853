"""Rare cases: steps without a function, callers that nobody knows, errors without words, big status files."""

import functools
import hashlib
import inspect
import json
import logging
import os
import pickle
import runpy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Executor, ExecutorMainConfig, ExecutorStep, executor_main, mirrored, versioned
from marin.execution.jobs.remote import function_name
from marin.execution.jobs.results import keep_result_of_job, take_result_of_job
from marin.execution.jobs.step_call import mirror_budget_gb
from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import LockedStatus, StatusFile, step_lock
from marin.execution.lease.step_lease import step_lease
from marin.execution.record.info import STEP_INFO_FILE, caller_path, plain
from marin.execution.record.output_state import read_output_states
from marin.execution.report.events import describe_error
from marin.execution.run.plan_source import PlanSource
from marin.execution.run.runner import StepRun
from marin.execution.run.step_task import StepResult, StepTask
from marin.execution.step_spec import ExecutorStepFunction
from marin.execution.version import canonical
from rigging.distributed_lock import LeaseLostError
from rigging.errors import Conflict, InvalidRequest

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]


class Count(int):
    """A number of a kind of its own."""


class Caller:
    def __call__(self, config: object) -> None: ...


def test_a_step_without_a_function_is_done_when_its_dependencies_are(
    make_step: MakeStep, make_executor: MakeExecutor
) -> None:
    group = make_step("all", make_step("a"), fn=None)
    executor = make_executor()
    executor.run([group])
    assert StatusFile(executor.output_paths[group]).status == "SUCCESS"


def test_functions_are_called_by_their_names_whatever_is_around_them() -> None:
    own = f"{__name__}.do"
    assert function_name(None) == "None"
    assert function_name(do) == own
    assert function_name(functools.partial(functools.partial(do, 1), 2)) == own
    assert function_name(Caller()) == f"{__name__}.Caller"
    assert function_name(len) == "builtins.len"


def do(*_: object) -> None: ...


def test_two_functions_that_cannot_be_told_apart_count_as_two(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    def holding(lock: object) -> Callable[[Any], None]:
        def work(config: Any) -> None:
            assert lock is not config

        return work

    steps = [make_step("a", versioned(1), fn=holding(threading.Lock())) for _ in range(2)]
    with pytest.raises(Conflict, match="two steps 'a' have one version"):
        make_executor().run(steps)


def test_errors_are_described_in_a_line() -> None:
    assert describe_error(None) == "unknown error"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(ValueError("bad")) == "ValueError: bad"


def test_numbers_of_other_kinds_are_kept_as_they_are() -> None:
    assert plain([Count(3), True]) == [3, True]
    assert json.dumps(plain({"n": Count(3)})) == '{"n": 3}'


def test_a_caller_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caller_path() == __file__
    monkeypatch.setattr(inspect, "currentframe", lambda: None)
    assert caller_path() == "<unknown>"


def test_texts_of_hashes_are_the_same_without_the_fast_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"b": [1, 2.5, None, True, float("inf")], "a": {"\u00fc": "\n"}}
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    slow = runpy.run_path(str(canonical.__file__))["canonical_text"]
    assert slow(value) == canonical.canonical_text(value) == json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("size", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 3 << 14])
def test_what_was_written_down_is_compared_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    info = os.urandom(size)
    (tmp_path / ".executor_status").write_text("SUCCESS")
    (tmp_path / STEP_INFO_FILE).write_bytes(info)
    state = read_output_states([str(tmp_path)])[str(tmp_path)]
    assert (state.status, state.info_md5) == ("SUCCESS", hashlib.md5(info).hexdigest())


def test_the_largest_budget_counts_wherever_it_stands() -> None:
    assert mirror_budget_gb({"a": [1, "x"]}) is None
    assert mirror_budget_gb([{mirrored("a", budget_gb=2)}, frozenset({mirrored("b", budget_gb=5)})]) == 5
    assert mirror_budget_gb({"a": (versioned([mirrored("a", budget_gb=3)]),), "b": mirrored("b", budget_gb=1)}) == 3


def test_a_steps_function_is_sent_without_its_step(make_step: MakeStep) -> None:
    sent: Any = pickle.loads(pickle.dumps(ExecutorStepFunction(make_step("a"), sum, [1, 2])))
    assert sent.step is None
    assert sent("/out") == 3


def test_a_fork_of_who_holds_the_lock_says_nothing_about_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speak(locked: LockedStatus) -> None:
        with monkeypatch.context() as fork:
            fork.setattr(os, "getpid", lambda: 2**22 + 1)
            locked.write_status("SUCCESS")

    with step_lock(str(tmp_path / "out")) as locked:
        with pytest.raises(Conflict, match=f"held by process {os.getpid()}, of which this one is a fork"):
            speak(locked)
        assert locked.status != "SUCCESS"
        locked.write_status("SUCCESS")
    assert StatusFile(str(tmp_path / "out")).status == "SUCCESS"


class LostFiles:
    """An output path that another has by now."""

    def write(self, name: str, content: bytes) -> None:
        raise LeaseLostError("another has it")

    def remove(self, name: str) -> None:
        raise LeaseLostError("another has it")


def test_a_value_of_a_step_that_was_lost_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a job there is nobody who could have adopted it."""
    monkeypatch.delenv("IRIS_JOB_ID", raising=False)
    out = str(tmp_path / "out")
    holder = open_step_lease(out, "a")
    assert holder.begin(force_run_failed=True)
    with pytest.raises(LeaseLostError):
        keep_result_of_job(7, out, LeaseToken(out, "another"))
    assert not (tmp_path / "out" / ".artifact").exists()
    holder.end("SUCCESS")


def test_a_value_that_a_job_left_is_not_taken_by_who_lost_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_JOB_ID", "job-1")
    keep_result_of_job(7, str(tmp_path), LostFiles())
    with pytest.raises(LeaseLostError, match="another has it"):
        take_result_of_job(str(tmp_path), "job-1", LostFiles())
    take_result_of_job(str(tmp_path), "job-2", LostFiles())


@pytest.fixture
def library_levels() -> Iterator[None]:
    """The libraries' loggers have their levels again after the test."""
    loggers = [logging.getLogger(name) for name in ("marin", "fray", "iris", "rigging")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("library_levels")
def test_a_choice_of_steps_that_are_not_there_is_raised_to_a_program(make_step: MakeStep, prefix: str) -> None:
    with pytest.raises(InvalidRequest, match="nowhere"):
        executor_main(ExecutorMainConfig(prefix=prefix, run_only=["nowhere"], verbose=True), [make_step("a")])


def test_a_defect_of_the_run_itself_ends_the_run(tmp_path: Path) -> None:
    class Broken(PlanSource):
        def ended(self, result: StepResult) -> list[StepTask | StepResult]:
            raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError, match="a defect"):
        StepRun(Broken([StepTask("a", str(tmp_path), frozenset(), lambda: None)], {})).run()


def test_outside_of_any_run_a_function_may_write_and_loses_nothing(tmp_path: Path) -> None:
    lease = step_lease()
    assert lease.output_path == ""
    assert lease.is_free()
    assert not lease.lost
    lease.check()
    lease.renew()
    assert not lease.lost


def test_an_error_in_words_has_no_secret() -> None:
    # It is printed, raised again and stored beside the run's outputs.
    assert describe_error(ValueError("bad token=hf_abcdefghijklmnopqrstuvwxyz0")) == "ValueError: bad token=[REDACTED]"
