import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fray.backends.local import LocalClient
from fray.client import JobHandle, wait_all
from fray.context import current_client
from fray.errors import JobAlreadyExists, JobFailed
from fray.replica import replica_index
from fray.testing import eventually
from fray.testing.signals import is_running
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus, ResourceConfig
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest

LONG = 30.0  # seconds; never reached unless something hangs


def call(fn: Callable[..., Any], *args: Any, name: str = "job", **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(fn, args), **fields)


def shell(script: str, name: str = "job", **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_binary("sh", ["-c", script]), **fields)


def test_a_callable_runs_with_its_arguments(client: LocalClient) -> None:
    seen: list[object] = []
    entrypoint = Entrypoint.from_callable(lambda *args, **kwargs: seen.append((args, kwargs)), [1, "b"], {"c": 3})
    assert client.submit(JobRequest("job", entrypoint)).wait(LONG) is JobStatus.SUCCEEDED
    assert seen == [((1, "b"), {"c": 3})]


def test_status_through_a_jobs_life(client: LocalClient) -> None:
    one = LocalClient(max_threads=1)
    started, release = threading.Event(), threading.Event()
    first = one.submit(call(lambda: (started.set(), release.wait(LONG)), name="first"))
    second = one.submit(call(lambda: None, name="second"))
    assert started.wait(LONG)
    assert (first.status(), second.status()) == (JobStatus.RUNNING, JobStatus.PENDING)
    release.set()
    assert wait_all([first, second], LONG) == [JobStatus.SUCCEEDED, JobStatus.SUCCEEDED]
    assert first.job_id != second.job_id
    one.shutdown()


def fail() -> None:
    raise LookupError("no such shard")


def test_wait_raises_the_jobs_own_exception_each_time_alike(client: LocalClient) -> None:
    job = client.submit(call(fail))
    depths = []
    for _ in range(3):
        with pytest.raises(LookupError, match="no such shard") as caught:
            job.wait(LONG)
        depths.append(len(caught.traceback))
    assert caught.traceback[-1].name == "fail"
    assert len(set(depths)) == 1
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.FAILED


@pytest.mark.parametrize(("code", "status"), [(0, "succeeded"), (None, "succeeded"), (3, "failed"), ("why", "failed")])
def test_sys_exit_ends_the_job_and_not_the_one_who_waits(client: LocalClient, code: object, status: str) -> None:
    job = client.submit(call(sys.exit, code))
    assert job.wait(LONG, raise_on_failure=False) == status
    if status == "failed":
        with pytest.raises(JobFailed, match=rf"called sys\.exit\({code!r}\)"):
            job.wait(LONG)


def test_retries_until_it_succeeds_and_not_one_more(client: LocalClient) -> None:
    runs: list[int] = []

    def third_time_lucky() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise OSError("not yet")

    assert client.submit(call(third_time_lucky, max_retries_failure=5)).wait(LONG) is JobStatus.SUCCEEDED
    assert len(runs) == 3


def test_retries_run_out(client: LocalClient, tmp_path: Path) -> None:
    job = client.submit(shell("echo once; exit 4", max_retries_failure=2))
    with pytest.raises(JobFailed, match="exit code 4"):
        job.wait(LONG)
    assert job.logs() == "once\n" * 3


def test_wait_times_out_and_the_job_goes_on(client: LocalClient) -> None:
    release = threading.Event()
    job = client.submit(call(release.wait, name="slow"))
    with pytest.raises(TimeoutError, match=r"'slow' is running after waiting 0.01 s"):
        job.wait(0.01)
    release.set()
    assert job.wait(LONG) is JobStatus.SUCCEEDED


def test_a_program_gets_its_environment_and_its_output_is_kept(client: LocalClient, tmp_path: Path) -> None:
    environment = EnvironmentConfig(workspace=str(tmp_path), env_vars={"GREETING": "hi"})
    job = client.submit(shell('echo "$GREETING from $(pwd)"; echo oops >&2', environment=environment))
    assert job.wait(LONG) is JobStatus.SUCCEEDED
    assert job.logs() == f"hi from {tmp_path.resolve()}\noops\n"


def test_a_failed_program_shows_its_exit_code_and_the_end_of_its_output(client: LocalClient) -> None:
    with pytest.raises(JobFailed) as caught:
        client.submit(shell("seq 100; exit 7", name="count")).wait(LONG)
    assert caught.value.exit_code == 7
    assert "job 'count': 'sh' ended with exit code 7; the end of its output:\n81\n" in str(caught.value)
    assert str(caught.value).endswith("\n100")


def test_a_program_ended_by_a_signal_names_it(client: LocalClient) -> None:
    with pytest.raises(JobFailed, match=r"signal 11 \(SIGSEGV\); it wrote nothing") as caught:
        client.submit(shell("kill -SEGV $$")).wait(LONG)
    assert caught.value.exit_code == -signal.SIGSEGV


def test_a_program_that_does_not_exist_fails_the_job(client: LocalClient) -> None:
    job = client.submit(JobRequest("job", Entrypoint.from_binary("no-such-program")))
    with pytest.raises(JobFailed, match="cannot start 'no-such-program': No such file"):
        job.wait(LONG)
    nowhere = EnvironmentConfig(workspace="/no/such/directory")
    with pytest.raises(JobFailed, match=r"cannot start 'sh'.*/no/such/directory"):
        client.submit(shell("true", environment=nowhere)).wait(LONG)


def grandchild_of(job: JobHandle) -> int:
    eventually(lambda: job.logs().endswith("\n"), "the script has said its child")
    return int(job.logs().splitlines()[0])


def test_terminate_stops_a_program_with_all_it_started(client: LocalClient) -> None:
    job = client.submit(shell("sleep 300 & echo $!; wait"))
    grandchild = grandchild_of(job)
    job.terminate()
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    eventually(lambda: not is_running(grandchild), "the grandchild is gone")
    with pytest.raises(JobFailed, match="was stopped"):
        job.wait(LONG)


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


def test_terminate_marks_a_callable_stopped_at_once_and_ignores_what_it_returns(client: LocalClient) -> None:
    release, ended = threading.Event(), threading.Event()
    job = client.submit(call(lambda: (release.wait(LONG), ended.set())))
    eventually(lambda: job.status() is JobStatus.RUNNING, "the job runs")
    job.terminate()
    assert job.wait(LONG, raise_on_failure=False) is JobStatus.STOPPED
    release.set()
    assert ended.wait(LONG)
    client.shutdown()
    assert job.status() is JobStatus.STOPPED


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


def test_a_live_job_is_adopted_or_refused_and_its_name_is_free_when_it_has_ended(client: LocalClient) -> None:
    release = threading.Event()
    first = client.submit(call(release.wait))
    assert client.submit(call(fail)) is first
    with pytest.raises(JobAlreadyExists, match=r"job 'job' is (pending|running) as local-1-job"):
        client.submit(call(fail), adopt_existing=False)
    release.set()
    first.wait(LONG)
    second = client.submit(call(lambda: None), adopt_existing=False)
    assert second.job_id != first.job_id
    second.wait(LONG)
    third = client.submit(call(fail))
    with pytest.raises(LookupError):
        third.wait(LONG)


def test_replicas_run_side_by_side(client: LocalClient) -> None:
    meeting = threading.Barrier(12)  # more than max_threads: they can only meet if all run at once
    job = client.submit(call(meeting.wait, LONG, resources=ResourceConfig.with_cpu(replicas=12)))
    assert job.wait(LONG) is JobStatus.SUCCEEDED


def test_one_failed_replica_ends_the_others(client: LocalClient, tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/first 2>/dev/null && exit 5; exec sleep 300"
    with pytest.raises(JobFailed, match="exit code 5"):
        client.submit(shell(script, replicas=3)).wait(LONG)


def test_resources_are_ignored_unless_admission_is_asked_for(client: LocalClient) -> None:
    huge = call(lambda: None, resources=ResourceConfig.with_tpu("v5p-8", cpu=10_000))
    assert client.submit(huge).wait(LONG) is JobStatus.SUCCEEDED
    admitting = LocalClient(admission=True)
    with pytest.raises(InvalidRequest, match=r"asks for v5p-8.*processors only"):
        admitting.submit(huge)
    with pytest.raises(InvalidRequest, match=r"asks for 10000 CPUs.*this machine has \d+"):
        admitting.submit(call(lambda: None, resources=ResourceConfig(cpu=10_000)))
    admitting.shutdown()


def test_with_admission_jobs_wait_for_processors() -> None:
    admitting = LocalClient(admission=True)
    all_cpus = ResourceConfig(cpu=os.cpu_count() or 1)
    release = threading.Event()
    first = admitting.submit(call(release.wait, name="first", resources=all_cpus))
    second = admitting.submit(call(lambda: None, name="second", resources=all_cpus))
    eventually(lambda: first.status() is JobStatus.RUNNING, "the first runs")
    assert second.status() is JobStatus.PENDING
    release.set()
    assert wait_all([first, second], LONG) == ["succeeded", "succeeded"]
    admitting.shutdown()


def test_a_tree_of_jobs_deeper_and_wider_than_the_pool_ends() -> None:
    one = LocalClient(max_threads=1)
    leaves: list[int] = []

    def node(depth: int, name: str) -> None:
        if depth == 0:
            leaves.append(1)
            return
        client = current_client()
        wait_all([client.submit(call(node, depth - 1, f"{name}.{i}", name=f"{name}.{i}")) for i in range(3)], LONG)

    one.submit(call(node, 4, "root", name="root")).wait(LONG)
    assert len(leaves) == 81
    one.shutdown()


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


def test_wait_all_raises_the_first_failure_while_others_still_run(client: LocalClient) -> None:
    release = threading.Event()
    slow = client.submit(call(release.wait, name="slow"))
    with pytest.raises(JobFailed, match="bad failed: LookupError: no such shard"):
        wait_all([slow, client.submit(call(fail, name="bad"))], LONG)
    assert not slow.status().finished()
    with pytest.raises(DeadlineExceeded, match=f"1 of 1 jobs had not ended after 0.01 s: {slow.job_id}"):
        wait_all([slow], 0.01)
    release.set()
    bad = client.submit(call(fail, name="bad"))
    assert wait_all([slow, bad], LONG, raise_on_failure=False) == ["succeeded", "failed"]
    assert wait_all([]) == []


def test_a_failing_callback_disturbs_nobody(client: LocalClient, caplog: pytest.LogCaptureFixture) -> None:
    release, told = threading.Event(), threading.Event()
    job = client.submit(call(release.wait))
    job.add_done_callback(lambda _: fail())
    job.add_done_callback(lambda _: told.set())
    release.set()
    assert told.wait(LONG)
    assert "a done callback failed" in caplog.text


def test_shutdown_lets_jobs_end_and_leaves_nothing(client: LocalClient) -> None:
    before = set(threading.enumerate())
    own = LocalClient(max_threads=2)
    done: list[int] = []
    jobs = [own.submit(call(done.append, i, name=f"j{i}")) for i in range(20)]
    program = own.submit(shell("echo end", name="program"))
    own.shutdown()
    assert sorted(done) == list(range(20))
    assert {job.status() for job in [*jobs, program]} == {JobStatus.SUCCEEDED}
    assert program.logs() == "end\n"
    assert set(threading.enumerate()) <= before
    with pytest.raises(Conflict, match="has been shut down"):
        own.submit(call(fail))
    own.shutdown()
    assert own.closed


def test_shutdown_without_waiting_stops_what_is_left() -> None:
    one = LocalClient(max_threads=1)
    running = one.submit(shell("exec sleep 300", name="running"))
    queued = one.submit(call(fail, name="queued"))
    eventually(lambda: running.status() is JobStatus.RUNNING, "the first runs")
    one.shutdown(wait=False)
    assert wait_all([running, queued], LONG, raise_on_failure=False) == ["stopped", "stopped"]


def test_as_a_context_manager_it_shuts_down() -> None:
    with LocalClient() as own:
        job = own.submit(call(lambda: None))
    assert job.status() is JobStatus.SUCCEEDED
    assert own.closed


def test_max_threads_is_checked() -> None:
    with pytest.raises(InvalidRequest, match="max_threads must be at least 1, not 0"):
        LocalClient(max_threads=0)


def test_a_replica_knows_its_number(client: LocalClient, tmp_path: Path) -> None:
    seen: list[int] = []
    client.submit(call(lambda: seen.append(replica_index()), name="callable", replicas=3)).wait(LONG)
    assert sorted(seen) == [0, 1, 2]
    script = f'touch "{tmp_path}/$FRAY_REPLICA_INDEX"'
    client.submit(shell(script, name="program", replicas=3)).wait(LONG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    assert replica_index() == 0


@pytest.mark.parametrize(
    ("environment", "index"), [({}, 0), ({"IRIS_TASK_INDEX": "3"}, 3), ({"FRAY_REPLICA_INDEX": "2"}, 2)]
)
def test_a_process_that_is_a_replica_knows_it_by_its_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], index: int
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert replica_index() == index
