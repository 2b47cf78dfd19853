"""Which steps are meant, which groups are extras, why a step would run, and what is shown of an error."""

import linecache
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fray.errors import JobFailed
from fray.remote_errors import RemoteTraceback
from marin.execution import Executor, ExecutorStep, versioned
from marin.execution.jobs.packages import DependencyGroups, split_dependency_groups
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED
from marin.execution.plan.selection import NoSuchStep, check_patterns, check_steps, matching_steps, select_steps
from marin.execution.record.info import ExecutorStepInfo
from marin.execution.record.provenance import compared
from marin.execution.report.error_text import end_without_traceback, log_failure, own_traceback
from marin.execution.script.explain import EarlierOutputs, Explanation, PlannedAction, explain_steps, explanation_lines
from marin.execution.version.differences import Difference
from rigging.errors import Conflict, InvalidRequest

MakeStep = Callable[..., ExecutorStep[Any]]
MakeExecutor = Callable[[], Executor]


def named(*names: str) -> list[ExecutorStep[Any]]:
    return [ExecutorStep(name=name, fn=None, config=None) for name in names]


def test_steps_are_a_list_of_steps() -> None:
    steps = named("a", "b")
    assert check_steps(iter(steps)) == steps
    with pytest.raises(InvalidRequest, match=r"is one step, not a list of them; write steps=\[step\]"):
        check_steps(steps[0])
    with pytest.raises(InvalidRequest, match=r"'x' is a str, not an ExecutorStep"):
        check_steps([steps[0], "x"])


def test_steps_that_match_any_pattern_in_their_order() -> None:
    steps = named("raw/a", "raw/b", "train", "Eval")
    assert [step.name for step in matching_steps(steps, ["^train$", "a"], "--step")] == [
        "raw/a",
        "raw/b",
        "train",
        "Eval",
    ]
    assert [step.name for step in matching_steps(steps, ["b$"], "--step")] == ["raw/b"]
    with pytest.raises(
        InvalidRequest, match=r"--step='a' is one text, not a list of regular expressions; write \['a'\]"
    ):
        matching_steps(steps, "a", "--step")
    with pytest.raises(InvalidRequest, match=r"run_only: '\[' is not a regular expression: "):
        check_patterns(["a", "["], "run_only")


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("eval", "; did you mean Eval?"),
        ("^trian$", "; did you mean train?"),
        ("RAW", "; did you mean raw/a or raw/b?"),
        ("zzz", ";"),
    ],
)
def test_a_pattern_that_matches_nothing_is_told_with_the_nearest(pattern: str, hint: str) -> None:
    with pytest.raises(NoSuchStep) as refused:
        matching_steps(named("raw/a", "raw/b", "train", "Eval"), [pattern], "--step")
    text = str(refused.value)
    assert text.startswith(f"--step={[pattern]}: no step has such a name{hint}")
    assert text.endswith("there are: Eval, raw/a, raw/b, train")


@pytest.mark.parametrize(("count", "rest"), [(0, "none"), (30, "s29"), (31, " and 1 more")])
def test_of_many_names_some_are_shown(count: int, rest: str) -> None:
    with pytest.raises(NoSuchStep) as refused:
        matching_steps(named(*(f"s{number:02}" for number in range(count))), ["zzz"], "--step")
    assert str(refused.value).endswith(rest)


def test_what_a_chosen_step_needs_comes_before_it(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    a, other = make_step("a"), make_step("other")
    b = make_step("b", a)
    c = make_step("c", b)
    executor = make_executor()
    for step in (c, other):
        executor.compute_version(step)

    def chosen(*args: Any) -> list[str]:
        return [step.name for step in select_steps(executor.plan, *args)]

    assert chosen([c, other], None) == ["a", "b", "c", "other"]
    assert chosen([b], None) == ["a", "b"]
    assert chosen([c, other], ["^b$"]) == ["a", "b"]
    assert chosen([c, other], ["^a$", "other"]) == ["a", "other"]
    with pytest.raises(NoSuchStep):
        chosen([b], ["other"])


PROJECT = "[project]\nname = 'x'\n[project.optional-dependencies]\n{} = []\n"


def test_groups_are_extras_where_a_project_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT.format("Root_Extra") + "[tool.uv.workspace]\n")
    inner = tmp_path / "lib/marin"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text(PROJECT.format("inner"))
    groups = ["root-extra", "numpy>=2", "INNER", "einops"]
    expected = DependencyGroups(["Root_Extra", "inner"], ["numpy>=2", "einops"])
    assert split_dependency_groups(groups, tmp_path) == expected
    (inner / "deep").mkdir()
    monkeypatch.chdir(inner / "deep")
    assert split_dependency_groups(groups) == expected, "the workspace around it"
    assert split_dependency_groups([]) == DependencyGroups([], [])
    assert split_dependency_groups(["x"], tmp_path / "nothing") == DependencyGroups([], ["x"])


def test_why_a_step_would_run_in_lines() -> None:
    plain = Explanation("a", "/p/a", PlannedAction.CACHED, "its output is there")
    run = Explanation("b", "/p/b", PlannedAction.RUN, "why", "/p/b-1", [Difference("k", "1", "2")])
    other = Explanation("c", "/p/c", PlannedAction.CACHED, "but", "/p/c", [Difference("j", None, "2")])
    same = Explanation("d", "/p/d", PlannedAction.WAIT, "why", "/p/d-1", [])
    assert explanation_lines([plain, run, other, same]) == [
        "explain: 4 step(s), 2 without a finished output",
        "cached  a  /p/a",
        "run     b  /p/b",
        "          why",
        "          differs from /p/b-1 in",
        "            k: 1 -> 2",
        *other.lines(),
        "wait    d  /p/d",
        "          why",
    ]
    assert len(other.lines()) == 4


def test_earlier_outputs_are_those_of_one_name(tmp_path: Path) -> None:
    for name in ("a-123456", "a-abcdef", "ab-123456", "a", "a-12345", "a-1234567", "a-ABCDEF", "d/a-111111"):
        (tmp_path / "x" / name).mkdir(parents=True)
    earlier = EarlierOutputs(str(tmp_path))
    assert earlier.of("x/a") == [f"{tmp_path}/x/a-123456", f"{tmp_path}/x/a-abcdef"]
    assert earlier.of("x/a-1234567") == []
    assert earlier.of("x/d/a") == [f"{tmp_path}/x/d/a-111111"]
    assert earlier.of("nothing/a") == []
    (tmp_path / "file").touch()
    assert earlier.of("file/a") == []


def test_the_own_path_is_no_earlier_output(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    step = make_step("n", versioned(1))
    make_executor().run([step])
    [path] = [found.path for found in explain_steps(make_executor(), [step])]
    StatusFile(path).write_status(STATUS_FAILED)
    Path(path, ".executor_status").unlink()
    [found] = explain_steps(make_executor(), [step])
    assert (found.action, found.reason, found.nearest) == (
        PlannedAction.RUN,
        "no output of this name is there yet",
        None,
    )
    StatusFile(path).write_status(STATUS_FAILED)
    actions = [explain_steps(make_executor(), [step], force_run_failed=force)[0].action for force in (True, False)]
    assert actions == [PlannedAction.RUN, PlannedAction.FAIL]


def info(**unversioned: Any) -> ExecutorStepInfo:
    return cast(ExecutorStepInfo, SimpleNamespace(unversioned=unversioned, source={}))


def test_an_output_that_another_run_made_is_compared(tmp_path: Path) -> None:
    assert compared(str(tmp_path), info(k=1), strict=True) == []
    (tmp_path / ".executor_info").write_text('{"unversioned": {"k": 2}}')
    assert compared(str(tmp_path), info(k=2), strict=True) == []
    assert compared(str(tmp_path), info(k=1), strict=False) == [Difference("k", "2", "1")]
    with pytest.raises(Conflict, match="k: 2 -> 1"):
        compared(str(tmp_path), info(k=1), strict=True)


def failing() -> None:
    raise ValueError("bad")


def error_through_the_executor(make_step: MakeStep) -> BaseException:
    """An error whose traceback begins in the executor's own code."""
    try:
        matching_steps(cast(Any, (failing() for _ in range(1))), ["a"], "x")
    except ValueError as error:
        return error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    raise AssertionError


def test_the_frames_of_the_executor_are_left_out(make_step: MakeStep) -> None:
    text = own_traceback(error_through_the_executor(make_step))
    assert "selection.py" not in text
    assert "in failing" in text
    assert text.splitlines()[-2:] == ["ValueError: bad", "(1 frames of the executor left out; -v shows them)"]
    with pytest.raises(ValueError, match="bad") as raised:
        failing()
    plain = own_traceback(raised.value)
    assert plain == "".join(traceback.format_exception(raised.value)).rstrip("\n"), "nothing to leave out"


def test_errors_that_lead_back_to_each_other_are_told_once(make_step: MakeStep) -> None:
    error, cause = error_through_the_executor(make_step), ValueError("cause")
    error.__cause__ = error.__context__ = cause
    cause.__cause__ = cause.__context__ = error
    text = own_traceback(error)
    assert (text.count("ValueError: bad"), text.count("ValueError: cause")) == (1, 1)
    assert "1 frames of the executor left out" in text


JOBS_FRAMES = """Traceback (most recent call last):
  File "/w/site-packages/fray/backends/local_child.py", line 34, in main
    call_to_end(fn, *args, **kwargs)
  File "/w/lib/rigging/src/rigging/calls.py", line 33, in call_to_end
    value = fn(*args, **kwargs)
            ^^^^^^^^^^^^^^^^^^^
"""
OWN_FRAMES = """  File "/w/train.py", line 11, in train
    rigging.wait()
  File "/w/site-packages/rigging/waiting.py", line 3, in wait
    raise ValueError("bad")
ValueError: bad
"""


@pytest.mark.parametrize(
    ("text", "told", "left_out"),
    [
        (JOBS_FRAMES + OWN_FRAMES, f"Traceback (most recent call last):\n{OWN_FRAMES}", 2),
        (JOBS_FRAMES + "ValueError: bad", JOBS_FRAMES + "ValueError: bad\n", 0),
        (
            f"{JOBS_FRAMES}{OWN_FRAMES}\nDuring handling:\n\n{JOBS_FRAMES}{OWN_FRAMES}",
            f"Traceback (most recent call last):\n{OWN_FRAMES}\nDuring handling:\n\n"
            f"Traceback (most recent call last):\n{OWN_FRAMES}",
            4,
        ),
        ("ValueError: bad", "ValueError: bad\n", 0),
        ("something else", "something else\nValueError: bad\n", 0),
    ],
)
def test_of_an_error_in_a_job_the_frames_there_are_told_once(text: str, told: str, left_out: int) -> None:
    error = ValueError("bad")
    error.__cause__ = RemoteTraceback(text)
    note = f"({left_out} frames of the executor left out; -v shows them)" if left_out else ""
    assert own_traceback(error) == (told + note).rstrip("\n")
    failed = JobFailed("job /u/j failed")
    failed.__cause__ = error
    assert own_traceback(failed).startswith(told.removesuffix("else\nValueError: bad\n"))
    assert "JobFailed: job /u/j failed" in own_traceback(failed)


def test_the_failure_of_a_job_is_told_in_its_own_words() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_steps(named("a")[0])
    waiting = refused.value.__traceback__
    assert waiting is not None
    failed = JobFailed("job /u/j failed: task 0 failed: Odd: hello").with_traceback(waiting.tb_next)
    failed.__cause__ = ValueError("hello")
    assert own_traceback(failed) == (
        "fray.errors.JobFailed: job /u/j failed: task 0 failed: Odd: hello\n"
        "(1 frames of the executor left out; -v shows them)"
    )
    assert "check_steps" in own_traceback(failed.with_traceback(waiting)), "somebody else has waited for it"


OF_RAY = f"""job 'j' failed: ValueError: bad

Remote traceback:
{JOBS_FRAMES}"""
OF_IRIS = "job /u/j failed: task 0 failed: ValueError: bad\n" + JOBS_FRAMES.partition("\n")[2]


@pytest.mark.parametrize("message", [OF_RAY, OF_IRIS])
def test_a_message_with_the_frames_of_a_job_is_told_without_the_executors(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's cell is in this process alone: the job's traceback has no source of it."""
    cell = "/tmp/ipykernel_1/2.py"
    monkeypatch.setitem(linecache.cache, cell, (9, None, ["def f(c):\n", "    raise ValueError('bad')\n"], cell))
    failed = JobFailed(f'{message}  File "{cell}", line 2, in f\nValueError: bad')
    head = message.removesuffix(JOBS_FRAMES.partition("\n")[2])
    assert own_traceback(failed) == (
        f"fray.errors.JobFailed: {head}  File \"{cell}\", line 2, in f\n    raise ValueError('bad')\nValueError: bad\n"
        "(2 frames of the executor left out; -v shows them)"
    )


def test_code_that_waits_for_a_job_itself_is_told_too() -> None:
    with pytest.raises(ValueError, match="bad") as raised:
        failing()
    raised.value.__cause__ = RemoteTraceback(JOBS_FRAMES + OWN_FRAMES)
    text = own_traceback(raised.value)
    assert "in failing" in text
    assert "in train" in text


def test_an_error_of_the_executor_keeps_its_frames() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_steps(named("a")[0])
    error = refused.value
    text = own_traceback(error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None))
    assert "selection.py" in text
    assert "left out" not in text


def test_a_failure_is_logged_by_its_own_frames_or_by_all(make_step: MakeStep, caplog: pytest.LogCaptureFixture) -> None:
    error = error_through_the_executor(make_step)
    with caplog.at_level(logging.INFO, "marin"):
        log_failure("a", "/p/a", error)
    assert caplog.records[-1].getMessage().startswith("step a failed -> /p/a\nTraceback")
    assert caplog.records[-1].exc_info is None
    with caplog.at_level(logging.DEBUG, "marin"):
        log_failure("a", "/p/a", error)
    assert caplog.records[-1].getMessage() == "step a failed -> /p/a"
    assert caplog.records[-1].exc_info is not None


def test_an_error_that_was_told_ends_the_process_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, raised, frames: others.append(raised))
    told, other = ValueError("bad\x1b[0m"), KeyError("x")
    end_without_traceback(told)
    sys.excepthook(ValueError, told, None)
    sys.excepthook(KeyError, other, None)
    assert capsys.readouterr().err == "ValueError: bad\\x1b[0m\n"
    assert others == [other]
