import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn

import pytest

from iris.cli.job.follow import Follower, Interrupted, describe_end, exit_code_of_job
from iris.cli.status_line import StatusLine
from iris.client import ControllerUnreachable, JobStatus, SilentAttempt, Stopped
from iris.client.job import LogThread
from iris.client.types import LogLine
from iris.cluster.types import JobState, TaskState
from rigging.errors import MarinError, NotFound, Unavailable
from support.iris.cli import Terminal

JOB = "/ann/a"
SILENT = SilentAttempt("/ann/a/0:0", "w", 9)
GONE = ControllerUnreachable("it is gone", was_connected=True)


def job(state: JobState, **fields: Any) -> JobStatus:
    return JobStatus(JOB, state, **fields)


class Left(BaseException):
    """Instead of the end of this process."""


class Client:
    """Answers polls one after the other; an answer that is an error is raised."""

    def __init__(self, *answers: JobStatus | BaseException) -> None:
        self._answers = list(answers)
        self.waits: list[float] = []
        self.lines: list[LogLine] = []
        self.stopped: Stopped | BaseException = Stopped((JOB,))
        self.reasons: list[str] = []
        self.connection = self
        self.found = True
        self.submitted: JobStatus | BaseException = job(JobState.SUCCEEDED)

    def read_logs(self, job_id: str, **options: Any) -> Iterator[LogLine]:
        yield from self.lines

    def poll_jobs(self, job_ids: Sequence[str], *, seconds: float) -> tuple[list[JobStatus], bool]:
        self.waits.append(seconds)
        answer = given(self._answers.pop(0))
        return [answer], answer.is_terminal

    def stop(self, job_id: str, reason: str) -> Stopped:
        self.reasons.append(reason)
        self._answers.append(job(JobState.KILLED))
        return given(self.stopped)

    def list_tasks(self, job_id: str) -> list[Any]:
        return []

    def status(self, job_id: str) -> JobStatus:
        return given(self.submitted)


def given(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


class Output(LogThread):
    """Notes how it is ended: after how many seconds of patience, or at once."""

    ended: ClassVar[list[float | str]] = []

    def join(self, timeout: float) -> bool:
        self.ended.append(timeout)
        return super().join(timeout)

    def stop(self) -> None:
        self.ended.append("stopped")
        super().stop()


Follow = Callable[..., tuple[int, list[str]]]


def leave(code: int) -> NoReturn:
    raise Left(code)


@pytest.fixture
def followed(capsys: pytest.CaptureFixture[str]) -> Follow:
    """Follow a job of a client; the exit code, and the lines that were said."""

    def followed(
        client: Any, *, stops: bool = True, replicas: int = 1, patience: float = 15.0, **options: Any
    ) -> tuple[int, list[str]]:
        Output.ended.clear()
        follower = Follower(
            client, terminate_on_exit=stops, output_patience=patience, leave=leave, open_output=Output, **options
        )
        try:
            code = follower.follow(JOB, replicas=replicas)
        except Left as left:
            code = left.args[0]
        return code, [line.removeprefix("iris: ") for line in capsys.readouterr().err.splitlines()]

    return followed


def test_a_job_that_waits_or_builds_is_asked_for_often_and_one_that_runs_seldom(followed: Follow) -> None:
    client = Client(
        job(JobState.PENDING, pending_reason="no cpu"), job(JobState.BUILDING), job(JobState.RUNNING),
        job(JobState.RUNNING, pending_reason="no cpu for task 1"), job(JobState.RUNNING),
        job(JobState.FAILED, exit_code=3, error="exit code 3"),
    )  # fmt: skip
    code, lines = followed(client)
    assert client.waits == [1.0, 1.0, 1.0, 30.0, 1.0, 30.0]
    assert code == 3
    assert lines[0] == "waiting: no cpu"
    assert lines[1].startswith("building: ")
    assert lines[2].startswith("running (built in ")
    end = "job /ann/a failed: exit code 3; its output: `iris job logs /ann/a`"
    assert lines[3:] == ["waiting: no cpu for task 1", "running", end]


def test_a_task_that_starts_again_is_told_and_several_are_told_apart(followed: Follow) -> None:
    lines = [LogLine(f"{JOB}/0", attempt, True, 0, b"hi") for attempt in (0, 1, 1)]
    for replicas, hi in ((1, "hi"), (2, "[0] hi")):
        client = Client(job(JobState.SUCCEEDED))
        client.lines = lines
        again = "task /ann/a/0 starts again (attempt 1)"
        assert followed(client, replicas=replicas)[1] == [hi, again, hi, hi, "job /ann/a succeeded"]


TERM = Interrupted(signal.SIGTERM)
GOES_ON = "job /ann/a continues; `iris job logs -f /ann/a` follows it, `iris job stop /ann/a` stops it"


@pytest.mark.parametrize(
    ("answer", "stopped", "code", "last", "ended"),
    [
        (job(JobState.SUCCEEDED), None, 0, "job /ann/a succeeded", 15.0),
        (GONE, None, 6, "it is gone; job /ann/a may continue: `iris job logs -f /ann/a` follows it", "stopped"),
        (TERM, None, 143, GOES_ON, "stopped"),
        (TERM, Stopped((JOB,)), 143, "job /ann/a stopped", 15.0),
        (TERM, Stopped(()), 143, "job /ann/a had succeeded", 15.0),
        (TERM, Stopped((JOB,), (SILENT,)), 143, f"job /ann/a ended, but {SILENT}", 0.0),
        (TERM, Unavailable("no route"), 143,
            "could not confirm that job /ann/a stopped: no route; `iris job stop /ann/a` stops it", "stopped"),
        (TERM, Interrupted(2), 143, "exited; job /ann/a may still run: `iris job stop /ann/a` stops it", "stopped"),
    ],
)  # fmt: skip
def test_what_ends_it_and_whether_the_rest_of_the_output_is_waited_for(
    followed: Follow, answer: Any, stopped: Any, code: int, last: str, ended: float | str
) -> None:
    client = Client(answer)
    client.stopped = stopped
    said = [last] if stopped is None else ["stopping job /ann/a (Ctrl-C again: exit at once)", last]
    assert followed(client, stops=stopped is not None) == (code, said)
    assert client.reasons == ([] if stopped is None else ["stopped by SIGTERM to `iris job run`"])
    assert Output.ended == [ended]


def test_output_that_ended_early_is_told_and_one_that_does_not_come_not_waited_for(followed: Follow) -> None:
    held = threading.Event()

    def broken(job_id: str, **options: Any) -> Iterator[LogLine]:
        raise MarinError("the log is damaged")
        yield

    def never(job_id: str, **options: Any) -> Iterator[LogLine]:
        held.wait(20)
        yield from ()

    try:
        for read_logs, patience, told in (
            (broken, 15.0, "the output ended early: the log is damaged"),
            (never, 0.01, "some output may be missing here"),
        ):
            client: Any = Client(job(JobState.SUCCEEDED))
            client.read_logs = read_logs
            lines = [f"{told}; all of it: `iris job logs /ann/a`", "job /ann/a succeeded"]
            assert followed(client, patience=patience) == (0, lines), "the code stays as it is"
    finally:
        held.set()


TIMES = {"started_at_ms": 1000, "finished_at_ms": 4200}
ONE_FAILED = {TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (job(JobState.SUCCEEDED, **TIMES), "succeeded in 3.2 s"),
        (job(JobState.SUCCEEDED, **TIMES, replicas=3, task_counts=ONE_FAILED),
            "succeeded in 3.2 s, though 1 of 3 tasks failed: `iris job summary /ann/a`"),
        (job(JobState.FAILED, **TIMES, error="exit code 3", replicas=4, deciding_task_id="/ann/a/2"),
            "failed after 3.2 s: exit code 3 (task /ann/a/2); its output: `iris job logs /ann/a`"),
        (job(JobState.FAILED, error="ValueError: x\n  at line 3", deciding_task_id="/ann/a/0", replicas=1),
            "failed: ValueError: x ...; its output: `iris job logs /ann/a`"),
        (job(JobState.KILLED), "killed; its output: `iris job logs /ann/a`"),
    ],
)  # fmt: skip
def test_the_last_line_says_how_it_ended_why_and_where_the_output_is(status: JobStatus, said: str) -> None:
    assert describe_end(status) == f"job /ann/a {said}"


@pytest.mark.parametrize(
    ("state", "fields", "code"),
    [
        (JobState.SUCCEEDED, {}, 0),
        (JobState.FAILED, {"exit_code": 37}, 37),
        (JobState.FAILED, {}, 1),
        (JobState.KILLED, {"exit_signal": 15}, 143),
    ],
)
def test_a_job_ends_the_command_with_its_own_code(state: JobState, fields: dict[str, int], code: int) -> None:
    assert exit_code_of_job(job(state, **fields)) == code


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


SINCE = 5_000_000
MAY_RUN = "interrupted; job /ann/a may run: `iris job stop /ann/a` stops it"


@pytest.mark.parametrize(
    ("found", "answer", "said", "stops"),
    [
        (True, SINCE, "interrupted; job /ann/a stopped", True),
        (True, SINCE - 1, "interrupted; nothing was submitted", False),
        (False, SINCE, "interrupted; nothing was submitted", False),
        (True, NotFound("no job"), "interrupted; nothing was submitted", False),
        (True, Unavailable("x"), MAY_RUN, False),
        (True, Interrupted(2), MAY_RUN, False),
    ],
)
@pytest.mark.usefixtures("signals")
def test_a_signal_while_it_is_submitted_takes_back_what_is_new(
    found: bool, answer: int | BaseException, said: str, stops: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    client: Any = Client()
    client.found = found
    client.submitted = job(JobState.PENDING, submitted_at_ms=answer) if isinstance(answer, int) else answer
    follower = Follower(client, terminate_on_exit=False, leave=leave, now_ms=lambda: SINCE)
    with pytest.raises(Left) as left, follower.guard_submission(JOB):
        signal.raise_signal(signal.SIGHUP)
    assert left.value.args == (128 + signal.SIGHUP,)
    assert capsys.readouterr().err == f"iris: {said}\n"
    assert client.reasons == (["interrupted while it was submitted"] if stops else [])


@pytest.mark.usefixtures("signals")
def test_a_signal_that_is_ignored_stays_so() -> None:
    client: Any = Client()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(Left), Follower(client, terminate_on_exit=True).guard_submission(JOB):
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN


def test_on_a_terminal_phases_are_one_line_until_the_job_writes(followed: Follow) -> None:
    client = Client(
        job(JobState.PENDING), job(JobState.PENDING, pending_reason="no cpu"), job(JobState.BUILDING),
        job(JobState.RUNNING), job(JobState.SUCCEEDED),
    )  # fmt: skip
    screen = Terminal()
    code, lines = followed(client, status=StatusLine(screen, is_live=True))
    shown = screen.getvalue().split("\r\x1b[K")
    assert [re.sub(r"[\d.]+ s", "N s", line) for line in shown] == [
        "", "iris: waiting for N s: waiting for the next scheduling round", "iris: waiting for N s: no cpu",
        "iris: building the environment for N s", "",
    ]  # fmt: skip
    assert code == 0
    assert lines[0].startswith("running (built in ")
    assert lines[1:] == ["job /ann/a succeeded"]


def test_a_quiet_command_tells_the_end_alone(followed: Follow) -> None:
    client = Client(job(JobState.PENDING, pending_reason="no cpu"), job(JobState.BUILDING), job(JobState.SUCCEEDED))
    assert followed(client, status=StatusLine(quiet=True)) == (0, ["job /ann/a succeeded"])


# Following ends with os._exit and takes the signals of its process; stdout may be broken for good.
PROGRAM = """
import os, signal, sys
from iris.cli.job.follow import Follower
from iris.client import JobStatus, Stopped
from iris.client.job import LogThread
from iris.client.types import LogLine
from iris.cluster.types import JobState

class Client:
    def read_logs(self, *a, **k):
        return iter([LogLine('/a/b/0', 0, False, 0, b'hi', False)])
    def poll_jobs(self, ids, *, seconds):
        if len(sys.argv) > 3 and not self.stops:
            os.kill(os.getpid(), int(sys.argv[3]))
            signal.pause()
        return [JobStatus(ids[0], JobState[sys.argv[1]], exit_code=int(sys.argv[2]))], True
    stops = 0
    def stop(self, job_id, reason):
        Client.stops += 1
        if len(sys.argv) > 4:
            os.kill(os.getpid(), int(sys.argv[4]))
        return Stopped((job_id,))

follower = Follower(Client(), terminate_on_exit=True)
with follower.guard_submission("/a/b"):
    pass
sys.exit(follower.follow("/a/b", replicas=1))
"""


def play(*words: object, stdout: int = subprocess.DEVNULL) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("numbers", "code", "last"),
    [
        ((signal.SIGINT,), 130, "iris: job /a/b stopped"),
        ((signal.SIGTERM,), 143, "iris: job /a/b stopped"),
        ((signal.SIGINT, signal.SIGINT), 130, "iris: exited; job /a/b may still run: `iris job stop /a/b` stops it"),
    ],
)
def test_signals_end_the_process(numbers: tuple[signal.Signals, ...], code: int, last: str) -> None:
    found, said = play("KILLED", 0, *map(int, numbers))
    assert (found, said.splitlines()[-1]) == (code, last)


@pytest.mark.process
@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 3)])
def test_a_reader_that_went_away_changes_nothing_about_the_job(state: str, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    found, said = play(state, code, stdout=writer)
    os.close(writer)
    assert (found, "BrokenPipeError" in said) == (code, False), said


@pytest.mark.process
def test_output_that_cannot_be_written_here_is_told_and_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        code, said = play("SUCCEEDED", 0, stdout=full.fileno())
    assert (code, "Traceback" in said) == (1, False), said
    assert "output is missing here (No space left on device); all of it: `iris job logs /a/b`" in said
