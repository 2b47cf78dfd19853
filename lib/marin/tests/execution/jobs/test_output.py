"""What jobs of steps print: shown by the run, with the step's name, whatever becomes of it."""

import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from marin.execution.jobs.output import JobLines, LogReader, NewOf, shown_output
from marin.execution.jobs.remote import remote
from rigging.errors import StepFailed
from support.marin.steps import MakeExecutor, MakeStep


@pytest.mark.parametrize(
    ("replicas", "looks", "shown"),
    [
        (1, [{}, {0: "a\nb"}, {0: "a\nbc\nd"}], "[s] a\n[s] bc\n[s] d\n"),
        (1, [{None: "a\n"}, {None: "a\n"}], "[s] a\n"),
        (2, [{0: "a\n", 1: "b\n"}, {0: "a\n", 1: "b\nc\n"}], "[s/0] a\n[s/1] b\n[s/1] c\n"),
        (2, [{1: "late"}, {0: "x\n", 1: "later\n"}], "[s/0] x\n[s/1] later\n"),
        (2, [{None: "not told apart\n"}], "[s] not told apart\n"),
        # A bar is one line, as a terminal shows it at its end.
        (1, [{0: "\r10%\r50%"}, {0: "\r10%\r50%\r100%\n"}], "[s] 100%\n"),
    ],
)
def test_lines_are_whole_and_say_whose_they_are(
    replicas: int, looks: Sequence[Mapping[int | None, str]], shown: str
) -> None:
    logs = iter([*looks, looks[-1]])
    lines, new = JobLines("s", replicas), NewOf(lambda: next(logs))
    texts = [lines.add(new()) for _ in looks] + [lines.add(new(ended=True), ended=True)]
    assert "".join(texts) == shown


class FarJob:
    """Whose new output is asked for; it can be had unless `lost`."""

    job_id = "job-2"

    def __init__(self, lost: bool = False) -> None:
        self.written = ""
        self.lost = lost
        self.asked = 0
        self.shown = threading.Event()

    def new_output(self, *, ended: bool = False) -> Mapping[int | None, str]:
        self.asked += 1
        if self.lost:
            raise ConnectionError("gone")
        text, self.written = self.written, ""
        if self.asked == 2:
            self.shown.set()
        return {0: text} if text else {}


class NearJob(FarJob):
    """Whose whole log is asked for."""

    new_output: Any = None

    def replica_logs(self) -> Mapping[int | None, str]:
        return FarJob.new_output(self)


@pytest.mark.parametrize("job", [FarJob(lost=True), NearJob(lost=True)])
@pytest.mark.parametrize("fails", [False, True])
def test_output_that_is_lost_is_asked_for_once_and_decides_nothing(
    caplog: pytest.LogCaptureFixture, fails: bool, job: Any
) -> None:
    job.asked = 0
    ends: Any = pytest.raises(LookupError) if fails else contextlib.nullcontext()
    with caplog.at_level(logging.WARNING), ends, shown_output(job, "s", 1, LogReader(0.001)):
        if fails:
            raise LookupError
    assert caplog.text.count("the output of job job-2 is no longer shown: gone") == 1
    assert job.asked == 1
    join_readers()


def join_readers() -> None:
    for thread in threading.enumerate():
        if thread.name == "marin-job-output":
            thread.join()


def test_a_job_whose_output_is_shown_elsewhere_is_not_asked_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    job: Any = object()
    with shown_output(job, "s", 1):
        print("the block's own")
    assert capsys.readouterr().out == "the block's own\n"


def test_one_thread_shows_what_many_far_jobs_write(capsys: pytest.CaptureFixture[str]) -> None:
    reader = LogReader(0.01)
    jobs: list[Any] = [FarJob() for _ in range(20)]
    for number, job in enumerate(jobs):
        job.written = f"begun {number}\nhalf"
    with contextlib.ExitStack() as stack:
        for number, job in enumerate(jobs):
            stack.enter_context(shown_output(job, f"s{number}", 1, reader))
        assert all(job.shown.wait(10) for job in jobs)
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("marin-job-output") == 1
        for job in jobs:
            job.written = " a line"
    lines = capsys.readouterr().out.splitlines()
    expected = [f"[s{number}] {text}" for number in range(20) for text in ("begun " + str(number), "half a line")]
    assert sorted(lines) == sorted(expected)


def test_a_job_that_comes_after_a_pause_is_looked_at_again() -> None:
    reader = LogReader(0.001)
    for job in (FarJob(), FarJob()):
        given: Any = job
        with shown_output(given, "s", 1, reader):
            assert job.shown.wait(10), "while it runs"
        join_readers()


def test_the_last_output_of_a_far_job_that_failed_is_shown_before_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    job: Any = FarJob()

    def work() -> None:
        with shown_output(job, "s", 1):
            job.written = "last words"
            raise LookupError

    with pytest.raises(LookupError):
        work()
    assert capsys.readouterr().out == "[s] last words\n"


def fail_in_the_job(config: Any) -> None:
    logging.getLogger("mine").info("password=%s", "hunter22secret")
    raise LookupError("no such word")


@pytest.mark.process
def test_a_failure_in_a_process_of_its_own_is_told_with_the_frames_of_the_steps_code(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    step, executor = make_step("bad", fn=remote(fail_in_the_job)), make_executor()
    with LocalClient(processes=True) as client, set_current_client(client), pytest.raises(StepFailed):
        executor.run([step])
    log = Path(executor.output_paths[step], ".log").read_text()
    assert " I mine: password=[REDACTED]\n" in log, "a job logs like the run's own process"
    [told] = [record.getMessage() for record in caplog.records if "Traceback" in record.getMessage()]
    assert told.count("Traceback (most recent call last)") == told.count("in fail_in_the_job") == 1
    assert "step_call.py" not in told
    assert "runner.py" not in told
