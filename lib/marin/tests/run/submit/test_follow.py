"""Following a job: its log to the true last line, its exit code, and what signals do."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from marin.run.submit.follow import GONE, Follower, FollowTimes
from marin.run.submit.jobs_api import JobsApi
from rigging.ray_token import AuthToken
from support.marin.jobs_server import Job, JobsServer

NONE = AuthToken("", "nowhere", always=False)
LINES = "".join(f"line {number}\n" for number in range(30))


def ended(code: int | None, status: str = "", log: str = LINES, message: str = "") -> Job:
    status = status or ("SUCCEEDED" if code == 0 else "FAILED")
    return Job({}, log=log, status=status, exit_code=code, message=message)


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        (ended(0), 0, "succeeded"),
        (ended(7), 7, "exit code 7"),
        (ended(-9), 137, "killed by SIGKILL"),
        (ended(-100), 228, "killed by signal 100"),
        (ended(143), 143, "exit code 143 (128 + SIGTERM)"),
        (ended(255), 255, "exit code 255"),
        (ended(None, message="pip: no matching distribution"), 1, "pip: no matching distribution"),
        (ended(None, "STOPPED"), 1, "was stopped"),
        (ended(None, message="Unexpected error occurred: failed to get job supervisor."), 1, "lost with its node"),
    ],
)
def test_the_end_is_the_commands(server: JobsServer, quick: FollowTimes, job: Job, code: int, said: str) -> None:
    watched = Watched(server, quick, job)
    assert watched.run() == code
    assert watched.text == LINES
    assert said in watched.said[-1]


def test_a_log_that_cannot_be_had_is_asked_for_ever_more_rarely(server: JobsServer, quick: FollowTimes) -> None:
    """The cluster knows the job, and the node that has its log is not there."""
    job = Job({}, log=LINES)
    server.tail_limits = [(0, "cut"), *[(90, "cut")] * 100]
    watched = Watched(server, quick, job)
    threading.Timer(0.6, lambda: job.end("SUCCEEDED", 0)).start()
    assert watched.run() == 0
    assert watched.text == LINES
    assert len([line for line in watched.said if "broke off" in line]) == 2
    assert server.tails < 12


def test_a_log_that_cannot_be_shown_is_told_and_no_end_of_the_job(server: JobsServer, quick: FollowTimes) -> None:
    job = Job({}, log=LINES)
    watched = Watched(server, quick, job)

    def fail() -> None:
        job.end("SUCCEEDED", 0)
        raise OSError("the terminal is gone")

    watched.reactions["line 4\n"] = fail
    assert watched.run() == 0
    assert any("could not be followed: OSError('the terminal is gone')" in line for line in watched.said)


def test_of_a_log_that_is_no_text_and_whose_file_is_not_given_either_the_place_is_told(
    server: JobsServer, quick: FollowTimes
) -> None:
    server.failing, server.failure = {"logs": 500}, "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff\n.\n"
    server.tail_limits = [(45, "close")]
    job = Job({}, log=LINES)
    watched = Watched(server, quick, job)
    watched.reactions[LINES[:45].splitlines(keepends=True)[-2]] = lambda: job.end("SUCCEEDED", 0)
    assert watched.run() == 0
    (said,) = [line for line in watched.said if "not UTF-8" in line]
    assert said.endswith(
        "full log: session_latest/logs/job-driver-j.log of Ray's folder (usually /tmp/ray) on the node of its driver"
    )


def test_why_a_job_is_pending_is_told_once(server: JobsServer, quick: FollowTimes) -> None:
    job = Job({}, status="PENDING", message="the runtime environment is being set up")
    watched = Watched(server, quick, job)
    watched.reactions["runtime environment"] = lambda: job.end("SUCCEEDED", 0)
    assert watched.run() == 0
    assert sum("being set up" in line for line in watched.said) == 1


def interrupt(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_an_interrupt_stops_the_job_and_waits_for_its_end(server: JobsServer, quick: FollowTimes) -> None:
    def stop(stopped: Job) -> None:
        stopped.log += "last words\n"
        stopped.end("STOPPED")

    server.on_stop = stop
    server.failing = {"/stop": 500}
    watched = Watched(server, quick, Job({}, log=LINES))
    watched.reactions |= {"line 29\n": interrupt(signal.SIGINT), "could not be asked": server.failing.clear}
    assert watched.run() == 130
    assert server.stops == ["j"], "a cluster that cannot be asked is asked again"
    assert watched.text == LINES + "last words\n"
    assert "was stopped" in watched.said[-1]


def test_a_second_interrupt_leaves_at_once_and_says_what_still_runs(server: JobsServer, quick: FollowTimes) -> None:
    server.on_stop = lambda job: interrupt(signal.SIGINT)()  # it does not stop, and the user has enough
    watched = Watched(server, replace(quick, stopping=60), Job({}, log=LINES))
    watched.reactions["line 29\n"] = interrupt(signal.SIGINT)
    assert watched.run() == 130
    assert "may still run" in watched.said[-1]
    assert f"ray job stop --address {server.address} j" in watched.said[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("auto_stop", [False, True])
def test_other_signals_leave_the_job_alone_unless_it_is_to_be_stopped(
    server: JobsServer, quick: FollowTimes, number: signal.Signals, auto_stop: bool
) -> None:
    watched = Watched(server, quick, Job({}, log=LINES), auto_stop=auto_stop)
    watched.reactions["line 29\n"] = interrupt(number)
    assert watched.run() == 128 + number
    assert bool(server.stops) is auto_stop
    assert ("was stopped" if auto_stop else "may still run") in watched.said[-1]


def test_a_cluster_that_comes_back_in_time_loses_nothing(server: JobsServer, quick: FollowTimes) -> None:
    job = Job({}, log=LINES)

    def come_back() -> None:
        job.log += "more\n"
        job.end("FAILED", 4)
        server.failing.clear()

    server.tail_limits = [(len(LINES), "cut")]
    watched = Watched(server, replace(quick, give_up=30), job)
    watched.reactions["line 29\n"] = lambda: server.failing.update({"j": 503, "tail": 503})
    watched.reactions["broke off"] = lambda: threading.Timer(0.05, come_back).start()
    assert watched.run() == 4
    assert watched.text == LINES + "more\n"


def test_a_job_that_does_not_stop_is_told_of_once_and_waited_for(server: JobsServer, quick: FollowTimes) -> None:
    job = Job({}, log=LINES)
    server.on_stop = lambda job: None
    watched = Watched(server, replace(quick, stopping=0.02), job)
    watched.reactions["line 29\n"] = interrupt(signal.SIGINT)
    watched.reactions["and still runs"] = lambda: threading.Timer(0.1, lambda: job.end("SUCCEEDED", 0)).start()
    assert watched.run() == 0
    assert [line for line in watched.said if "still runs" in line] == [
        "job j was asked to stop 0.02 s ago and still runs"
    ]


class Watched:
    def __init__(self, server: JobsServer, times: FollowTimes, job: Job, *, auto_stop: bool = False) -> None:
        server.jobs["j"] = job
        self._server, self._times, self._auto_stop = server, times, auto_stop
        self.text = ""
        self.said: list[str] = []
        self.reactions: dict[str, Callable[[], None]] = {}

    def _write(self, text: str) -> None:
        self.text += text
        self._react(self.text)

    def _say(self, line: str) -> None:
        self.said.append(line)
        self._react(line)

    def _react(self, text: str) -> None:
        for words in [words for words in self.reactions if words in text]:
            self.reactions.pop(words)()

    def run(self) -> int:
        async def follow() -> int:
            async with JobsApi(self._server.address, "here", NONE) as api:
                return await Follower(
                    api, "j", write=self._write, say=self._say, auto_stop=self._auto_stop, times=self._times
                ).run()

        return asyncio.run(follow())


@pytest.mark.parametrize(
    ("changed", "failing", "said", "whole"),
    [
        (LINES, {}, ["ended early"], True),
        ("another", {}, ["differs from the output above", "`ray job logs --address ADDRESS j`"], False),
        (LINES, {"/logs": 500}, ["may lack its last lines", "answers 500", "`ray job logs --address"], False),
    ],
    ids=["completed", "changed", "not to be had"],
)
def test_a_log_that_stalls_past_the_end_of_the_job_is_completed_or_told_to_lack(
    server: JobsServer, quick: FollowTimes, changed: str, failing: dict[str, int], said: list[str], whole: bool
) -> None:
    server.tail_limits = [(45, "stall")]
    job = Job({}, log=LINES)
    watched = Watched(server, replace(quick, grace=0.05), job)

    def end() -> None:
        job.log = changed
        server.failing.update(failing)
        job.end("FAILED", 3)

    watched.reactions["line 4\n"] = end
    assert watched.run() == 3
    assert (watched.text == LINES) is whole
    told = [line.replace(server.address, "ADDRESS") for line in watched.said]
    assert any(all(words in line for words in said) for line in told), told


def test_signals_that_are_ignored_stay_so(server: JobsServer, quick: FollowTimes) -> None:
    job = Job({}, log=LINES)
    watched = Watched(server, quick, job)
    watched.reactions |= {"line 9\n": interrupt(signal.SIGHUP), "line 29\n": lambda: job.end("SUCCEEDED", 0)}
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert watched.run() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_cluster_that_goes_away_or_forgets_the_job_is_given_up(server: JobsServer, quick: FollowTimes) -> None:
    watched = Watched(server, quick, Job({}, log=LINES))
    watched.reactions["line 29\n"] = lambda: server.failing.update({"j": 500, "tail": 500})
    assert watched.run() == GONE
    assert "its result is unknown here" in watched.said[-1]
    assert sum("GCS" in line and "then exits with code 6" in line for line in watched.said) == 1
    server.failing.clear()
    watched = Watched(server, quick, Job({}, log=LINES))
    watched.reactions["line 29\n"] = server.jobs.clear
    assert watched.run() == GONE
    assert "no longer knows job j" in watched.said[-1]


@pytest.mark.parametrize(
    ("limits", "said", "silence"),
    [
        ([(45, "cut")], "broke off", 5.0),
        ([(45, "cut"), (10, "cut"), (90, "cut")], "broke off", 5.0),
        ([(45, "close")], "before the job's end", 5.0),
        ([(0, "cut")], "broke off", 5.0),
        ([(45, "stall")], "", 0.1),
    ],
)
def test_a_log_that_breaks_off_or_stalls_is_read_on_where_it_was(
    server: JobsServer, quick: FollowTimes, limits: list[tuple[int, str]], said: str, silence: float
) -> None:
    server.tail_limits = list(limits)
    job = Job({}, log=LINES)
    watched = Watched(server, replace(quick, silence=silence), job)
    watched.reactions["line 29\n"] = lambda: job.end("SUCCEEDED", 0)
    assert watched.run() == 0
    assert watched.text == LINES
    assert not said or any(said in line for line in watched.said)
    assert server.tails == len(limits) + 1
