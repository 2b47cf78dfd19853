"""What those who watch a run are told of each step: enough to know what went wrong without reading the log."""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import pytest

from marin.execution import Executor, ExecutorStep
from marin.execution.report.event_log import EventLog
from marin.execution.report.events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded, StepQueued, StepStarted
from marin.execution.report.log_lines import LogLines
from marin.execution.report.observers import default_observers, is_terminal
from rigging.errors import StepFailed

MakeStep = Callable[..., ExecutorStep[Any]]


class Watcher:
    """Keeps the events of a run, in order."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[RunEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> dict[str, StepEnded]:
        return {event.name: event for event in self.of(StepEnded)}


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def watched(make_executor: Callable[[], Executor], watcher: Watcher) -> Executor:
    executor = make_executor()
    executor.observers = [watcher]
    return executor


def fail(config: Any) -> None:
    raise ValueError("no shards")


def test_the_end_of_a_step_tells_how_and_why(make_step: MakeStep, watched: Executor, watcher: Watcher) -> None:
    bad = make_step("bad", fn=fail)
    after, last, fine = make_step("after", [bad]), make_step("last", [make_step("after", [bad])]), make_step("fine")
    with pytest.raises(StepFailed):
        watched.run([last, after, fine])
    ends = watcher.ends()
    assert {name: end.status for name, end in ends.items()} == {
        "bad": StepEnd.FAILED,
        "after": StepEnd.DEP_FAILED,
        "last": StepEnd.DEP_FAILED,
        "fine": StepEnd.SUCCEEDED,
    }
    paths = {step.name: path for step, path in watched.output_paths.items()}
    why = f"dependency bad failed ({paths['bad']}): ValueError: no shards"
    assert ends["bad"].error == "ValueError: no shards"
    assert str(ends["after"].error).endswith(why)
    assert str(ends["last"].error).endswith(why), "of the first of a row, which is the one to be mended"
    assert ends["fine"].error is None
    assert {name: end.path for name, end in ends.items()} == paths
    assert ends["bad"].seconds > 0 < ends["fine"].seconds
    assert ends["after"].seconds == 0


def test_every_step_is_queued_once_and_started_if_it_runs(
    make_step: MakeStep, watched: Executor, watcher: Watcher
) -> None:
    bad = make_step("bad", fn=fail)
    with pytest.raises(StepFailed):
        watched.run([make_step("after", [bad]), make_step("fine")])
    assert sorted(event.name for event in watcher.of(StepQueued)) == ["after", "bad", "fine"]
    assert sorted(event.name for event in watcher.of(StepStarted)) == ["bad", "fine"]
    for name in ("bad", "fine"):
        kinds = [type(event) for event in watcher.events if getattr(event, "name", "") == name]
        assert kinds == [StepQueued, StepStarted, StepEnded]
    assert isinstance(watcher.events[0], RunStarted)
    assert watcher.events[0].steps == 3
    assert isinstance(watcher.events[-1], RunEnded)


def test_what_is_there_already_is_told_as_that(make_step: MakeStep, watched: Executor, watcher: Watcher) -> None:
    step = make_step("a")
    watched.run([step])
    watcher.events.clear()
    watched.run([step])
    assert watcher.ends()["a"].status is StepEnd.CACHED
    assert watcher.of(StepStarted) == []


def test_standard_error_that_is_closed_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    with contextlib.redirect_stderr(None):
        assert not is_terminal()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_view_and_everything_else_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    with contextlib.redirect_stderr(Terminal()):
        assert is_terminal()
        shown, log = default_observers()
        assert not isinstance(shown, LogLines)
        assert isinstance(log, EventLog)
        monkeypatch.setenv("CI", "true")
        assert isinstance(default_observers()[0], LogLines)
        monkeypatch.delenv("CI")
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(default_observers()[0], LogLines)
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stderr(io.StringIO()):
        assert isinstance(default_observers()[0], LogLines)
