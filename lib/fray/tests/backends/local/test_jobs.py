import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.backends.local import LocalClient
from fray.client import JobHandle, wait_all
from fray.errors import JobFailed
from fray.replica import replica_index
from fray.testing import eventually
from fray.testing.signals import is_running
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from rigging.errors import InvalidRequest

LONG = 30.0  # seconds; never reached unless something hangs


def call(fn: Callable[..., Any], *args: Any, name: str = "job", **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(fn, args), **fields)


def shell(script: str, name: str = "job", **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_binary("sh", ["-c", script]), **fields)


def test_a_failure_says_what_ended_how(client: LocalClient) -> None:
    nowhere = EnvironmentConfig(workspace="/no/such/directory")
    for request, exit_code, words in (
        (
            shell("seq 100; exit 7"),
            7,
            r"^job 'job': 'sh' ended with exit code 7; the end of its output:\n81\n(?s:.*)\n100$",
        ),
        (shell("kill -SEGV $$"), -signal.SIGSEGV, r"signal 11 \(SIGSEGV\); it wrote nothing"),
        (JobRequest("job", Entrypoint.from_binary("no-such-program")), None, "cannot start 'no-such-program': No such"),
        (shell("true", environment=nowhere), None, r"cannot start 'sh'.*/no/such/directory"),
        (call(sys.exit, "why"), 1, r"called sys\.exit\('why'\)"),
        (call(sys.exit, 3), 3, r"called sys\.exit\(3\)"),
    ):
        with pytest.raises(JobFailed, match=words) as caught:
            client.submit(request).wait(LONG)
        assert exit_code is None or caught.value.exit_code == exit_code


def grandchild_of(job: JobHandle) -> int:
    eventually(lambda: job.logs().endswith("\n"), "the script has said its child")
    return int(job.logs().splitlines()[0])


def test_nothing_a_program_started_outlives_it(client: LocalClient) -> None:
    job = client.submit(shell("sleep 300 & echo $!"))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    eventually(lambda: not is_running(grandchild_of(job)), "the grandchild is gone")


def test_a_program_that_ignores_sigterm_is_killed_in_the_end(client: LocalClient) -> None:
    job = client.submit(shell("trap '' TERM; echo $$; while :; do sleep 300; done"))
    shell_pid = grandchild_of(job)
    client.shutdown(wait=False)  # kills without the five seconds' grace of terminate()
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    assert not is_running(shell_pid)


def test_a_stopped_job_that_had_not_begun_never_runs() -> None:
    one = LocalClient(max_threads=1)
    release, ran = threading.Event(), threading.Event()
    first = one.submit(call(release.wait, name="first"))
    second = one.submit(call(ran.set, name="second"))
    second.terminate()
    assert second.status() is JobStatus.STOPPED
    release.set()
    first.wait(LONG)
    one.shutdown()
    assert not ran.is_set()


def test_resources_are_ignored_unless_admission_is_asked_for(client: LocalClient) -> None:
    huge = call(lambda: None, resources=ResourceConfig.with_tpu("v5p-8", cpu=10_000))
    assert client.submit(huge).wait(LONG) is JobStatus.SUCCEEDED
    with LocalClient(admission=True) as admitting:
        with pytest.raises(InvalidRequest, match=r"asks for v5p-8.*processors only"):
            admitting.submit(huge)
        with pytest.raises(InvalidRequest, match=r"asks for 10000 CPUs.*this machine has \d+"):
            admitting.submit(call(lambda: None, resources=ResourceConfig(cpu=10_000)))
    with pytest.raises(InvalidRequest, match="max_threads must be at least 1, not 0"):
        LocalClient(max_threads=0)


def test_a_job_that_waits_for_a_queued_stranger_lends_its_place() -> None:
    one = LocalClient(max_threads=1)
    strangers: list[JobHandle] = []
    ready = threading.Event()
    waiting = one.submit(call(lambda: (ready.wait(LONG), strangers[0].wait(LONG)), name="waiting"))
    strangers.append(one.submit(call(lambda: None, name="stranger")))
    ready.set()
    assert waiting.wait(LONG) is JobStatus.SUCCEEDED
    one.shutdown()


def test_no_more_than_max_threads_run_at_once() -> None:
    two = LocalClient(max_threads=2)
    gates = [threading.Semaphore(0) for _ in range(6)]
    jobs = [two.submit(call(gate.acquire, name=f"j{i}")) for i, gate in enumerate(gates)]

    def statuses() -> list[str]:
        return [job.status() for job in jobs]

    for done in range(5):
        # Each that ends lets exactly the next one begin, in the order of submission.
        expected = ["succeeded"] * done + ["running"] * 2 + ["pending"] * (4 - done)
        eventually(lambda expected=expected: statuses() == expected, f"statuses are {expected}")  # type: ignore[misc]
        gates[done].release()
    gates[5].release()
    assert wait_all(jobs, LONG) == ["succeeded"] * 6
    two.shutdown()


def test_a_replica_knows_its_number(client: LocalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    client.submit(call(lambda: seen.append(replica_index()), name="callable", replicas=3)).wait(LONG)
    assert sorted(seen) == [0, 1, 2]
    script = f'touch "{tmp_path}/$FRAY_REPLICA_INDEX"'
    client.submit(shell(script, name="program", replicas=3)).wait(LONG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    assert replica_index() == 0
    for name, value in (("IRIS_TASK_INDEX", 3), ("FRAY_REPLICA_INDEX", 2)):
        monkeypatch.setenv(name, str(value))
        assert replica_index() == value
