"""What a progress file says is not believed: whom a worker would signal, and what reporting costs and needs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iris.progress import report_progress
from iris.worker.watch.progress import dump_threads, touched_ns
from iris.worker.watch.rules import WatchRules, check_failed, stalled

NUMBER = signal.SIGRTMIN + 11
ATTEMPT = "/u/job/0:0"


def process(proc: Path, pid: int, attempt: str = ATTEMPT, caught: int = 1 << (NUMBER - 1)) -> None:
    place = proc / str(pid)
    place.mkdir(parents=True)
    (place / "environ").write_bytes(b"A=1\0IRIS_ATTEMPT_ID=" + attempt.encode() + b"\0")
    (place / "status").write_text(f"Name:\tpython\nSigCgt:\t{caught:016x}\n")


@pytest.mark.parametrize(
    "line", ["1 45", "0 45", "-1 45", "99999999999 45", "x 45", "4242 9", "4242 15", "4242 65", "4242", "", "4242 45 1"]
)
def test_lines_that_are_none_of_ours_signal_nobody(tmp_path: Path, line: str) -> None:
    (tmp_path / "p").write_text(line + "\n")
    process(tmp_path / "proc", 4242)
    process(tmp_path / "proc", 1)
    assert dump_threads(str(tmp_path / "p"), ATTEMPT, tmp_path / "proc") == []


def test_only_processes_of_the_attempt_that_catch_the_signal_get_it(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    child = subprocess.Popen([sys.executable, "-c", f"import signal; signal.sigwait([{int(NUMBER)}])"])
    try:
        (tmp_path / "p").write_text(f"{child.pid} {int(NUMBER)}\n" * 3)
        assert dump_threads(str(tmp_path / "p"), ATTEMPT, proc) == [], "there is none"
        process(proc, child.pid, "/other/job/0:0")
        assert dump_threads(str(tmp_path / "p"), ATTEMPT, proc) == [], "it is another's"
        (proc / str(child.pid) / "environ").write_bytes(b"IRIS_ATTEMPT_ID=/u/job/0:0\0")
        (proc / str(child.pid) / "status").write_text("SigCgt:\t0000000000000000\n")
        assert dump_threads(str(tmp_path / "p"), ATTEMPT, proc) == [], "it would be killed by it"
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_a_file_that_is_no_file_is_no_progress(tmp_path: Path) -> None:
    assert touched_ns(str(tmp_path / "none")) == 0
    os.mkfifo(tmp_path / "pipe")
    assert dump_threads(str(tmp_path / "pipe"), ATTEMPT) == []
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert dump_threads(str(tmp_path / "link"), ATTEMPT) == []


def test_reporting_touches_the_file_and_registers_each_process_once(tmp_path: Path) -> None:
    script = (
        "import os, iris\n"
        "iris.report_progress(); iris.report_progress()\n"
        "if os.fork() == 0:\n"
        "    iris.report_progress(); os._exit(0)\n"
        "os.wait()\n"
    )
    path = tmp_path / "p"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "IRIS_PROGRESS_FILE": str(path)}, check=True)
    pids = [line.split()[0] for line in path.read_text().splitlines()]
    assert len(pids) == len(set(pids)) == 2
    assert touched_ns(str(path)) > 0


def test_outside_of_a_task_and_where_it_cannot_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IRIS_PROGRESS_FILE", raising=False)
    report_progress()
    monkeypatch.setenv("IRIS_PROGRESS_FILE", str(tmp_path / "gone" / "p"))
    report_progress()
    assert not (tmp_path / "gone").exists()


def test_it_is_cheap(tmp_path: Path) -> None:
    script = "import iris, time\niris.report_progress()\nb = time.process_time()\n" + (
        "for _ in range(2000): iris.report_progress()\nprint((time.process_time() - b) / 2000)\n"
    )
    env = {**os.environ, "IRIS_PROGRESS_FILE": str(tmp_path / "p")}
    begin = time.time_ns()
    out = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True).stdout
    assert float(out) < 0.001, "seconds of processor time a call"
    assert touched_ns(str(tmp_path / "p")) >= begin - 10_000_000


def test_the_reasons() -> None:
    rules = WatchRules("check", retries=3, stall_s=60)
    assert check_failed(rules, 2, "no output") == ""
    assert check_failed(rules, 3, "no output") == (
        "unhealthy: the health command failed 3 times in a row, last with no output"
    )
    assert stalled(rules, [7, 8]) == "stalled: no progress for 60 s; the threads of process 7, 8 are in its log"
    assert "none of its live Python processes has reported progress" in stalled(rules, [])
    assert not WatchRules().is_on
