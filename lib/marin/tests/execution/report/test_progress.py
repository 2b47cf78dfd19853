"""How far a step is, what it used, how long it will take: told by functions, shown while they run, recorded."""

import contextlib
import io
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution import Executor, progress
from marin.execution.jobs.output import JobLines
from marin.execution.jobs.remote import remote
from marin.execution.log.lines import without_notes
from marin.execution.log.notes import (
    MARK,
    ProgressNote,
    job_progress,
    note_in,
    take_note,
    tell_use,
)
from marin.execution.report import progress as progress_module
from marin.execution.report.earlier_runs import latest_logs, read_usual_seconds, usual_seconds
from marin.execution.report.event_log import EventLog, event_line
from marin.execution.report.events import (
    AttemptUse,
    StepEnd,
    StepEnded,
    StepProgressed,
)
from marin.execution.report.progress import (
    LEAST_MEASURED_SECONDS,
    Measuring,
    StepProgress,
    Use,
    set_progress_of_process,
)
from rigging.errors import InvalidRequest, StepFailed
from support.marin.recorder import Recorder
from support.marin.steps import MakeExecutor, MakeStep, fail


def watched(executor: Executor) -> Recorder:
    recorder = Recorder()
    executor.observers = [recorder, EventLog()]
    return recorder


@pytest.mark.parametrize("as_job", [False, True])
def test_what_a_step_tells_and_uses_is_recorded(make_step: MakeStep, make_executor: MakeExecutor, as_job: bool) -> None:
    calls: list[int] = []

    def work(_config: Any) -> None:
        calls.append(1)
        progress(1, 4)
        progress(2, 4)  # too soon after the other
        progress(4, 4)
        threading.Event().wait(LEAST_MEASURED_SECONDS)
        if len(calls) == 1:
            raise ValueError("no cheese")

    executor = make_executor()
    recorder = watched(executor)
    with set_current_client(LocalClient()):
        executor.run([make_step("a", fn=remote(work) if as_job else work, retries=1)])
    far = [(event.name, event.done, event.total) for event in recorder.of(StepProgressed)]
    assert far == [("a", 1, 4), ("a", 4, 4)] * 2
    times = [event.time for event in recorder.events]
    assert times == sorted(times) or as_job, "a job began when it was last seen to wait"
    [end] = recorder.of(StepEnded)
    outcomes = [(attempt.outcome, attempt.error) for attempt in end.attempts]
    assert outcomes == [("failed", "ValueError: no cheese"), ("succeeded", None)]
    for attempt in end.attempts:
        assert attempt.cpu_seconds >= 0
        assert attempt.peak_bytes > 1 << 20
    [log] = Path(executor.executor_info_path).parent.glob("*.events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    [recorded] = [event for event in events if event["event"] == "step_ended"]
    assert [each["outcome"] for each in recorded["attempts"]] == ["failed", "succeeded"]
    assert recorded["attempts"][1]["peak_bytes"] == end.attempts[1].peak_bytes


def busy(seconds: float) -> None:
    """Use processor time in this thread, whatever else runs on the machine."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("neighbours", [0, 1])
def test_processor_time_counts_threads_and_processes_unless_other_steps_ran_meanwhile(
    neighbours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A step of an earlier test may still run in this process.
    monkeypatch.setattr(progress_module, "_MEASURED", progress_module._Measured())
    alone, beside = StepProgress("a", "/p/a", lambda _: None), StepProgress("b", "/p/b", lambda _: None)
    with Measuring(alone):
        with Measuring(beside, 0.0) if neighbours else contextlib.nullcontext():
            pass
        thread = threading.Thread(target=busy, args=(0.1,))
        thread.start()
        thread.join()
        subprocess.run([sys.executable, "-S", "-c", "import time\nwhile time.process_time() < 0.1: pass"], check=True)
    assert alone.use is not None
    assert alone.use.cpu_seconds < 0.1 if neighbours else alone.use.cpu_seconds >= 0.2


def test_attempts_are_told_of_steps_that_ran(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    make_executor().run([make_step("there")])
    executor = make_executor()
    recorder = watched(executor)
    with pytest.raises(StepFailed):
        executor.run([make_step("there"), make_step("a", fn=fail), make_step("b", make_step("c", fn=fail))])
    attempts = {event.name: len(event.attempts) for event in recorder.of(StepEnded)}
    assert attempts == {"there": 0, "a": 1, "c": 1, "b": 0}


@pytest.mark.parametrize(("done", "total"), [(-1, 2), (1, 0), (float("nan"), 1), (1, float("inf"))])
def test_progress_that_makes_no_sense_is_refused(done: float, total: float) -> None:
    with pytest.raises(InvalidRequest, match="progress"):
        progress(done, total)


def test_progress_outside_of_steps_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("replaced", [None, "open", "closed"])
def test_a_jobs_process_tells_its_run_by_lines(capfd: pytest.CaptureFixture[str], replaced: str | None) -> None:
    """Of its own stdout, whatever the function has put in the place of `sys.stdout`."""
    seen, file = Recorder(), io.StringIO()
    taker = StepProgress("a", "/p/a", seen.on_event, pause_seconds=0.0)
    sys.stdout.write("half")
    sys.stdout.flush()
    with contextlib.redirect_stdout(file) if replaced else contextlib.nullcontext():
        set_progress_of_process(job_progress(pause_seconds=60.0))
        try:
            if replaced == "closed":
                file.close()
            for done in range(1, 101):
                progress(done, 100)
        finally:
            set_progress_of_process(None)
        tell_use(0.0)
    assert file.closed or file.getvalue() == ""
    said = capfd.readouterr().out
    notes = [note for line in said.splitlines() if (note := note_in(line)) is not None]
    assert [type(note) for note in notes] == [ProgressNote, ProgressNote, Use]
    for note in notes:
        take_note(note, taker)
    assert without_notes(f"{said}end") == "half\nend"
    assert [(event.done, event.total) for event in seen.of(StepProgressed)] == [(1, 100), (100, 100)]
    assert taker.use.peak_bytes > 1 << 20


def test_notes_are_neither_shown_nor_logged() -> None:
    said = f'one\n\n{MARK}{{"done": 1, "total": 2}}\ntwo\n\nthree\n'
    assert JobLines("a", 1).add({0: said}) == "[a] one\n[a] two\n[a] \n[a] three\n"


@pytest.mark.parametrize(
    "line",
    [
        "said", f"{MARK}", f"{MARK}[1]", f'{MARK}{{"done": "x", "total": 2}}', f'{MARK}{{"done": NaN, "total": 2}}',
        f'{MARK}{{"done": true, "total": 2}}', f'{MARK}{{"done": -1, "total": 2}}', f'{MARK}{{"other": 1}}',
        f"{MARK}{'[' * 100_000}",
    ],
)  # fmt: skip
def test_other_lines_are_no_notes(line: str) -> None:
    assert note_in(line) is None
    assert without_notes(line) == line


def test_replicas_add_up() -> None:
    taker = StepProgress("a", "/p/a", lambda _: None)
    taker.add_use(Use(1.0, 30))
    taker.add_use(Use(2.0, 20))
    assert taker.use == Use(3.0, 30)


def test_earlier_runs_of_the_same_script() -> None:
    names = [
        "train-0a1b2c-20260101T000000.000000Z-1.events.jsonl",
        "train-ffffff-20260301T000000.000000Z-2.events.jsonl",
        "train-0a1b2c-20260201T000000.000000Z-3.events.jsonl",
        "other-0a1b2c-20260401T000000.000000Z-4.events.jsonl",
        "train-0a1b2c.json",
    ]
    assert latest_logs("train-123456.json", names, most=2) == [names[1], names[2]]
    assert latest_logs("train.txt", names) == []


def test_the_median_of_what_succeeded() -> None:
    def ended(seconds: float, status: StepEnd = StepEnd.SUCCEEDED) -> str:
        return event_line(StepEnded(1.0, "a", "/p/a", status, seconds, attempts=(AttemptUse("succeeded", seconds),)))

    lines = [ended(1.0), ended(2.0), ended(9.0), ended(100.0, StepEnd.FAILED), ended(5.0)[:60], "not json"]
    assert usual_seconds(lines) == {"a": 2.0}


def test_what_earlier_runs_took_is_read_beside_the_info_file(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    watched(executor)
    executor.run([make_step("a", fn=lambda _: threading.Event().wait(0.05) and None)])
    assert read_usual_seconds(executor.executor_info_path)["a"] >= 0.05
    assert read_usual_seconds("/nowhere/at/all-123456.json") == {}
