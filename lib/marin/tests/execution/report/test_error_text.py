import linecache
import logging
import sys
import traceback
from typing import Any, cast

import pytest

from fray.errors import JobFailed
from fray.sending.remote_errors import RemoteTraceback
from marin.execution import ExecutorStep
from marin.execution.plan.selection import check_steps, matching_steps
from marin.execution.report.error_text import end_without_traceback, log_failure, own_traceback
from rigging.errors import InvalidRequest


def failing() -> None:
    raise ValueError("bad")


def error_through_the_executor() -> BaseException:
    """An error whose traceback begins in the executor's own code."""
    with pytest.raises(ValueError, match="bad") as raised:
        matching_steps(cast(Any, (failing() for _ in range(1))), ["a"], "x")
    frames = raised.value.__traceback__
    return raised.value.with_traceback(frames.tb_next if frames else None)


def test_the_frames_of_the_executor_are_left_out() -> None:
    text = own_traceback(error_through_the_executor())
    assert "selection.py" not in text
    assert "in failing" in text
    assert text.splitlines()[-2:] == ["ValueError: bad", "(1 frames of the executor omitted; -v shows them)"]
    with pytest.raises(ValueError, match="bad") as raised:
        failing()
    plain = own_traceback(raised.value)
    assert plain == "".join(traceback.format_exception(raised.value)).rstrip("\n"), "nothing to leave out"


def test_errors_that_lead_back_to_each_other_are_told_once() -> None:
    error, cause = error_through_the_executor(), ValueError("cause")
    error.__cause__ = error.__context__ = cause
    cause.__cause__ = cause.__context__ = error
    text = own_traceback(error)
    assert (text.count("ValueError: bad"), text.count("ValueError: cause")) == (1, 1)
    assert "1 frames of the executor omitted" in text


JOBS_FRAMES = """Traceback (most recent call last):
  File "/w/site-packages/fray/backends/local_child.py", line 34, in main
    call_to_end(fn, *args, **kwargs)
  File "/w/lib/rigging/src/rigging/process/calls.py", line 33, in call_to_end
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
    note = f"({left_out} frames of the executor omitted; -v shows them)" if left_out else ""
    assert own_traceback(error) == (told + note).rstrip("\n")
    failed = JobFailed("job /u/j failed")
    failed.__cause__ = error
    assert own_traceback(failed).startswith(told.removesuffix("else\nValueError: bad\n"))
    assert "JobFailed: job /u/j failed" in own_traceback(failed)


def test_the_failure_of_a_job_is_told_in_its_own_words() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_steps(ExecutorStep("a", None, None))
    waiting = refused.value.__traceback__
    failed = JobFailed("job /u/j failed: task 0 failed: Odd: hello").with_traceback(waiting.tb_next)
    failed.__cause__ = ValueError("hello")
    assert own_traceback(failed) == (
        "fray.errors.JobFailed: job /u/j failed: task 0 failed: Odd: hello\n"
        "(1 frames of the executor omitted; -v shows them)"
    )
    assert "check_steps" in own_traceback(failed.with_traceback(waiting)), "somebody else has waited for it"


OF_RAY = f"""job 'j' failed: ValueError: bad

Remote traceback:
{JOBS_FRAMES}"""
OF_IRIS = "job /u/j failed: task 0 failed: ValueError: bad\n" + JOBS_FRAMES.partition("\n")[2]


@pytest.mark.parametrize("message", [OF_RAY, OF_IRIS])
def test_a_message_with_a_jobs_frames_has_none_of_the_executor(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's cell is in this process alone: the job's traceback has no source of it."""
    cell = "/tmp/ipykernel_1/2.py"
    monkeypatch.setitem(linecache.cache, cell, (9, None, ["def f(c):\n", "    raise ValueError('bad')\n"], cell))
    failed = JobFailed(f'{message}  File "{cell}", line 2, in f\nValueError: bad')
    head = message.removesuffix(JOBS_FRAMES.partition("\n")[2])
    assert own_traceback(failed) == (
        f"fray.errors.JobFailed: {head}  File \"{cell}\", line 2, in f\n    raise ValueError('bad')\nValueError: bad\n"
        "(2 frames of the executor omitted; -v shows them)"
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
        check_steps(ExecutorStep("a", None, None))
    error = refused.value
    text = own_traceback(error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None))
    assert "selection.py" in text
    assert "left out" not in text


def test_a_failure_is_logged_by_its_own_frames_or_by_all(caplog: pytest.LogCaptureFixture) -> None:
    error = error_through_the_executor()
    with caplog.at_level(logging.INFO, "marin"):
        log_failure("a", "/p/a", error)
    assert caplog.records[-1].getMessage().startswith("step a failed -> /p/a\nTraceback")
    assert caplog.records[-1].exc_info is None
    with caplog.at_level(logging.DEBUG, "marin"):
        log_failure("a", "/p/a", error)
    assert caplog.records[-1].getMessage() == "step a failed -> /p/a"
    assert caplog.records[-1].exc_info is not None


def test_a_told_error_ends_the_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    others: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, raised, frames: others.append(raised))
    told, other = ValueError("bad\x1b[0m"), KeyError("x")
    end_without_traceback(told)
    sys.excepthook(ValueError, told, None)
    sys.excepthook(KeyError, other, None)
    assert capsys.readouterr().err == "ValueError: bad\\x1b[0m\n"
    assert others == [other]
