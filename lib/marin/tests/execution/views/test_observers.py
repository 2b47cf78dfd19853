"""What those who watch a run are told of each step: enough to know what went wrong without reading the log."""

import contextlib
import io
from typing import Any

import pytest

from marin.execution.report.event_log import EventLog
from marin.execution.report.events import RunEnded, RunStarted, StepEnd, StepEnded, StepQueued, StepStarted
from marin.execution.report.log_lines import LogLines
from marin.execution.views.observers import default_observers, is_terminal
from rigging.errors import StepFailed
from support.marin.recorder import Recorder
from support.marin.steps import MakeExecutor, MakeStep, fail


def test_the_events_of_a_run_tell_how_and_why_each_step_ended(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    watched, watcher = make_executor(), Recorder()
    watched.observers = [watcher]
    bad = make_step("bad", fn=fail)
    after, last, fine = make_step("after", [bad]), make_step("last", [make_step("after", [bad])]), make_step("fine")
    with pytest.raises(StepFailed):
        watched.run([last, after, fine])
    left_out = dict.fromkeys(("after", "last"), StepEnd.DEP_FAILED)
    assert watcher.ends() == {"bad": StepEnd.FAILED, "fine": StepEnd.SUCCEEDED, **left_out}
    ends = {event.name: event for event in watcher.of(StepEnded)}
    paths = {step.name: path for step, path in watched.output_paths.items()}
    why = f"dependency bad failed ({paths['bad']}): ValueError: bad"
    assert ends["bad"].error == "ValueError: bad"
    assert str(ends["after"].error).endswith(why)
    assert str(ends["last"].error).endswith(why), "of the first of a row, which is the one to be mended"
    assert ends["fine"].error is None
    assert {name: end.path for name, end in ends.items()} == paths
    assert ends["bad"].seconds > 0 < ends["fine"].seconds
    assert ends["after"].seconds == 0
    assert sorted(event.name for event in watcher.of(StepQueued)) == ["after", "bad", "fine", "last"]
    for name in ("bad", "fine"):
        kinds = [type(event) for event in watcher.events if getattr(event, "name", "") == name]
        assert kinds == [StepQueued, StepStarted, StepEnded]
    assert sorted(event.name for event in watcher.of(StepStarted)) == ["bad", "fine"]
    assert isinstance(watcher.events[0], RunStarted)
    assert watcher.events[0].steps == 4
    assert isinstance(watcher.events[-1], RunEnded)
    watcher.events.clear()
    watched.run([fine])
    assert watcher.ends() == {"fine": StepEnd.CACHED}
    assert watcher.of(StepStarted) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "has_view"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"CI": "true"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (None, {}, False),
    ],
)
def test_a_terminal_has_a_view_and_everything_else_has_lines(
    monkeypatch: pytest.MonkeyPatch, stream: Any, variables: dict[str, str], has_view: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with contextlib.redirect_stderr(stream):
        assert is_terminal() is has_view
        shown, log = default_observers()
    assert isinstance(shown, LogLines) is not has_view
    assert isinstance(log, EventLog)
