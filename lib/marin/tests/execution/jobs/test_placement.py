from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from fray import JobStatus, ResourceConfig
from fray.errors import JobFailed
from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.placement import check_returned, remote_function
from marin.execution.jobs.remote import remote
from marin.execution.jobs.step_call import RETURNED
from marin.execution.report.events import StepTimedOut
from rigging.errors import NotFound, Unavailable
from support.marin.steps import MakeStep


class Handle:
    """A job, and what was done with it."""

    def __init__(self, job_id: str = "j", error: Exception | None = None) -> None:
        self.job_id = job_id
        self.done: list[str] = []
        self.error = error
        self.during: Callable[[], object] = lambda: None
        self.told: Any = None

    def status(self) -> JobStatus:
        return JobStatus.RUNNING

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> None:
        self.done.append("wait")
        self.during()

    def terminate(self) -> None:
        self.done.append("terminate")
        if self.error is not None:
            raise self.error

    def result(self) -> Any:
        if self.told is None:
            raise NotFound(f"what {self.job_id} returned is not here: it ended before results were kept here")
        return self.told


class TogetherHandle(Handle):
    """A job whose backend stops many at once."""

    def terminate_with(self, others: Iterable["TogetherHandle"]) -> None:
        self.done.append(f"terminate with {[other.job_id for other in others]}")
        if self.error is not None:
            raise self.error


def test_jobs_of_a_backend_that_stops_many_at_once_are_stopped_together(caplog: pytest.LogCaptureFixture) -> None:
    jobs = LiveJobs()
    first, second = TogetherHandle("a", Unavailable("no route")), TogetherHandle("b")
    first.during = lambda: jobs.wait(cast(Any, second), "/p/b")
    second.during = jobs.terminate
    jobs.wait(cast(Any, first), "/p/a")
    assert (first.done, second.done) == (["wait", "terminate with ['b']"], ["wait"])
    assert "could not stop job a to b: no route" in caplog.text


def test_jobs_are_stopped_with_their_run_or_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    jobs, handle, other = LiveJobs(), Handle(), Handle("k", Unavailable("no route"))
    other.during = lambda: (jobs.terminate_one("/p/b"), jobs.terminate_one("/p/none"))
    jobs.wait(cast(Any, other), "/p/b")
    assert other.done == ["wait", "terminate"]
    assert "stopping job k: its step lost the lease on /p/b" in caplog.text
    assert "could not stop job k: no route" in caplog.text
    jobs.terminate_one("/p/b")
    assert other.done == ["wait", "terminate"], "it is over"
    found: list[bool] = []
    handle.during = lambda: found.append(jobs.terminate())
    jobs.wait(cast(Any, handle), "/p/a")
    assert (handle.done, found) == (["wait", "terminate"], [True])
    late = Handle()
    jobs.wait(cast(Any, late), "/p/c")
    assert late.done == ["terminate", "wait"], "the run has been stopped"
    assert not jobs.terminate()
    assert jobs.take_log("/p/a") == "job j"
    assert jobs.take_log("/p/a") is None


def test_a_job_that_does_not_end_has_not_ended() -> None:
    def go_on() -> None:
        raise StepTimedOut("not yet")

    jobs, endless = LiveJobs(), Handle()
    endless.during = go_on
    with pytest.raises(StepTimedOut):
        jobs.wait(cast(Any, endless), "/p/a", timeout=0.01)
    assert not jobs.has_ended("/p/a", 0.01)
    assert jobs.has_ended("/p/b", 0.01)


def test_a_job_that_was_adopted_has_returned_when_its_cluster_cannot_tell(caplog: pytest.LogCaptureFixture) -> None:
    check_returned(cast(Any, Handle("/user/job")), 1)
    assert "/user/job succeeded; whether its function returned is unknown" in caplog.text


@pytest.mark.parametrize(
    ("told", "silent"),
    [
        (RETURNED, None),
        ("else", "its process"),
        ([RETURNED, RETURNED], None),
        ([RETURNED, "else"], "the process of replica 1"),
    ],
)
def test_a_job_has_returned_when_each_of_its_processes_says_so(told: Any, silent: str | None) -> None:
    handle, replicas = Handle("/user/job"), len(told) if isinstance(told, list) else 1
    handle.told = told
    if silent is None:
        check_returned(cast(Any, handle), replicas)
        return
    with pytest.raises(JobFailed, match=f"job /user/job: {silent} ended, with exit code 0, before the step's function"):
        check_returned(cast(Any, handle), replicas)


def work(config: Any) -> None:
    """A step's function."""


def test_which_functions_become_jobs(make_step: MakeStep) -> None:
    assert remote_function(make_step("a", fn=work)) is None
    assert remote_function(make_step("a", fn=None)) is None
    cpu, own = ResourceConfig(cpu=4), ResourceConfig(cpu=2)
    fn = remote(work, resources=own, pip_dependency_groups=["x", "y"])
    for step, resources, groups in (
        (make_step("a", fn=work, resources=cpu), cpu, ()),
        (make_step("a", fn=work, pip_dependency_groups=["x"]), ResourceConfig.with_cpu(), ("x",)),
        (make_step("a", fn=fn, resources=cpu, pip_dependency_groups=["y", "z"]), cpu, ("x", "y", "z")),
        (make_step("a", fn=fn), own, ("x", "y")),
    ):
        found = remote_function(step)
        assert found is not None
        assert (found.fn, found.resources, tuple(found.pip_dependency_groups)) == (work, resources, groups)
