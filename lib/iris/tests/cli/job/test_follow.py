"""Following a job with a scripted client: the reason it waits, the controller that goes, the signal that comes."""

import os
import signal
import subprocess
import sys

import pytest

# A process of its own, because following ends with os._exit and takes the signals of its process.
PROGRAM = """
import os, signal, sys
from iris.cli.job.follow import Follower
from iris.client import ControllerUnreachable, JobStatus, Stopped
from iris.cluster.types import JobState
from rigging.errors import NotFound

class Client:
    class connection:
        found = True
    polls = 0
    submitted_at_ms = 2**60
    def read_logs(self, *a, **k):
        return iter(())
    def status(self, job_id):
        return JobStatus(job_id, JobState.RUNNING, submitted_at_ms=self.submitted_at_ms)
    def poll_jobs(self, ids, *, seconds):
        Client.polls += 1
        return self.poll(ids[0])
    def stop(self, job_id, reason):
        print("terminate", job_id, reason, flush=True)
        Client.poll = staticmethod(lambda job_id: ([JobStatus(job_id, JobState.KILLED)], True))
        return Stopped((job_id,))

def follow(poll, stops=True):
    Client.poll = staticmethod(poll)
    follower = Follower(Client(), terminate_on_exit=stops)
    with follower.guard_submission("/a/b"):
        pass
    sys.exit(follower.follow("/a/b", replicas=1))

def waiting(*reasons):
    def poll(job_id):
        if Client.polls > len(reasons):
            return [JobStatus(job_id, JobState.SUCCEEDED)], True
        return [JobStatus(job_id, JobState.PENDING, pending_reason=reasons[Client.polls - 1])], False
    return poll

def interrupted(number):
    def poll(job_id):
        os.kill(os.getpid(), number)
        signal.pause()
    return poll

def gone(job_id):
    raise ControllerUnreachable("the controller is gone", was_connected=True)

"""


def play(line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + line], capture_output=True, text=True, timeout=60, env={**os.environ}
    )


def test_the_reason_for_waiting_is_told_once_and_when_it_changes():
    done = play("follow(waiting('', 'no cpu', 'no cpu', 'no memory'))")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "iris: waiting: no cpu",
        "iris: waiting: no memory",
        "iris: job /a/b succeeded",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_job(number, code):
    done = play(f"follow(interrupted({number.value}))")
    assert done.returncode == code
    assert f"terminate /a/b stopped by {number.name}" in done.stdout
    assert done.stderr.splitlines()[-1] == "iris: job /a/b stopped"


def test_a_second_signal_leaves_at_once_and_says_how_to_stop_it():
    done = play("Client.stop = lambda self, *a: os.kill(os.getpid(), 2)\nfollow(interrupted(2))")
    assert done.returncode == 130
    assert "`iris job stop /a/b` stops it" in done.stderr.splitlines()[-1]


def test_a_job_that_is_to_go_on_is_left_alone():
    done = play("follow(interrupted(2), stops=False)")
    assert done.returncode == 130
    assert done.stdout == ""
    assert "goes on; `iris job logs -f /a/b` follows it, `iris job stop /a/b` stops it" in done.stderr


def test_a_controller_that_is_gone_has_a_code_of_its_own():
    done = play("follow(gone)")
    assert done.returncode == 6
    assert done.stderr == "iris: the controller is gone; job /a/b may go on: `iris job logs -f /a/b` follows it\n"


@pytest.mark.parametrize(
    ("setup", "stops", "words"),
    [
        ("", True, "interrupted; job /a/b stopped"),
        ("Client.submitted_at_ms = 1", False, "nothing was submitted"),
        ("Client.connection.found = False", False, "nothing was submitted"),
    ],
)
def test_a_signal_during_submission_takes_back_only_what_was_submitted_now(setup, stops, words):
    guard = "with Follower(Client(), terminate_on_exit=True).guard_submission('/a/b'):"
    done = play(f"{setup}\n{guard}\n    os.kill(os.getpid(), 2)\n    signal.pause()")
    assert done.returncode == 130
    assert ("terminate /a/b" in done.stdout) is stops
    assert words in done.stderr


def test_what_the_shell_ignores_stays_ignored():
    poll = "lambda job_id: (os.kill(os.getpid(), 1), waiting()(job_id))[1]"
    done = play(f"signal.signal(1, signal.SIG_IGN)\nfollow({poll})")
    assert done.returncode == 0


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 3)])
def test_a_reader_that_went_away_changes_nothing_about_the_job(state, code):
    program = (
        "from iris.client.types import LogLine\n"
        "Client.read_logs = lambda *a, **k: iter([LogLine('/a/b/0', 0, False, 0, b'hi', False)])\n"
        f"follow(lambda job_id: ([JobStatus(job_id, JobState.{state}, exit_code={code})], True))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert done.returncode == code, done.stderr
    assert "BrokenPipeError" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written_here_is_told_and_is_no_success():
    program = (
        "from iris.client.types import LogLine\n"
        "Client.read_logs = lambda *a, **k: iter([LogLine('/a/b/0', 0, False, 0, b'hi', False)])\n"
        "follow(waiting())"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM + program], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1, done.stderr
    assert "output is missing here (No space left on device); all of it: `iris job logs /a/b`" in done.stderr
    assert "Traceback" not in done.stderr
