"""The results of a run, and curves of long metrics: a sample at once, and all points later."""

import html
import json
import math
import os
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from marin.browser import curves
from marin.browser.curves import CurveStore
from marin.browser.handlers.metrics import results_of
from marin.recorded.reading import curve_rows
from marin.recorded.reading.curve_rows import Curves
from support.marin.recorded_runs import ended, started, step_ended

from .conftest import Pages


def record(pages: Pages, points: int) -> str:
    """Record a run of two steps with a spike each. Return its name."""
    lines = "".join(f'{{"step": {n}, "loss": {900.0 if n == 4321 else 1.0}}}\n' for n in range(points))
    steps = [pages.storage.step(f"train{number}-0a1b2c", config={"seed": number}) for number in range(2)]
    for step in steps:
        Path(step["output_path"], ".executor_metrics").write_text(lines)
    return pages.storage.run("x-0a1b2c", steps, [started(2), *map(step_ended, steps), ended()])


def test_the_results_are_in_the_page_that_is_asked_for(empty: Pages) -> None:
    run = record(empty, 10)
    page = empty.get("run", run=run, tab="results")
    assert json.loads(html.unescape(re.search(r'data-series="([^"]+)"', page)[1])) == {
        "loss": [["train0-0a1b2c", "train0, seed=0"], ["train1-0a1b2c", "train1, seed=1"]]
    }
    assert re.findall(r'aria-sort="(\w+)"', empty.get("run/results", run=run, sort="loss")) == ["ascending"]


def test_results_that_take_too_long_come_after_the_page(empty: Pages) -> None:
    _, view = empty.site.run(record(empty, 10))
    for seconds, is_whole, rows in ((-1.0, False, 0), (math.inf, True, 2)):
        found = results_of(empty.site, view, seconds=seconds)
        assert (found["is_whole"], len(found["table"].rows)) == (is_whole, rows)


def test_curves_are_sampled_first_and_whole_later_with_each_spike(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(empty, 20_000)
    usual, turns = sys.getswitchinterval(), []
    read = curve_rows.CurveRows.add_lines

    def add_lines(self: curve_rows.CurveRows, lines: bytes) -> None:
        if threading.current_thread().name.startswith("marin-curves"):
            turns.append(sys.getswitchinterval())
        read(self, lines)

    monkeypatch.setattr(curve_rows.CurveRows, "add_lines", add_lines)
    query = {"metric": "loss", "output": "train0-0a1b2c", "columns": 100}
    first = json.loads(empty.get("curves", **query))
    assert not first["whole"]
    assert len(first["steps"]) > 50
    eventually(lambda: json.loads(empty.get("curves", **query))["whole"], "all points are known")
    found = json.loads(empty.get("curves", **query))
    assert (max(filter(None, found["values"][0])), found["steps"][-1]) == (900.0, 19_999)
    near = json.loads(empty.get("curves", **query, **{"from": 10.5, "to": 20}))
    assert near["steps"] == [*range(10, 22)]
    assert empty.status("curves", metric="loss", output="../x") == 400
    eventually(lambda: sys.getswitchinterval() == usual, "it reads no more")
    assert len(turns) == 1
    assert turns[0] < usual / 5, "requests have their turn while it reads"


def test_what_is_read_beside_pages_waits_for_the_page_that_asks(empty: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    record(empty, 20_000)
    began: list[float] = []

    def read(files: object) -> tuple[Curves, dict[str, float]]:
        began.append(time.monotonic())
        return {}, {}

    monkeypatch.setattr(curves, "read_metrics", read)
    asked = time.monotonic()
    empty.site.curves.read("train0-0a1b2c")
    eventually(lambda: len(began) == 1, "it reads")
    assert began[0] - asked > 0.2


def test_curves_that_exceed_the_memory_keep_their_spikes(empty: Pages) -> None:
    record(empty, 20_000)
    store = CurveStore(empty.site.outputs, most_bytes=16 * 21_000)
    try:
        outputs = ["train0-0a1b2c", "train1-0a1b2c"]
        eventually(lambda: all(store.read(output).is_whole for output in outputs), "all points have been read")
        found = [store.read(output).curves["loss"].points for output in outputs]
        assert [max(values) for _, values in found] == [900.0, 900.0]
        assert sum(len(steps) for steps, _ in found) <= 22_000
    finally:
        store.stop()


def test_long_files_of_tensorboard_are_read_beside_the_page_and_once(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboardX import SummaryWriter

    step = empty.storage.step("train-0a1b2c")
    run = empty.storage.run("x-0a1b2c", [step], [started(1), step_ended(step), ended()])
    with SummaryWriter(str(empty.root / "train-0a1b2c/tb")) as writer:
        for number in range(2000):
            writer.add_scalar("loss", 900.0 if number == 1234 else 1.0, number)
    readers: set[str] = set()
    read = curve_rows.CurveRows.add

    def add(self: curve_rows.CurveRows, name: str, step: float, value: float) -> None:
        readers.add(threading.current_thread().name)
        read(self, name, step, value)

    monkeypatch.setattr(curve_rows.CurveRows, "add", add)
    page = empty.get("run", run=run, tab="results")
    assert ("Reading more metrics" in page, "No step of this run" in page) == (True, False)
    eventually(lambda: "data-series" in empty.get("run/results", run=run), "the results have the curve")
    found = json.loads(empty.get("metrics", path="train-0a1b2c"))
    assert (found["whole"], max(found["metrics"]["loss"][1])) == (True, 900.0)
    assert "Reading more metrics" not in empty.get("run/results", run=run)
    assert [name.rpartition("_")[0] for name in readers] == ["marin-curves"]


def test_what_is_no_file_is_named_so(empty: Pages) -> None:
    empty.storage.step("train-0a1b2c")
    os.mkfifo(empty.root / "train-0a1b2c/pipe")
    answer = empty.client.get("/experiments/raw", params={"path": "train-0a1b2c/pipe"})
    assert (answer.status_code, "is not a regular file" in answer.text) == (403, True)
