"""Code that waits for itself: the circle is told, where it would wait for ever."""

import contextvars
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.backends.local.client import LocalClient
from fray.current_client import set_current_client
from fray.testing.waiting import eventually
from marin.execution.config.step import ExecutorStep
from marin.execution.disk_cache import locked_disk_cache
from marin.execution.jobs.remote import remote
from marin.execution.lease.circles import CircularWait, begin_wait, end_wait, making
from marin.execution.lease.status_file import making_output
from marin.execution.run.materialize import materialize
from rigging.errors import StepFailed

WITHIN_S = 60


@pytest.fixture(autouse=True)
def _own_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path))


def ended(call: Callable[[], Any]) -> BaseException:
    """Call, and return what is at the bottom of its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    assert errors, "it waits, or did not fail"
    return errors[0]


def test_a_cached_function_that_calls_itself(tmp_path: Path) -> None:
    @locked_disk_cache(output_path=str(tmp_path / "out"))
    def make(n: int) -> int:
        return make(n + 1)

    error = ended(lambda: make(1))
    assert isinstance(error, CircularWait)
    assert f"{tmp_path}/out waits for {tmp_path}/out" in str(error)


def others_of(name: str, folder: Path, wrap: Callable[[Any], Any]) -> ExecutorStep[Any]:
    """The step that a step makes; made anew by each, as in two modules that import each other."""
    other = {"self": "self", "outer": "inner", "inner": "outer", "left": "right", "right": "left"}[name]

    def work(_config: Any) -> None:
        (folder / name).touch()
        # Both are at work before one asks for the other.
        if name in ("left", "right"):
            eventually((folder / other).exists, f"{other} begins")
        materialize([others_of(other, folder, wrap)])

    return ExecutorStep(name=name, fn=wrap(work), config=None)


@pytest.mark.parametrize(
    ("wrap", "client"),
    [
        pytest.param(lambda fn: fn, LocalClient, id="in process"),
        pytest.param(remote, LocalClient, id="threads"),
        pytest.param(remote, lambda: LocalClient(processes=True), id="processes", marks=pytest.mark.process),
    ],
)
@pytest.mark.parametrize("names", [["self"], ["outer"], ["left", "right"]], ids=" ".join)
def test_a_step_that_makes_itself_and_two_that_make_each_other(
    tmp_path: Path, wrap: Any, client: Any, names: list[str]
) -> None:
    with client() as here, set_current_client(here):
        error = ended(lambda: materialize([others_of(name, tmp_path, wrap) for name in names]))
    assert isinstance(error, StepFailed)
    assert "a cycle that would wait forever: " in str(error)


def held_elsewhere(output: Path, tree: str, waits_for: Path) -> None:
    """An output that another process makes, which waits."""
    output.mkdir()
    (output / ".executor_status.lock").write_text('{"worker_id": "host-2", "timestamp": 1.0}')
    note = {"tree": tree, "outputs": [str(output)], "waits_for": str(waits_for), "holder": "host-2"}
    (output / ".waiting_for").write_text(json.dumps(note))


def test_a_circle_through_another_process_is_refused_in_one_job_tree_and_told_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    held_elsewhere(other, "another tree", mine)
    with making_output(str(mine)):
        begin_wait(str(other))
        [said] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert f"{mine} waits for {other} waits for {mine}" in said
        assert said.endswith("host-2: stop one of these")
        note = json.loads((mine / ".waiting_for").read_text())
        end_wait(str(other))
        assert not (mine / ".waiting_for").exists()
        stored = json.loads((other / ".waiting_for").read_text())
        (other / ".waiting_for").write_text(json.dumps(stored | {"tree": note["tree"]}))
        with pytest.raises(CircularWait, match="a cycle that would wait forever"):
            begin_wait(str(other))
        (other / ".executor_status.lock").write_text('{"worker_id": "host-3", "timestamp": 1.0}')
        begin_wait(str(other))  # the note is of a process that was killed
        end_wait(str(other))


def test_waits_without_a_circle_are_none(tmp_path: Path) -> None:
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    with making(a):
        begin_wait(b)
    with making(b):
        begin_wait(a)  # its wait has ended with it
        end_wait(a)
        begin_wait(c)
        begin_wait(c)
        end_wait(c)
    with making(c), making(d):
        begin_wait(b)


def test_a_wait_that_ended_with_inner_code_is_no_wait_of_the_outer(tmp_path: Path) -> None:
    outer, inner, other = (str(tmp_path / name) for name in ("outer", "inner", "other"))
    with making(outer):
        with making(inner):
            begin_wait(other)  # its run was interrupted, so that it is never ended

        def elsewhere() -> None:
            with making(other):
                begin_wait(outer)
                end_wait(outer)

        contextvars.Context().run(elsewhere)
