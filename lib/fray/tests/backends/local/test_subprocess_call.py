"""Behaviour of `LocalClient(processes=True)` alone; the contract has the rest."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray.backends.common.lifeline import CANNOT_START
from fray.backends.local import LocalClient
from fray.testing import LONG, Flag, eventually
from fray.testing.signals import is_running
from fray.types import Entrypoint, JobRequest

pytestmark = pytest.mark.process

LIFELINE = Path(sys.modules["fray.backends.common.lifeline"].__file__ or "")


@pytest.fixture
def client() -> Iterator[LocalClient]:
    client = LocalClient(processes=True)
    yield client
    client.shutdown(wait=False)


def call(fn: object, *args: object, name: str = "job", **fields: object) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(fn, args), **fields)  # type: ignore[arg-type]


def test_the_traceback_is_in_the_log_too(client: LocalClient) -> None:
    def fail() -> None:
        raise LookupError("no such shard")

    job = client.submit(call(fail))
    with pytest.raises(LookupError, match="no such shard"):
        job.wait(LONG)
    assert "in fail\n" in job.logs()
    assert job.logs().endswith("LookupError: no such shard\n")


def test_no_job_outlives_a_client_that_is_killed(tmp_path: Path) -> None:
    flags = [Flag(str(tmp_path / name)) for name in ("program", "callable", "nested")]
    script = """
import os, sys, threading
from fray import Entrypoint, JobRequest, LocalClient, current_client
from fray.testing import Flag

def hold(path):
    Flag(path).set(str(os.getpid()))
    threading.Event().wait()

def nest(path):
    current_client().submit(JobRequest("inner", Entrypoint.from_callable(hold, [path]))).wait()

client = LocalClient(processes=True)
program = Entrypoint.from_binary("sh", ["-c", 'echo $$ > "$1.part"; mv "$1.part" "$1"; sleep 300', "sh", sys.argv[1]])
client.submit(JobRequest("program", program))
client.submit(JobRequest("callable", Entrypoint.from_callable(hold, [sys.argv[2]])))
client.submit(JobRequest("nested", Entrypoint.from_callable(nest, [sys.argv[3]])))
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", script, *(flag.path for flag in flags)]) as process:
        for flag in flags:
            flag.wait()
        process.kill()
    for flag in flags:
        pid = int(flag.text())
        eventually(lambda pid=pid: not is_running(pid), f"{flag.path} is gone")  # type: ignore[misc]


@pytest.fixture
def lifeline() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            assert descriptor == write, "only the writing end is closed by a test"


def run_with_lifeline(lifeline: tuple[int, int], *argv: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-I", "-S", str(LIFELINE), str(lifeline[0]), *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, pass_fds=[lifeline[0]], start_new_session=True, text=True, **pipes)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -9 $$", -9)])
def test_a_lifeline_ends_as_its_program_does(lifeline: tuple[int, int], script: str, code: int) -> None:
    with run_with_lifeline(lifeline, "sh", "-c", script) as process:
        assert process.wait(LONG) == code
    with run_with_lifeline(lifeline, "no-such-program") as process:
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == CANNOT_START
    assert err == "cannot start 'no-such-program': No such file or directory\n"


def test_the_program_alone_decides_what_a_signal_to_the_group_means(lifeline: tuple[int, int]) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    with run_with_lifeline(lifeline, "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.read() == "saved\n"
        assert process.wait(LONG) == 3


def test_a_cut_lifeline_kills_the_group(lifeline: tuple[int, int]) -> None:
    with run_with_lifeline(lifeline, "sh", "-c", "trap '' TERM; sleep 300 & echo $!; wait") as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        os.close(lifeline[1])
        assert process.wait(LONG) == -signal.SIGKILL
    eventually(lambda: not is_running(grandchild), "the grandchild is gone")


def test_many_short_jobs_leave_nothing_open(client: LocalClient) -> None:
    client.submit(call(time.time, name="the-first")).wait(LONG)  # from here on there is a folder, which stays open
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        client.submit(call(time.time, name=f"job-{number}")).wait(LONG)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("processes", [False, True])
def test_a_fork_that_ends_takes_nothing_of_its_parents_along(tmp_path: Path, processes: bool) -> None:
    script = """
import os, sys, threading
from fray import Entrypoint, JobRequest, LocalClient
from fray.testing import Flag

begun, end = Flag(sys.argv[1]), Flag(sys.argv[2])
client = LocalClient(processes=sys.argv[3] == "True")
words = 'echo hi; : > "$1"; while ! [ -e "$2" ]; do sleep 0.01; done'
job = client.submit(JobRequest("job", Entrypoint.from_binary("sh", ["-c", words, "sh", begun.path, end.path])))
later = client.submit(JobRequest("later", Entrypoint.from_callable(os.getpid)))
begun.wait()
if (child := os.fork()) == 0:
    sys.exit(0)  # runs what is to run at the interpreter's end
os.waitpid(child, 0)
end.set()
print(job.wait(60), job.logs(), later.wait(60))
"""
    paths = [str(tmp_path / name) for name in ("begun", "end")]
    command = [sys.executable, "-c", script, *paths, str(processes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.stdout == "succeeded hi\n succeeded\n", done.stderr
