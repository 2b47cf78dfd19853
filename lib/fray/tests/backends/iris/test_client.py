"""The Iris client of fray against a recording stand-in for `IrisClient`; a real cluster is in the e2e tests."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fray.backends.iris import IrisBackend
from fray.backends.iris import client as backend
from fray.client import GivesNewOutput, JobHandle
from fray.errors import JobAlreadyExists, JobFailed
from fray.types import Entrypoint, EnvironmentConfig, JobRequest, JobStatus
from iris.client import IrisClient, JobPlan, LogLine
from iris.client import JobAlreadyExists as IrisJobAlreadyExists
from iris.client import JobStatus as IrisJobStatus
from iris.cluster.types import ExistingJobPolicy, JobState
from rigging.errors import Conflict, DeadlineExceeded, Unavailable


class FakeIris:
    """Jobs end at once, as `outcome` says."""

    def __init__(self, outcome: IrisJobStatus | None = None) -> None:
        self.outcome = outcome or IrisJobStatus("", JobState.SUCCEEDED)
        self.submitted: list[JobPlan] = []
        self.policies: list[ExistingJobPolicy] = []
        self.terminated: list[str] = []
        self.workspaces: list[str] = []
        self.closed = False
        self.before_answer: Callable[[], object] = lambda: None

    def full_name_prefix(self) -> str:
        return "/ann"

    def with_workspace(self, workspace: str) -> "FakeIris":
        self.workspaces.append(workspace)
        return self

    def submit_plan(self, plan: JobPlan, *, existing: ExistingJobPolicy) -> SimpleNamespace:
        if any(job.name == plan.name for job in self.submitted) and existing is ExistingJobPolicy.FAIL:
            raise IrisJobAlreadyExists(f"job /ann/{plan.name} is running")
        self.submitted.append(plan)
        self.policies.append(existing)
        return SimpleNamespace(job_id=f"/ann/{plan.name}")

    def status(self, job_id: str) -> IrisJobStatus:
        return replace(self.outcome, job_id=job_id)

    def wait_jobs(self, jobs: Iterable[str], timeout: float | None = None) -> list[IrisJobStatus]:
        statuses = [self.status(job_id) for job_id in jobs]
        if not all(status.is_terminal for status in statuses):
            raise DeadlineExceeded(f"not ended within {timeout} s")
        return statuses

    def exception(self, status: IrisJobStatus) -> BaseException | None:
        return ValueError("no shards") if status.state is JobState.FAILED and status.exit_code else None

    def poll_jobs(self, job_ids: Sequence[str], *, any: bool, seconds: float) -> tuple[list[IrisJobStatus], bool]:
        statuses = [self.status(job_id) for job_id in job_ids]
        self.before_answer()
        return statuses, True

    def terminate(self, job_id: str) -> list[str]:
        self.terminated.append(job_id)
        return [job_id]

    def read_logs(self, job_id: str) -> Iterator[LogLine]:
        yield LogLine(f"{job_id}/0", 0, False, 1, b"half ", partial=True)
        yield LogLine(f"{job_id}/0", 0, False, 1, b"line")
        yield LogLine(f"{job_id}/0", 0, True, 2, b"oops")

    def shutdown(self) -> None:
        self.closed = True


def make(fake: FakeIris, inside_job: bool = True) -> IrisBackend:
    """Inside a job every submission goes through the one client; outside, through one for its workspace."""
    return IrisBackend(cast(IrisClient, fake), inside_job=inside_job)


def request(name: str = "job", **fields: Any) -> JobRequest:
    return JobRequest(name, Entrypoint.from_callable(print), **fields)


def test_submit_passes_the_request_on_and_a_taken_name_is_frays_own_error() -> None:
    fake = FakeIris()
    client = make(fake)
    handle = client.submit(request(replicas=2, max_retries_failure=1), adopt_existing=False)
    assert handle.job_id == "/ann/job"
    assert (fake.submitted[0].replicas, fake.submitted[0].limits.max_retries_failure) == (2, 1)
    assert fake.policies == [ExistingJobPolicy.FAIL]
    assert handle.wait(5) is handle.status() is JobStatus.SUCCEEDED
    assert handle.logs() == "half line\noops\n"
    with pytest.raises(JobAlreadyExists, match="job /ann/job is running") as caught:
        client.submit(request(), adopt_existing=False)
    assert caught.value.job_name == "job"
    assert caught.value.handle is not None
    assert caught.value.handle.job_id == "/ann/job"


def test_a_failure_says_what_and_where_the_log_is() -> None:
    fake = FakeIris(IrisJobStatus("", JobState.FAILED, error="task 0 failed: ValueError: no shards", exit_code=1))
    handle = make(fake).submit(request())
    with pytest.raises(JobFailed) as caught:
        handle.wait(5)
    assert str(caught.value) == (
        "job /ann/job failed (its log: iris job logs /ann/job): task 0 failed: ValueError: no shards"
    )
    assert (caught.value.job_id, caught.value.exit_code) == ("/ann/job", 1)
    assert repr(caught.value.__cause__) == "ValueError('no shards')"
    assert handle.wait(5, raise_on_failure=False) is JobStatus.FAILED


def test_stopped_or_ended_by_a_signal_is_no_success() -> None:
    fake = FakeIris(IrisJobStatus("", JobState.KILLED))
    handle = make(fake).submit(request())
    handle.terminate()
    assert fake.terminated == ["/ann/job"]
    assert handle.wait(5, raise_on_failure=False) is JobStatus.STOPPED
    with pytest.raises(JobFailed, match="job /ann/job killed"):
        handle.wait(5)
    fake = FakeIris(IrisJobStatus("", JobState.FAILED, error="killed by SIGKILL", exit_signal=9))
    with pytest.raises(JobFailed) as caught:
        make(fake).submit(request()).wait(5)
    assert caught.value.exit_code == -9


def test_a_job_is_not_taken_for_the_one_before_it_of_its_name() -> None:
    fake, again, told = FakeIris(), list[JobHandle](), threading.Event()
    client = make(fake)

    def resubmit() -> None:
        # The answer that the first has succeeded is on its way when the second begins.
        fake.outcome = IrisJobStatus("", JobState.FAILED)
        again.append(client.submit(request()))

    first = client.submit(request())
    fake.before_answer = resubmit
    first.add_done_callback(lambda _: told.set())
    assert told.wait(30)
    assert first.wait(5) is JobStatus.SUCCEEDED
    with pytest.raises(JobFailed):
        again[0].wait(5)


def test_after_shutdown_nothing_is_submitted() -> None:
    fake = FakeIris()
    client = make(fake)
    client.shutdown()
    assert fake.closed
    assert client.closed
    with pytest.raises(Conflict, match="has been shut down"):
        client.submit(request())


@pytest.mark.parametrize(
    ("environ", "address", "made"),
    [
        ({}, None, ("connect", None, False)),
        ({}, "h:1", ("remote", "h:1", False)),
        ({"IRIS_JOB_ID": "/ann/a", "IRIS_CONTROLLER_ADDRESS": "c:2"}, None, ("remote", "c:2", True)),
        ({"IRIS_JOB_ID": "/ann/a", "IRIS_CONTROLLER_ADDRESS": "http://c:2"}, "c:2", ("remote", "c:2", True)),
        ({"IRIS_JOB_ID": "/ann/a", "IRIS_CONTROLLER_ADDRESS": "c:2"}, "other:3", ("remote", "other:3", False)),
    ],
)
def test_which_cluster_a_spec_means(
    environ: dict[str, str], address: str | None, made: tuple[str, str | None, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IRIS_JOB_ID", "IRIS_CONTROLLER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    seen: list[tuple[str, str | None, bool]] = []
    stand_in = SimpleNamespace(connect=lambda: ("connect", None), remote=lambda target: ("remote", target))
    monkeypatch.setattr(backend, "IrisClient", stand_in)
    monkeypatch.setattr(
        backend, "IrisBackend", lambda client, inside_job=False: seen.append((client[0], client[1], inside_job))
    )
    backend.connect(address)
    assert seen == [made]


def test_each_workspace_has_its_client_over_one_connection(tmp_path: Path) -> None:
    workspaces = (("a", tmp_path), ("b", tmp_path / "x" / ".."), ("c", tmp_path / "other"))
    # Inside a job its own workspace goes on.
    for inside_job, clients in ((False, [str(tmp_path), str(tmp_path / "other")]), (True, [])):
        fake = FakeIris()
        client = make(fake, inside_job=inside_job)
        for name, workspace in workspaces:
            job = client.submit(request(name, environment=EnvironmentConfig(workspace=str(workspace))))
            assert isinstance(job, GivesNewOutput) is not inside_job
        assert fake.workspaces == clients
        assert [job.name for job in fake.submitted] == ["a", "b", "c"]


def test_the_project_around_the_current_directory_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeIris()
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    make(fake, inside_job=False).submit(request("job"))
    assert fake.workspaces == [str(tmp_path)]


def test_who_waits_while_the_client_is_shut_down_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeIris()
    client = make(fake)
    job = client.submit(request())

    def closed_under_it(jobs: Iterable[str], timeout: float | None = None) -> list[IrisJobStatus]:
        del jobs, timeout
        client.shutdown()
        raise Unavailable("Channel closed!")

    monkeypatch.setattr(fake, "wait_jobs", closed_under_it)
    with pytest.raises(Conflict, match="job /ann/job: this Iris client has been shut down"):
        job.wait()
