"""Steps and functions that run as jobs of their own, through fray's in-process client."""

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fray.client import JobHandle
from fray.current_client import set_current_client
from fray.local_backend import LocalClient
from fray.replica import replica_index
from fray.types import JobRequest, JobStatus, ResourceConfig
from marin.execution import mirrored, output_path_of, versioned
from marin.execution.artifact import Artifact
from marin.execution.config.regions import RegionConflict
from marin.execution.jobs.remote import RemoteCallable, function_name, job_name, remote, submit_step
from marin.execution.jobs.step_call import RETURNED, call_step, is_ray_function, mirror_budget_gb
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.report.events import StepEnded, StepJobQueued
from marin.execution.report.log_lines import LogLines
from rigging.errors import DeadlineExceeded, InvalidRequest, JobFailed, StepFailed
from rigging.filesystem import current_budget, mirror_budget
from support.marin.recorder import Recorder, RecordingClient
from support.marin.steps import MakeExecutor, MakeStep


class JobClient(RecordingClient):
    """A client whose only job is given."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self._job = job

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> JobHandle:
        job: JobHandle = self._job
        return job


class RunningJob:
    """What every job here has that is not queued."""

    def status(self) -> JobStatus:
        return JobStatus.RUNNING


@pytest.fixture
def client() -> Iterator[RecordingClient]:
    client = RecordingClient()
    with set_current_client(client):
        yield client
    client.shutdown()


ran: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


def note(value: Any) -> None:
    ran.append(value)


@remote(resources=ResourceConfig.with_cpu(cpu=2), env_vars={"A": "1"}, pip_dependency_groups=["rl", "xxhash>=3"])
def decorated(value: Any) -> None:
    ran.append(value)


def test_forms_of_remote() -> None:
    assert isinstance(decorated, RemoteCallable)
    assert decorated.resources == ResourceConfig.with_cpu(cpu=2)
    assert remote(note) == RemoteCallable(note, ResourceConfig.with_cpu())
    assert remote(note, name="n").name == remote(note).named("n").name == "n"
    assert remote()(note) == remote(note)


class Caller:
    def __call__(self, config: object) -> None: ...


def test_functions_are_called_by_their_names_whatever_is_around_them() -> None:
    partial = functools.partial(functools.partial(note, 1))
    for fn in (note, remote(note), partial, remote(partial), RayFunction(note)):
        assert function_name(fn) == f"{__name__}.note"
    assert function_name(None) == "None"
    assert function_name(Caller()) == f"{__name__}.Caller"
    assert function_name(len) == "builtins.len"


def test_the_job_of_a_remote_function(client: RecordingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "/from/the/environment")
    decorated("value")
    assert ran == ["value"]
    [request] = client.requests
    assert request.name.startswith("decorated-")
    assert request.resources == ResourceConfig.with_cpu(cpu=2)
    environment = request.environment
    assert environment is not None
    assert environment.extras == ["rl"]
    assert environment.pip_packages == ["xxhash>=3"]
    assert environment.env_vars["A"] == "1"
    assert environment.env_vars["MARIN_PREFIX"] == "/from/the/environment"


def test_steps_that_are_remote_or_have_resources_are_jobs(
    client: RecordingClient, make_step: MakeStep, make_executor: MakeExecutor, prefix: str
) -> None:
    inline = make_step("inline", 0, fn=note)
    by_function = make_step("by/function", inline, fn=decorated)
    by_resources = make_step("by/resources", by_function, fn=note, resources=ResourceConfig(cpu=3))
    by_packages = make_step("by/packages", by_resources, fn=decorated, pip_dependency_groups=["rl", "cpu"])
    executor = make_executor()
    executor.run([by_packages])
    assert [config.x for config in ran] == [0, *list(executor.output_paths.values())[:3]]
    names = [request.name for request in client.requests]
    assert [name.rpartition("-")[0] for name in names] == ["by-function", "by-resources", "by-packages"]
    assert [request.resources.cpu for request in client.requests] == [2, 3, 2]
    environments = [request.environment for request in client.requests]
    assert all(environment.env_vars["MARIN_PREFIX"] == prefix for environment in environments if environment)
    assert [environment.extras for environment in environments if environment] == [["rl"], [], ["rl", "cpu"]]
    assert {StatusFile(path).status for path in executor.output_paths.values()} == {STATUS_SUCCESS}


def test_an_output_has_one_name_of_its_job(
    client: RecordingClient, make_step: MakeStep, make_executor: MakeExecutor
) -> None:
    other = make_step("same/name", 1, fn=decorated, override_output_path="elsewhere")
    make_executor().run([make_step("same/name", 1, fn=decorated), other])
    first, second = sorted(request.name for request in client.requests)
    assert first != second
    StatusFile(make_executor().run([other])[other]).write_status(STATUS_FAILED)
    make_executor().run([other])
    assert len(client.requests) == 3
    assert client.requests[2].name in (first, second)


def test_where_a_function_runs_does_not_change_its_path(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    executor = make_executor()
    here, there = make_step("n", fn=note), make_step("n", fn=remote(note), resources=ResourceConfig(cpu=5))
    for step in (here, there):
        executor.compute_version(step)
    assert executor.output_paths[here] == executor.output_paths[there]


def test_of_the_replicas_of_a_job_the_first_stores_the_result(
    client: RecordingClient, make_step: MakeStep, make_executor: MakeExecutor
) -> None:
    def train(_: Any) -> dict[str, int]:
        barrier.wait(20)
        ran.append(replica_index())
        return {"replica": replica_index()}

    barrier = threading.Barrier(3)
    executor = make_executor()
    executor.run([make_step("train", fn=remote(train, resources=ResourceConfig(replicas=3)))])
    assert sorted(ran) == [0, 1, 2]
    [path] = executor.output_paths.values()
    assert Artifact.load(path) == {"replica": 0}


@pytest.mark.parametrize("label", ["hello_world/stats", "a b\tc", "../x", "ünï", "x" * 300])
def test_job_names_are_plain(label: str) -> None:
    name = job_name(label, "0123456789")
    assert name.endswith("-012345")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
    assert len(name) <= 87


def test_an_interrupt_stops_jobs_before_it_gives_up_their_locks(
    make_step: MakeStep, make_executor: MakeExecutor
) -> None:
    """The main thread is interrupted as soon as the job runs; when the job is told to stop, its lock is still held."""
    stopped, held_at_stop = threading.Event(), []
    executor = make_executor()

    class Handle(RunningJob):
        job_id = "job"

        def wait(self) -> None:
            main_thread = threading.main_thread().ident
            assert main_thread is not None
            signal.pthread_kill(main_thread, signal.SIGINT)
            assert stopped.wait(20)
            raise JobFailed("stopped")

        def terminate(self) -> None:
            held_at_stop.extend(StatusFile(path).has_active_lock() for path in executor.output_paths.values())
            stopped.set()

    with set_current_client(JobClient(Handle())), pytest.raises(KeyboardInterrupt):
        executor.run([make_step("a", fn=decorated)])
    assert held_at_stop == [True]
    [path] = executor.output_paths.values()
    assert StatusFile(path).status == STATUS_FAILED


class QueuedJob:
    """A job that waits for a while, by what it is asked."""

    job_id = "job"

    def __init__(self, looks: list[JobStatus], runs_seconds: float, reasons: list[str]) -> None:
        self.looks = looks
        self.runs_seconds = runs_seconds
        self.reasons = reasons

    def status(self) -> JobStatus:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def pending_reason(self) -> str:
        return self.reasons.pop(0) if len(self.reasons) > 1 else self.reasons[0]

    def wait(self, timeout: float | None = None) -> None:
        if timeout is not None:
            time.sleep(0.05)
            raise DeadlineExceeded("not yet")
        time.sleep(self.runs_seconds)

    def result(self) -> str:
        return RETURNED


def test_a_step_whose_job_is_queued_says_so_and_its_queue_time_is_no_run_time(
    make_step: MakeStep, make_executor: MakeExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    waits, recorder, executor = "no worker has 8 CPUs", Recorder(), make_executor()
    job = QueuedJob([JobStatus.PENDING] * 5 + [JobStatus.RUNNING], 0.1, ["", waits, waits])
    executor.observers = [recorder, LogLines()]
    with set_current_client(JobClient(job)), caplog.at_level("INFO"):
        executor.run([make_step("a", fn=decorated)])
    kinds = [type(event).__name__ for event in recorder.events]
    told = ["StepQueued", "StepJobQueued", "StepJobQueued", "StepStarted", "StepEnded"]
    assert kinds == ["RunStarted", *told, "RunEnded"]
    assert [event.reason for event in recorder.of(StepJobQueued)] == ["", waits]
    [ended] = recorder.of(StepEnded)
    assert ended.queued_seconds >= 0.1
    assert 0.1 <= ended.seconds < 0.1 + ended.queued_seconds
    lines = [record.message for record in caplog.records if record.message.startswith("step a")]
    assert [line.partition(" ->")[0] for line in lines[:3]] == [
        "step a: queued", f"step a: queued: {waits}", "step a: running"
    ]  # fmt: skip
    assert "s queued before)" in lines[3]


def test_a_job_that_ends_as_a_look_runs_out_has_not_failed(make_step: MakeStep, make_executor: MakeExecutor) -> None:
    job = QueuedJob([JobStatus.PENDING, JobStatus.SUCCEEDED], 0, [""])
    step = make_step("a", fn=decorated)
    with set_current_client(JobClient(job)):
        assert StatusFile(make_executor().run([step])[step]).status == STATUS_SUCCESS


def submit(client: RecordingClient, fn: Any, config: Any, path: str, **others: Any) -> JobRequest:
    handle = submit_step(fn, "job", config, step_name="n", output_path=path, prefix="/the/prefix", **others)
    handle.wait()
    return client.requests[-1]


async def twice(n: int) -> dict[str, int]:
    return {"twice": 2 * n}


@pytest.mark.parametrize("fn", [remote(twice), remote(remote(twice))])
def test_a_steps_job_is_shown_as_its_function_and_keeps_its_value(
    client: RecordingClient, tmp_path: Path, fn: Any
) -> None:
    from iris.cluster.types import display_name

    request = submit(client, fn, 4, str(tmp_path))
    assert request.entrypoint.callable_entrypoint is not None
    assert display_name(request.entrypoint.callable_entrypoint.callable) == f"{__name__}:twice"
    assert Artifact.load(str(tmp_path)) == {"twice": 8}
    assert request.environment is not None
    assert request.environment.env_vars["MARIN_PREFIX"] == "/the/prefix"
    assert request.environment.env_vars["WANDB_NOTES"] == f"marin step {tmp_path}"
    assert request.description == f"step {str(tmp_path).lstrip('/')}", "by which the job's page links to the step's"


CENTRAL, WEST = "gs://marin-us-central2/a", "gs://marin-us-west4/b"


@pytest.mark.parametrize(
    ("name", "inputs", "error", "words"),
    [
        ("a", [], InvalidRequest, "fray client 'no-such-backend' is not known"),
        ("n" * 300, [], InvalidRequest, r"step 'n+': a part of its output path has 307 bytes"),
        ("torn", [CENTRAL, WEST], RegionConflict, "step 'torn': its inputs and its output are in different"),
    ],
    ids=["nowhere to go", "too long a name", "two regions"],
)
def test_a_step_that_cannot_run_is_refused_before_anything_runs(
    make_step: MakeStep, make_executor: MakeExecutor, monkeypatch: pytest.MonkeyPatch,
    name: str, inputs: list[str], error: type[Exception], words: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("FRAY_CLIENT", "no-such-backend")
    here = make_step("here", fn=note)
    executor = make_executor()
    with pytest.raises(error, match=words):
        executor.run([make_step(name, [output_path_of(here)], inputs, fn=remote(note))])
    assert ran == []
    assert not Path(executor.output_paths[here]).exists()
    executor.run([here])  # which needs no job
    assert len(ran) == 1


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.process)])
@pytest.mark.parametrize("code", [None, 0])
def test_a_step_that_leaves_before_it_returns_is_not_done(
    make_step: MakeStep, make_executor: MakeExecutor, processes: bool, code: int | None
) -> None:
    step = make_step("a", fn=remote(lambda _config: sys.exit(code)))
    executor = make_executor()
    with LocalClient(processes=processes) as client, set_current_client(client), pytest.raises(StepFailed):
        executor.run([step])
    output = Path(executor.output_paths[step])
    assert StatusFile(str(output)).status == STATUS_FAILED
    assert f"called sys.exit({code})" in (output / ".error").read_text()
    assert f"called sys.exit({code})" in (output / ".log").read_text()


@pytest.mark.process
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_whose_process_ends_early_is_not_done(
    make_step: MakeStep, make_executor: MakeExecutor, replicas: int
) -> None:
    def leave(_config: Any) -> str:
        if replica_index() == replicas - 1:
            print("leaving", flush=True)
            os._exit(0)
        return "done"

    resources = ResourceConfig.with_cpu(replicas=replicas)
    step = make_step("a", fn=remote(leave, resources=resources))
    whole = make_step("whole", fn=remote(lambda _config: object(), resources=resources))
    executor = make_executor()
    with LocalClient(processes=True) as client, set_current_client(client), pytest.raises(StepFailed):
        executor.run([whole, step])
    assert StatusFile(executor.output_paths[whole]).status == STATUS_SUCCESS, "each of its processes has returned"
    output = Path(executor.output_paths[step])
    assert StatusFile(str(output)).status == STATUS_FAILED
    assert "its process ended with exit code 0 before its function returned" in (output / ".error").read_text()
    assert "leaving" in (output / ".log").read_text()


def test_the_budget_goes_into_the_job(client: RecordingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_MIRROR_BUDGET_GB", raising=False)
    seen: list[float] = []
    fn = remote(lambda _: seen.append(current_budget().limit_bytes / 2**30))
    request = submit(client, fn, None, str(tmp_path), budget_gb=3)
    assert seen == [3]
    assert request.environment is not None
    assert request.environment.env_vars["MARIN_MIRROR_BUDGET_GB"] == "3.0"
    with mirror_budget(2) as budget:
        budget.record(2**30, "x")
        request = submit(client, fn, None, str(tmp_path))
    assert request.environment is not None
    assert request.environment.env_vars["MARIN_MIRROR_BUDGET_GB"] == "1.0"


def test_a_job_runs_where_its_paths_are(client: RecordingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.execution.jobs.results.write_bytes_atomic", lambda *_: None)
    fn = remote(note)
    assert submit(client, fn, [CENTRAL], CENTRAL).resources.regions == ["us-central2"]
    assert submit(client, fn, ["/local"], "/local").resources.regions is None
    chosen = remote(note, resources=ResourceConfig(regions=["us-east1"]))
    assert submit(client, chosen, [CENTRAL], WEST).resources.regions == ["us-east1"]
    with pytest.raises(RegionConflict, match="step 'n'"):
        submit(client, fn, [CENTRAL], WEST)


class RayFunction:
    """Has what a function under @ray.remote has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        @functools.wraps(function)
        def proxy(*args: Any) -> None:
            raise AssertionError

        self.remote = proxy

    def options(self, **_: Any) -> "RayFunction":
        return self


class RayClass(RayFunction):
    """Has what a class under @ray.remote has."""

    __ray_actor_class__ = Caller


def test_a_ray_function_needs_rays_backend(tmp_path: Path) -> None:
    fn = RayFunction(note)
    assert is_ray_function(fn)
    assert not is_ray_function(decorated)
    with LocalClient() as client, set_current_client(client):
        with pytest.raises(InvalidRequest, match="note is a Ray remote function, which only fray's Ray backend"):
            call_step(fn, (None,), str(tmp_path))
        with pytest.raises(InvalidRequest, match=r"write marin\.execution\.remote\.remote"):
            remote(fn)(None)
        with pytest.raises(InvalidRequest, match=r"Caller is a class under @ray\.remote, an actor, but a step calls"):
            call_step(RayClass(note), (None,), str(tmp_path))


class RayLikeClient(LocalClient):
    """Runs Ray functions as fray's Ray backend does."""

    def run_remote_function(self, fn: Any, args: Sequence[Any]) -> Any:
        return ("by ray", fn.remote.__name__, *args)


def test_a_ray_function_is_run_by_rays_backend_and_its_value_is_kept(tmp_path: Path) -> None:
    with RayLikeClient() as client, set_current_client(client):
        content = call_step(RayFunction(note), (7,), str(tmp_path))
    assert content is not None
    assert json.loads(content) == ["by ray", "note", 7]


@pytest.mark.parametrize(
    ("config", "budget"),
    [
        (mirrored("a"), 10),
        ([mirrored("a", 2), {"k": (mirrored("b", budget_gb=5.5),)}], 5.5),
        (versioned([mirrored("a", 3)]), 3),
        ([{mirrored("a", budget_gb=2)}, frozenset({mirrored("b", budget_gb=5)})], 5),
        (["a", None, {"k": 1}], None),
    ],
)
def test_the_largest_budget_of_a_config(make_step: MakeStep, config: Any, budget: float | None) -> None:
    assert mirror_budget_gb(make_step("n", config).config) == budget
    other = make_step("other", mirrored("a", 100))
    assert mirror_budget_gb([config, other, other / "f"]) == budget


def test_the_budget_is_around_the_function(tmp_path: Path) -> None:
    limits: list[int] = []
    for budget in (2.0, None):
        call_step(lambda _: limits.append(current_budget().limit_bytes), (None,), str(tmp_path), budget)
    assert limits == [2 * 2**30, current_budget().limit_bytes]
