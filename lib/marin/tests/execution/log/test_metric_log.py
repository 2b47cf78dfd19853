"""`marin.metrics.log`: what a step records, wherever it runs."""

import contextvars
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.testing.waiting import eventually
from marin import metrics
from marin.execution.jobs.remote import remote
from marin.execution.log.metric_log import metrics_kept
from marin.recorded.reading.metrics import StoredFiles, last_values, links_in, read_metrics
from marin.utilities.wandb_utils import init_wandb
from rigging.errors import InvalidRequest
from support.marin.steps import MakeExecutor, MakeStep


def rows(path: str | Path) -> list[dict[str, Any]]:
    with fsspec.open(f"{path}/.executor_metrics") as file:
        return [json.loads(line) for line in file.read().splitlines()]


@pytest.mark.parametrize("as_job", [False, True])
def test_a_step_records_numbers_and_a_retry_goes_on(
    make_step: MakeStep, make_executor: MakeExecutor, tmp_path: Path, as_job: bool
) -> None:
    done = tmp_path / "done"

    def train(config: Any) -> None:
        metrics.log({"train/loss": 0.5}, step=3, lr=1)
        thread = threading.Thread(target=lambda: metrics.log(loss=float("nan"), kept=True))
        thread.start()
        thread.join()
        if not done.exists():
            done.touch()
            raise OSError("once")

    step = make_step("train", fn=remote(train) if as_job else train, retries=1, retry_delay=0)
    with set_current_client(LocalClient()) as client:
        executor = make_executor()
        executor.run([step])
        client.shutdown()
    once = [{"step": 3, "train/loss": 0.5, "lr": 1}, {"step": 4, "loss": None, "kept": 1}]
    assert rows(executor.output_paths[step]) == once * 2
    curves, finals = read_metrics(StoredFiles(executor.output_paths[step]))
    points = {name: dict(zip(*curve, strict=True)) for name, curve in curves.items()}
    assert points == {"train/loss": {3: 0.5}, "lr": {3: 1.0}, "kept": {4: 1.0}}, "a step that was repeated counts once"
    assert finals == {"train/loss": 0.5, "lr": 1.0, "kept": 1.0}


def test_a_run_of_wandb_and_its_step_know_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []

    def init(**given: Any) -> Any:
        begun.append(given)
        return SimpleNamespace(url="https://wandb.ai/a/b/runs/c")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_API_KEY", "key")
    with metrics_kept(str(tmp_path), None):
        init_wandb(config={"lr": 1})
        metrics.log(loss=0.5)
    assert begun[0]["config"] == {"marin_output": str(tmp_path), "lr": 1}
    assert links_in((tmp_path / ".executor_metrics").read_bytes()) == [("wandb", "https://wandb.ai/a/b/runs/c")]
    assert read_metrics(StoredFiles(str(tmp_path)))[1] == {"loss": 0.5}


def test_the_final_value_of_a_metric_logged_seldom_is_found_before_the_end() -> None:
    seldom = '{"step": 0, "top1": 0.1}\n{"step": 0, "top5": 0.2}\n{"step": 1, "top1": 0.5}\n'
    lines = seldom + "".join(f'{{"step": {step}, "loss": {step}}}\n' for step in range(2, 2000))
    assert last_values(lines.encode(), None) == {"top1": 0.5, "top5": 0.2, "loss": 1999}


class Scalar:
    def __float__(self) -> float:
        return 2.5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.log(loss="low"), r"metrics.log\(loss='low'\): a metric is a number"),
        (lambda: metrics.log({"step": 1}), "'step' is the step"),
        (lambda: metrics.log({1: 2.0}), "names are text"),  # type: ignore[dict-item]
        (lambda: metrics.log(step=1.5, loss=1), r"step=1.5\): the step is a whole number"),  # type: ignore[arg-type]
        (lambda: metrics.log(loss=[1.0]), "a metric is a number"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_number_is_refused_and_nothing_else(tmp_path: Path, call: Any, words: str) -> None:
    with metrics_kept(str(tmp_path), None):
        with pytest.raises(InvalidRequest, match=words):
            call()
        metrics.log(loss=Scalar())  # type: ignore[arg-type]
        metrics.log(loss=10**400)
    assert rows(tmp_path) == [{"step": 0, "loss": 2.5}, {"step": 1, "loss": None}]


def test_a_thread_of_no_step_is_told_when_several_run_and_outside_of_steps_nothing_happens(tmp_path: Path) -> None:
    metrics.log(loss=1.0)
    with metrics_kept(str(tmp_path / "a"), None), metrics_kept(str(tmp_path / "b"), None):
        metrics.log(loss=1.0)
        with pytest.raises(InvalidRequest, match="this thread belongs to none"):
            contextvars.Context().run(metrics.log, loss=1.0)
    assert not (tmp_path / "a").exists()
    assert len(rows(tmp_path / "b")) == 1


def test_an_object_store_has_all_at_the_end_and_a_lost_lease_publishes_nothing() -> None:
    class Lost:
        def write(self, name: str, content: bytes) -> None:
            raise OSError("lost")

    with metrics_kept("memory://metrics/kept", None, is_fresh=True):
        metrics.log(loss=1.0)
    with metrics_kept("memory://metrics/lost", Lost(), is_fresh=True):
        metrics.log(loss=1.0)
    assert rows("memory://metrics/kept") == [{"step": 0, "loss": 1.0}]
    assert not fsspec.filesystem("memory").exists("/metrics/lost/.executor_metrics")


def test_a_forked_worker_records_all_before_it_ends(tmp_path: Path) -> None:
    with metrics_kept(str(tmp_path), None):
        worker = multiprocessing.get_context("fork").Process(target=metrics.log, kwargs={"step": 5, "loss": 1.0})
        worker.start()
        worker.join()
    assert (worker.exitcode, rows(tmp_path)) == (0, [{"step": 5, "loss": 1.0}])


SCRIPT = """
import sys, time, os
from marin import metrics
from marin.execution.log.metric_log import metrics_kept
with metrics_kept(sys.argv[1], None):
    metrics.log(loss=1.0)
    if os.fork() == 0:
        metrics.log(child=1.0)
    time.sleep(60)
"""


def test_a_kill_loses_no_more_than_the_last_second_and_a_forked_child_records_its_own(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], start_new_session=True)
    try:
        file = tmp_path / ".executor_metrics"
        eventually(lambda: file.exists() and len(file.read_text().splitlines()) == 2, "both lines are there")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert sorted(rows(tmp_path), key=lambda row: [*row]) == [{"step": 1, "child": 1.0}, {"step": 0, "loss": 1.0}]
