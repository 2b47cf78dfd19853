"""Logs of steps that run as jobs, in a bucket, where nothing can be appended to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.replica import replica_index
from fray.types import ResourceConfig
from marin.cli.main import run as run_command
from marin.execution import Executor, ExecutorStep
from marin.execution.lease.fencing import LeaseToken
from marin.execution.remote import remote
from marin.execution.report.job_log.files import JobLogFiles
from marin.execution.report.job_log.sections import Section
from rigging.errors import StepFailed
from rigging.filesystem import read_bytes_or_none
from rigging.testing import eventually
from rigging.testing.shared import shared_gcs_server

pytestmark = pytest.mark.e2e

MakeStep = Callable[..., ExecutorStep[Any]]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    server = shared_gcs_server()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    # Each process would look for a metadata server for seconds.
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    fsspec.filesystem("gs").clear_instance_cache()
    name = f"logs-{os.urandom(6).hex()}"
    server.create_bucket(name)
    server.reset_traffic()
    yield f"gs://{name}/p"
    fsspec.filesystem("gs").clear_instance_cache()


def text(path: str, name: str = ".log") -> str:
    return (read_bytes_or_none(f"{path}/{name}") or b"").decode()


def said(log: str) -> list[str]:
    """Its lines, without what tells processes apart."""
    lines = [line.partition(", ") if "===" in line and "failed" not in line else (line,) for line in log.splitlines()]
    return [parts[0] for parts in lines]


def run(prefix: str, steps: list[ExecutorStep[Any]]) -> Executor:
    executor = Executor(prefix, f"{prefix}/experiments")
    with LocalClient(processes=True) as client, set_current_client(client):
        executor.run(steps)
    return executor


@pytest.mark.slow
def test_a_job_writes_its_log_and_one_that_was_killed_has_it_completed(
    bucket: str, make_step: MakeStep, tmp_path: Path
) -> None:
    flag = tmp_path / "killed"

    def work(_config: Any) -> None:
        print("killed before:", flag.exists(), flush=True)
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    step = make_step("a", fn=remote(work), retries=1)
    path = run(bucket, [step]).output_paths[step]
    lines = said(text(path))
    assert lines[:3] == ["=== attempt 1", "killed before: False", "=== end of attempt 1"]
    assert lines[3].startswith("=== failed: JobFailed")
    assert lines[4:] == [
        "=== attempt 2 follows in 0 s", "=== attempt 2", "killed before: True", "=== end of attempt 2",
    ]  # fmt: skip
    assert "SIGKILL" in text(path, ".error")


def test_a_job_that_fails_tells_once_why(bucket: str, make_step: MakeStep) -> None:
    def work(_config: Any) -> None:
        print("about to fail")
        raise LookupError("no such shard")

    step = make_step("a", fn=remote(work))
    with pytest.raises(StepFailed):
        run(bucket, [step])
    [path] = fsspec.filesystem("gs").glob(f"{bucket}/a-*")
    lines = said(text(f"gs://{path}"))
    end = lines.index("=== end of attempt 1")
    assert lines[:end] == ["=== attempt 1", "about to fail", "=== failed: LookupError: no such shard"]
    assert text(f"gs://{path}", ".error").count("LookupError: no such shard") == 1


@pytest.mark.slow
def test_replicas_write_side_by_side(bucket: str, make_step: MakeStep) -> None:
    def work(_config: Any) -> None:
        for number in range(3):
            print("replica", replica_index(), "line", number)

    many = ResourceConfig.with_cpu(cpu=1)
    step = make_step("a", fn=remote(work, resources=ResourceConfig(cpu=many.cpu, ram=many.ram, replicas=2)))
    path = run(bucket, [step]).output_paths[step]
    lines = text(path).splitlines()
    for replica in (0, 1):
        own = [line for line in lines if line.startswith(f"[{replica}] ")]
        assert own[1:-1] == [f"[{replica}] replica {replica} line {number}" for number in range(3)]
        assert own[0].startswith(f"[{replica}] === attempt 1, ")
        assert own[-1].startswith(f"[{replica}] === end of attempt 1, ")
    assert len(lines) == 10
    names = [name.rpartition("/")[2] for name in fsspec.filesystem("gs").ls(path, refresh=True)]
    assert not [name for name in names if name.startswith(".log.")]


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_the_log_of_what_its_job_printed(bucket: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import time
            from fray.current_client import set_current_client
            from fray.local_backend import LocalClient
            from marin.execution import Executor, ExecutorStep
            from marin.execution.remote import remote

            def talk(config):
                for number in range(100):
                    print("line", number)
                print("ready", flush=True)
                open({str(tmp_path / "ready")!r}, "w").close()
                time.sleep(60)

            with LocalClient(processes=True) as client, set_current_client(client):
                Executor({bucket!r}, {bucket!r}).run([ExecutorStep(name="a", fn=remote(talk), config=None)])
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)], cwd=tmp_path) as process:
        eventually((tmp_path / "ready").exists, "the step has printed", timeout=120)
        process.kill()

    def whole() -> list[str]:
        fs = fsspec.filesystem("gs")
        fs.invalidate_cache()
        logs = [said(text(f"gs://{path.rpartition('/')[0]}")) for path in fs.glob(f"{bucket}/a-*/.log")]
        return [line for lines in logs for line in lines if len(lines) > 100]

    lines = eventually(whole, "the log is completed", timeout=60)
    assert lines == ["=== attempt 1", *(f"line {n}" for n in range(100)), "ready", "=== end of attempt 1"]


def test_a_job_whose_run_has_lost_the_lease_writes_beside_the_log(
    bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What another run writes in `.log` stays; the command shows both."""
    fs = fsspec.filesystem("gs")
    path = f"{bucket}/a-000001"
    fs.pipe_file(f"{path}/.executor_status", b"RUNNING")
    fs.pipe_file(f"{path}/.executor_status.lock", b'{"worker_id": "another", "timestamp": 1}')
    fs.pipe_file(f"{path}/.log", b"another's\n")
    section = Section("=== attempt 1, 2026-01-01T00:00:00.000+00:00, host, process 7 of its job")
    files = JobLogFiles(path, section, False, LeaseToken(path, "mine"))
    file = files.open(".log")
    file.write(f"{section.opening}\nmine\n".encode())
    file.close(keep=True)
    assert text(path) == "another's\n"
    assert files.read() == f"another's\n{section.opening}\nmine\n"
    assert run_command(["logs", path]) == 0
    assert capsys.readouterr().out == f"another's\n{section.opening}\nmine\n"
