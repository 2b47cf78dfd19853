"""What is found out about a process: its family, what is shown of each, its log, and the tools that profile it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from iris.inspection import program
from iris.inspection.program import CannotLook, main, own_log, processes_of, python_of, status_of

SECRET = "sk-" + "Zq8Lm3Xv7Rt2Wp9Ks4Nd6Yb1"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start a process that says when it is up."""
    opened: list[subprocess.Popen[bytes]] = []

    def begin(*argv: str, **options: Any) -> int:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, **options
        )
        opened.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process.pid

    yield begin
    for process in opened:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_family_is_found_by_its_tree_and_an_attempts_variables(start: Any) -> None:
    env = {"PATH": os.environ["PATH"], "IRIS_ATTEMPT_ID": f"/ann/a/0:{os.getpid()}"}
    first = start("sh", "-c", "sleep 600 & echo up; wait")
    apart = start("sh", "-c", "echo up; read x", env=env)
    alike = start("sh", "-c", "echo up; read x", env={**env, "IRIS_ATTEMPT_ID": f"{env['IRIS_ATTEMPT_ID']}1"})
    assert [item.pid for item in processes_of(first)][:1] == [first]
    assert len(processes_of(first)) == 2
    pids = {item.pid for item in processes_of(first, env["IRIS_ATTEMPT_ID"])}
    assert apart in pids
    assert alike not in pids


def test_a_status_has_no_secrets(start: Any) -> None:
    pid = start("sh", "-c", "echo up; read x", "sh", f"--api-key={SECRET}", env={"TOKEN": SECRET})
    found = status_of(psutil.Process(pid))
    assert SECRET not in str(found)
    assert found["command"].startswith("sh -c 'echo up; read x' sh --api-key=")
    assert (found["pid"], found["threads"], found["open_files"]) == (pid, 1, 3)
    assert found["memory_bytes"] > 0
    assert abs(found["started_at_ms"] / 1000 - psutil.Process(pid).create_time()) < 1


def test_the_first_python_is_profiled(start: Any) -> None:
    pid = start("sh", "-c", "echo up; read x")
    with pytest.raises(CannotLook, match="none of its processes is a Python interpreter"):
        python_of([psutil.Process(pid)])
    own = start(sys.executable, "-c", "print('up', flush=True); input()")
    assert python_of([psutil.Process(pid), psutil.Process(own)]) == own


def test_a_log_is_the_file_of_stderr(start: Any, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        pid = start("sh", "-c", "echo line >&2; echo up; read x", stderr=log)
    assert own_log(pid) == ["line"]
    with pytest.raises(CannotLook, match="does not log to a file"):
        own_log(start("sh", "-c", "echo up; read x", stderr=subprocess.DEVNULL))


def test_what_is_missing_or_fails_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program.shutil, "which", lambda *_, **__: None)
    for what, tool in (("threads", "py-spy"), ("cpu", "py-spy"), ("mem", "memray")):
        assert main([what, str(os.getpid()), "1"]) == 1
        assert capfd.readouterr().err == f"{tool} is not installed there: install marin-iris[profile] on its host\n"
    monkeypatch.setattr(program, "_program", lambda _: "false")
    assert main(["threads", str(os.getpid()), "1"]) == 1
    assert capfd.readouterr().err == "false failed: exit code 1\n"
    assert main(["status", "999999999", "1"]) == 1
    assert "process PID not found" in capfd.readouterr().err
