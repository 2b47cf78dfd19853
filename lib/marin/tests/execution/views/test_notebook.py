"""`day.ipynb` in a real kernel: runs, reruns, failures, an interrupt, a job, and what is left behind."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("day.ipynb")
SECONDS = 60.0

pytestmark = pytest.mark.process


class Day:
    """The cells of the notebook after they have run, by id."""

    def __init__(self, cells: list[Any]) -> None:
        self._cells = {cell.id: cell for cell in cells}

    def outputs(self, cell: str, kind: str) -> list[Any]:
        return [output for output in self._cells[cell].outputs if output.output_type == kind]

    def kinds(self, cell: str) -> list[str]:
        return [output.output_type for output in self._cells[cell].outputs]

    def shown(self, cell: str, form: str = "text/html") -> str:
        [shown] = self.outputs(cell, "display_data")
        return str(shown.data[form])

    def printed(self, cell: str) -> str:
        return "".join(output.text for output in self.outputs(cell, "stream"))


async def run_notebook(environment: dict[str, str], folder: Path) -> Day:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}, allow_errors=True)
    async with client.async_setup_kernel(env=environment):
        for index, cell in enumerate(notebook.cells):
            execution = asyncio.ensure_future(client.async_execute_cell(cell, index))
            if cell.id == "interrupt":
                await until(lambda cell=cell: "slow is at work" in str(cell.outputs))
                await client.km.interrupt_kernel()
            await execution
    return Day(notebook.cells)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - outputs of a cell are a plain list
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Day:
    folder = tmp_path_factory.mktemp("notebook")
    own = {name: str(folder / name) for name in ("MARIN_PREFIX", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    environment = {name: value for name, value in os.environ.items() if name not in ("FRAY_CLIENT", "MARIN_PREFIX")}
    return asyncio.run(run_notebook({**environment, **own, "JPY_SESSION_NAME": str(folder / "day.ipynb")}, folder))


def test_progress_is_html_above_what_the_steps_print(day: Day) -> None:
    assert day.kinds("run")[0] == "display_data"
    html = day.shown("run")
    assert '<pre class="marin-run"' in html
    assert "2/2 steps: 0 running, 0 waiting, 2 done, 0 cached, 0 failed" in html
    assert "experiments/day-" in html
    assert "numbers  SUCCESS (ran" in day.shown("run", "text/plain")
    printed = day.printed("run")
    assert "first is at work on 4" in printed
    assert "second <is> at work" in printed
    # The view says how the steps ended; log lines and a table of them would say it again.
    assert "SUCCESS" not in printed


def test_a_rerun_uses_the_outputs_and_says_that_code_in_a_cell_changed(day: Day) -> None:
    assert "0 done, 2 cached, 0 failed" in day.shown("again")
    assert day.printed("again") == ""
    assert "2 cached" in day.shown("changed")
    assert "made with other source of scale:" in day.shown("changed")


def test_a_failure_is_short_and_its_own_frames_are_shown_once(day: Day) -> None:
    [error] = day.outputs("failure", "error")
    assert error.ename == "StepFailed"
    shown = "\n".join(error.traceback)
    assert shown.startswith("StepFailed: 1 step(s) failed:")
    assert "no <b>cheese</b>" in shown
    assert "marin/execution" not in shown
    assert len(shown.splitlines()) < 10
    assert day.printed("failure").count('raise ValueError("no <b>cheese</b>")') == 1
    again = "executor_main(ExecutorMainConfig(run_only=['^fails$']), steps=...)"
    assert f"to run it again: {again}" in day.printed("failure")
    assert "no &lt;b&gt;cheese&lt;/b&gt;" in day.shown("failure")
    assert day.outputs("caught", "error") == []
    [error] = day.outputs("wrong", "error")
    assert error.traceback == ["InvalidRequest: max_concurrent=0: must be at least 1, or None for no limit"]


def test_an_interrupt_stops_the_run_and_the_next_run_works(day: Day) -> None:
    [error] = day.outputs("interrupt", "error")
    assert error.traceback == ["KeyboardInterrupt: the run was interrupted; the next run makes the missing outputs"]
    html = day.shown("interrupt")
    assert "1 running, 0 waiting, 0 done, 0 cached, 0 failed (ended by KeyboardInterrupt" in html


def test_a_job_has_the_functions_and_classes_of_cells(day: Day) -> None:
    assert "[far] far is at work on 3" in day.printed("remote")


def test_every_other_cell_ends_well_and_nothing_is_left_behind(day: Day) -> None:
    for cell in ("setup", "run", "again", "changed", "after", "remote", "left"):
        assert day.outputs(cell, "error") == []
