"""Jobs of a real cluster whose log is no text, whose name is taken, and whose head loses a part of itself."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fray.testing.ray_jobs import jobs_cluster

pytestmark = [pytest.mark.process, pytest.mark.ray, pytest.mark.timeout(400)]

RAY_RUN = (sys.executable, "-m", "marin.run.ray_run")
# The same, but for the times until it gives up.
IMPATIENT = """
import functools, sys
from marin.run.ray_run import main
from marin.run.submit import follow, run_job
times = follow.FollowTimes(give_up=40.0, node_gone=20.0)
run_job.Follower = functools.partial(follow.Follower, times=times)
sys.exit(main())
"""
ODD = "import os, time\nos.write(1, b'one\\n'); time.sleep(2)\nos.write(1, b'two \\xff\\r\\n')\n"
ODD += "time.sleep(3)\nos.write(1, 'drei \\u00e9\\n'.encode() * 3)\n"


def environment(address: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "RAY_"))}
    return {**kept, "PATH": path, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "disabled"}


def ray_run(address: str, cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [*RAY_RUN, "--no-project-deps", *words]
    return subprocess.run(command, cwd=cwd, env=environment(address), capture_output=True, text=True, timeout=200)


def test_any_byte_is_shown_and_a_taken_name_is_said(jobs_address: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    done = ray_run(jobs_address, tmp_path, "--submission-id", "odd", "--", "python", "odd.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("one\ntwo \ufffd\n" + "drei \u00e9\n" * 3)
    assert not any(word in done.stderr for word in ("broke off", "may lack", "differs", "not UTF-8"))
    again = ray_run(jobs_address, tmp_path, "--submission-id", "odd", "--", "python", "odd.py")
    assert again.returncode == 3
    last = again.stderr.strip().splitlines()[-1]
    assert "submission_id odd already exists" in last


@contextmanager
def followed(address: str, folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """A job that waits, being followed."""
    words = [sys.executable, "-c", IMPATIENT, "--no-project-deps", "--", "bash", "-c", "echo began; sleep 600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=folder, env=environment(address), **pipes) as following:
        try:
            assert any(line == "began\n" for line in following.stdout)
            yield following
        finally:
            following.kill()


def processes_of(part: str, address: str) -> list[int]:
    """The processes of that part of the cluster at this address, "host:port"; of no other that runs here."""
    port = address.rpartition(":")[2]
    found = subprocess.run(["pgrep", "-f", f"{part} .*{port}"], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def line_with(following: "subprocess.Popen[str]", words: str) -> str:
    return next(line for line in following.stderr if re.search(words, line))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("part", "strike", "words"),
    [
        ("gcs_server", signal.SIGSTOP, r"its head's GCS.* has not answered for [12]?\d s"),
        ("gcs_server", signal.SIGKILL, r"its head's GCS.* has not answered for [12]?\d s"),
        ("raylet/raylet", signal.SIGKILL, "its raylet does not answer"),
    ],
)
def test_what_does_not_answer_is_named(tmp_path: Path, part: str, strike: signal.Signals, words: str) -> None:
    with jobs_cluster() as cluster:
        pids = processes_of(part, cluster.address)
        with followed(cluster.jobs_address, tmp_path) as following:
            for pid in pids:
                os.kill(pid, strike)
            try:
                assert "then exits with code 6" in line_with(following, words)
            finally:
                if strike is signal.SIGSTOP:
                    for pid in pids:
                        os.kill(pid, signal.SIGCONT)
            if strike is signal.SIGSTOP:
                assert "answers again" in line_with(following, "answers again")
            else:
                assert following.wait(200) == 6
