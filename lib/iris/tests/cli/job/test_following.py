"""A followed job in this process: how often it is asked for, what is told of it, and with which code it ends."""

import contextlib
import io
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from iris.cli.job.follow import Follower, Interrupted, describe_end
from iris.cli.status_line import StatusLine
from iris.client import ControllerUnreachable, JobStatus, SilentAttempt, Stopped
from iris.client.types import LogLine
from iris.cluster.types import JobState
from rigging.errors import MarinError, NotFound, Unavailable

JOB = "/ann/a"


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
        self.submitted_at_ms = 0
        self.status_error: BaseException | None = None

    def read_logs(self, job_id: str, **options: Any) -> Iterator[LogLine]:
        yield from self.lines

    def poll_jobs(self, job_ids: Sequence[str], *, seconds: float) -> tuple[list[JobStatus], bool]:
        self.waits.append(seconds)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return [answer], answer.is_terminal

    def stop(self, job_id: str, reason: str) -> Stopped:
        self.reasons.append(reason)
        self._answers.append(job(JobState.KILLED))
        if isinstance(self.stopped, BaseException):
            raise self.stopped
        return self.stopped

    def list_tasks(self, job_id: str) -> list[Any]:
        return []

    def status(self, job_id: str) -> JobStatus:
        if self.status_error is not None:
            raise self.status_error
        return job(JobState.SUCCEEDED, submitted_at_ms=self.submitted_at_ms)


Follow = Callable[..., tuple[int, list[str]]]


def leave(code: int) -> NoReturn:
    raise Left(code)


@pytest.fixture
def followed(capsys: pytest.CaptureFixture[str]) -> Follow:
    """Follow a job of a client; the exit code, and the lines that were said."""

    def followed(
        client: Client, *, stops: bool = True, replicas: int = 1, patience: float = 15.0, **options: Any
    ) -> tuple[int, list[str]]:
        follower = Follower(client, terminate_on_exit=stops, output_patience=patience, leave=leave, **options)
        try:
            code = follower.follow(JOB, replicas=replicas)
        except Left as left:
            code = left.args[0]
        return code, [line.removeprefix("iris: ") for line in capsys.readouterr().err.splitlines()]

    return followed


def test_a_job_that_waits_or_builds_is_asked_for_often_and_one_that_runs_seldom(followed: Follow) -> None:
    client = Client(
        job(JobState.PENDING, pending_reason="no cpu"),
        job(JobState.BUILDING),
        job(JobState.RUNNING),
        job(JobState.RUNNING, pending_reason="no cpu for task 1"),
        job(JobState.RUNNING),
        job(JobState.SUCCEEDED),
    )
    code, lines = followed(client)
    assert client.waits == [1.0, 1.0, 1.0, 30.0, 1.0, 30.0]
    assert code == 0
    assert lines[0] == "waiting: no cpu"
    assert lines[1].startswith("building: ")
    assert lines[2].startswith("running (built in ")
    assert lines[3:] == ["waiting: no cpu for task 1", "running", "job /ann/a succeeded"]


def test_it_ends_as_the_job_ends(followed: Follow) -> None:
    ended = job(JobState.FAILED, exit_code=3, error="exit code 3")
    assert followed(Client(ended)) == (3, ["job /ann/a failed: exit code 3; its output: `iris job logs /ann/a`"])


def test_a_task_that_starts_again_is_told(followed: Follow) -> None:
    client = Client(job(JobState.SUCCEEDED))
    client.lines = [LogLine(f"{JOB}/0", attempt, True, 0, b"hi") for attempt in (0, 1, 1)]
    assert followed(client)[1] == ["hi", "task /ann/a/0 starts again (attempt 1)", "hi", "hi", "job /ann/a succeeded"]


@pytest.mark.parametrize(("replicas", "shown"), [(1, "hi"), (2, "[0] hi")])
def test_several_tasks_are_told_apart(followed: Follow, replicas: int, shown: str) -> None:
    client = Client(job(JobState.SUCCEEDED))
    client.lines = [LogLine(f"{JOB}/0", 0, True, 0, b"hi")]
    assert followed(client, replicas=replicas)[1][0] == shown


@pytest.mark.parametrize(
    ("stopped", "last"),
    [
        (Stopped((JOB,)), "job /ann/a stopped"),
        (Stopped(()), "job /ann/a had succeeded"),
        (
            Stopped((JOB,), (SilentAttempt("/ann/a/0:0", "w", 9),)),
            "job /ann/a ended, but attempt 0 of /ann/a/0 on worker w (silent for 9 s) will be stopped when its host is "
            "reached",
        ),
        (Unavailable("no route"), "could not see job /ann/a stop: no route; `iris job stop /ann/a` stops it"),
        (Interrupted(2), "left; job /ann/a may still run: `iris job stop /ann/a` stops it"),
    ],
)
def test_what_is_said_when_a_signal_stops_it(followed: Follow, stopped: Any, last: str) -> None:
    client = Client(Interrupted(signal.SIGTERM))
    client.stopped = stopped
    code, lines = followed(client)
    assert code == 128 + signal.SIGTERM
    assert lines == ["stopping job /ann/a (Ctrl-C again: leave at once)", last]
    assert client.reasons == ["stopped by SIGTERM to `iris job run`"]


def test_a_signal_that_is_not_to_stop_it_leaves_it_alone(followed: Follow) -> None:
    client = Client(Interrupted(signal.SIGINT))
    code, [line] = followed(client, stops=False)
    assert code == 130
    assert line.startswith("job /ann/a goes on; ")
    assert client.reasons == []


def test_a_controller_that_is_gone_has_a_code_of_its_own(followed: Follow) -> None:
    code, [line] = followed(Client(ControllerUnreachable("it is gone", was_connected=True)))
    assert code == 6
    assert line == "it is gone; job /ann/a may go on: `iris job logs -f /ann/a` follows it"


def test_output_that_ended_early_is_told_and_does_not_change_the_code(followed: Follow) -> None:
    client = Client(job(JobState.SUCCEEDED))

    def broken(job_id: str, **options: Any) -> Iterator[LogLine]:
        raise MarinError("the log is damaged")
        yield

    client.read_logs = broken
    assert followed(client) == (
        0,
        ["the output ended early: the log is damaged; all of it: `iris job logs /ann/a`", "job /ann/a succeeded"],
    )


def test_output_that_does_not_come_is_not_waited_for_for_ever(followed: Follow) -> None:
    client, held = Client(job(JobState.SUCCEEDED)), threading.Event()

    def never(job_id: str, **options: Any) -> Iterator[LogLine]:
        held.wait(20)
        yield from ()

    client.read_logs = never
    try:
        missing = "some output may be missing here; all of it: `iris job logs /ann/a`"
        assert followed(client, patience=0.01) == (0, [missing, "job /ann/a succeeded"])
    finally:
        held.set()


class Output:
    """What prints a job's output; notes how it is ended."""

    error = None
    unwritten = ""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def join(self, timeout: float) -> bool:
        self.ended.append(timeout)
        return True

    def stop(self) -> None:
        self.ended.append("stopped")


SILENT = SilentAttempt("/ann/a/0:0", "w", 9)


@pytest.mark.parametrize(
    ("answer", "stopped", "stops", "ended"),
    [
        (job(JobState.SUCCEEDED), None, True, [15.0]),
        (ControllerUnreachable("it is gone", was_connected=True), None, True, ["stopped"]),
        (Interrupted(signal.SIGINT), None, False, ["stopped"]),
        (Interrupted(signal.SIGINT), Stopped((JOB,)), True, [15.0]),
        (Interrupted(signal.SIGINT), Stopped((JOB,), (SILENT,)), True, [0.0]),
        (Interrupted(signal.SIGINT), Unavailable("no route"), True, ["stopped"]),
        (Interrupted(signal.SIGINT), Interrupted(signal.SIGINT), True, ["stopped"]),
    ],
)
def test_output_is_waited_for_where_it_comes_and_ended_where_nobody_looks(
    followed: Follow, answer: Any, stopped: Any, stops: bool, ended: list[Any]
) -> None:
    output, client = Output(), Client(answer)
    if stopped is not None:
        client.stopped = stopped
    followed(client, stops=stops, open_output=lambda *given: SimpleNamespace(start=lambda: output))
    assert output.ended == ended


def test_the_whole_of_a_long_error_is_in_the_output() -> None:
    failed = job(
        JobState.FAILED, error="ValueError: x\n  at line 3", deciding_task_id="/ann/a/0", started_at_ms=0, replicas=1
    )
    assert describe_end(failed) == "job /ann/a failed: ValueError: x ...; its output: `iris job logs /ann/a`"
    assert describe_end(job(JobState.KILLED)) == "job /ann/a killed; its output: `iris job logs /ann/a`"


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("age_ms", "found", "answer", "said", "stops"),
    [
        (0, True, None, "interrupted; job /ann/a stopped", True),
        (60_000, True, None, "interrupted; job /ann/a stopped", True),
        (-1, True, None, "interrupted; nothing was submitted", False),
        (0, False, None, "interrupted; nothing was submitted", False),
        (0, True, NotFound("no job"), "interrupted; nothing was submitted", False),
        (0, True, Unavailable("x"), "interrupted; job /ann/a may run: `iris job stop /ann/a` stops it", False),
        (0, True, Interrupted(2), "interrupted; job /ann/a may run: `iris job stop /ann/a` stops it", False),
    ],
)
@pytest.mark.usefixtures("signals")
def test_a_signal_while_it_is_submitted_takes_back_what_is_new(
    age_ms: int, found: bool, answer: BaseException | None, said: str, stops: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    client = Client()
    client.found, client.submitted_at_ms, client.status_error = found, 5_000_000 + age_ms, answer
    follower = Follower(client, terminate_on_exit=False, leave=leave, now_ms=lambda: 5_000_000)
    with pytest.raises(Left) as left, follower.guard_submission(JOB):
        signal.raise_signal(signal.SIGHUP)
    assert left.value.args == (128 + signal.SIGHUP,)
    assert capsys.readouterr().err == f"iris: {said}\n"
    assert client.reasons == (["interrupted while it was submitted"] if stops else [])


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(Left), Follower(Client(), terminate_on_exit=True).guard_submission(JOB):
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_IGN


class Screen(io.StringIO):
    """A terminal; lines that stay are told apart from the one that is written anew."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_phases_are_one_line_until_the_job_writes(followed: Follow) -> None:
    client = Client(
        job(JobState.PENDING),
        job(JobState.PENDING, pending_reason="no cpu"),
        job(JobState.BUILDING),
        job(JobState.RUNNING),
        job(JobState.SUCCEEDED),
    )
    screen = Screen()
    code, lines = followed(client, status=StatusLine(screen, is_live=True))
    shown = screen.getvalue().split("\r\x1b[K")
    assert [re.sub(r"[\d.]+ s", "N s", line) for line in shown] == [
        "", "iris: waiting for N s: the scheduler has not looked at it yet", "iris: waiting for N s: no cpu",
        "iris: building the environment for N s", "",
    ]  # fmt: skip
    assert code == 0
    assert lines[0].startswith("running (built in ")
    assert lines[1:] == ["job /ann/a succeeded"]


def test_a_quiet_command_tells_the_end_alone(followed: Follow) -> None:
    client = Client(job(JobState.PENDING, pending_reason="no cpu"), job(JobState.BUILDING), job(JobState.SUCCEEDED))
    assert followed(client, status=StatusLine(quiet=True)) == (0, ["job /ann/a succeeded"])
