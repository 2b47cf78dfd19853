"""The view of a run in a notebook, with a list in place of the notebook; and what is a notebook."""

import contextvars
import pickle
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fray.testing.waiting import eventually
from marin.execution.report.error_text import short_errors
from marin.execution.report.events import FURTHER_LINES, RunEnded, RunStarted, StepEnd, StepEnded, StepStarted
from marin.execution.report.progress import StepProgress, set_step_progress
from marin.execution.report.shell import has_script, is_kernel, notebook_of
from marin.execution.views.notebook import Bundle, NotebookView
from marin.execution.views.observers import is_notebook
from rigging.errors import StepFailed

WHERE = contextvars.ContextVar("where", default="nowhere")


class Cell:
    def __init__(self) -> None:
        self.shown: list[tuple[str, bool, str]] = []

    def __call__(self, bundle: Bundle, instead: bool) -> None:
        self.shown.append((bundle["text/plain"], instead, WHERE.get()))


def test_a_run_is_shown_once_and_updated_in_the_context_of_its_cell() -> None:
    cell = Cell()
    view = NotebookView(cell, now=lambda: 2.0, usual=lambda _: {"a": 10.0}, pause_seconds=0.001)
    WHERE.set("the cell")
    view.on_event(RunStarted(1.0, 2, None, "/p/experiments/day-0a1b2c.json"))
    view.on_event(StepStarted(1.0, "a", "/p/a"))
    eventually(lambda: any("9.0s left" in text for text, _, _ in list(cell.shown)), "the time left")
    view.on_event(StepEnded(2.0, "a", "/p/a", StepEnd.SUCCEEDED, seconds=1.0))
    view.on_event(StepEnded(2.0, "b", "/p/b", StepEnd.CACHED, differences=("n: 1 -> 2",)))
    view.on_event(StepEnded(2.0, "c", "/p/c", StepEnd.CACHED))
    view.on_event(RunEnded(3.0, 2.0))
    assert [instead for _, instead, _ in cell.shown] == [False] + [True] * (len(cell.shown) - 1)
    assert {where for _, _, where in cell.shown} == {"the cell"}
    last = cell.shown[-1][0]
    assert "a  SUCCESS (ran 1.00s)" in last
    assert "b  SUCCESS (already done, made with other n: 1 -> 2)" in last
    assert "and 1 whose output already existed" in last
    assert "marin-view" not in {thread.name for thread in threading.enumerate()}


def test_a_notebook_that_shows_no_updates_does_not_hold_up_the_run(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[bool] = []

    def show(bundle: Bundle, instead: bool) -> None:
        calls.append(instead)
        if len(calls) == 2:
            raise OSError("the browser is gone")

    view = NotebookView(show, pause_seconds=0.001)
    view.on_event(RunStarted(1.0, 1))
    eventually(lambda: "the browser is gone" in caplog.text, "the warning")
    view.on_event(RunEnded(3.0, 2.0))
    assert calls == [False, True, True]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    shell = SimpleNamespace(kernel=object(), user_global_ns={"__name__": "__main__"})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


def test_what_a_kernel_is(kernel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_kernel()
    assert is_notebook()

    def in_a_step() -> bool:
        set_step_progress(StepProgress("a", "/p/a", lambda _: None))
        return is_notebook()

    assert not contextvars.copy_context().run(in_a_step)
    del kernel.kernel  # IPython in a terminal
    assert not is_kernel()
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert not has_script()


def test_the_path_of_a_notebook(kernel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    names = kernel.user_global_ns
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert notebook_of(names) == str(tmp_path / "notebook")
    monkeypatch.setenv("JPY_SESSION_NAME", "/work/day.ipynb")
    assert notebook_of(names) == "/work/day.ipynb"
    names["__vsc_ipynb_file__"] = "/code/day.ipynb"
    assert notebook_of(names) == "/code/day.ipynb"
    assert notebook_of(dict(names)) is None  # a module's names
    names["__file__"] = "/code/script.py"  # of %run
    assert notebook_of(names) is None


def test_errors_are_short_in_a_shell_only(kernel: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StepFailed) as caught, short_errors():
        raise StepFailed(f"1 step(s) failed:\n  a  \x1b[2J\n{FURTHER_LINES}Remote traceback:")
    render = caught.value._render_traceback_  # type: ignore[attr-defined]
    assert render() == ["StepFailed: 1 step(s) failed:", "  a  \\x1b[2J"]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ValueError, match="mine") as other, short_errors():
        raise ValueError("mine")
    assert not hasattr(other.value, "_render_traceback_")
    monkeypatch.delitem(sys.modules, "IPython")
    with pytest.raises(StepFailed) as elsewhere, short_errors():
        raise StepFailed("1 step(s) failed")
    assert not hasattr(elsewhere.value, "_render_traceback_")
