"""Submitting, waiting and stopping against a real server, with the server going away in between."""

import threading
from dataclasses import replace

import cloudpickle
import grpc
import pytest

from iris.client import ControllerUnreachable, IrisClient, JobAlreadyExists, JobFailedError
from iris.client.connection.address import parse_address
from iris.client.connection.connection import Connection
from iris.client.job_env import JobEnv
from iris.client.plan import JobLimits, JobPlan
from iris.client.submission.submit import Submitter
from iris.cluster.constraints import Constraint, ConstraintOp, region_constraint
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    JobState,
    PriorityBand,
    ResourceSpec,
    gpu_device,
    tpu_device,
)
from iris.domain.runtime import TaskRuntime
from iris.rpc import iris_pb2 as pb
from iris.rpc.controller_address import ControllerAddress
from rigging.errors import DeadlineExceeded, Denied, InvalidRequest, NotFound

TRUE = Entrypoint.from_command("true")
NO_LIMITS = JobLimits(max_retries_failure=0, max_retries_preemption=0, timeout=None, scheduling_timeout=None)


def plan(**changes) -> JobPlan:
    fields = {
        "entrypoint": TRUE,
        "name": "job",
        "user": None,
        "resources": ResourceSpec(),
        "environment": EnvironmentSpec(),
        "replicas": 1,
        "limits": NO_LIMITS,
        "constraints": (),
        "coscheduling": None,
        "ports": (),
        "priority_band": None,
    }
    return JobPlan(**{**fields, **changes})


def test_everything_asked_for_is_in_the_request(controller, connection, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\n[project.optional-dependencies]\ngpu = []\n'
    )
    (tmp_path / "uv.lock").write_text("version = 1\n")
    client = IrisClient(connection, tmp_path, user="ann")
    job = client.submit(
        Entrypoint.from_command("python", "x.py"),
        "train",
        ResourceSpec(cpu=0.5, memory="2GB", disk="1GB", device=gpu_device("H100", 8)),
        EnvironmentSpec(["einops"], {"A": "1"}, ["gpu"]),
        ports=["http"],
        scheduling_timeout=2,
        constraints=[region_constraint(["us-east1", "us-east5"])],
        replicas=3,
        max_retries_failure=4,
        max_task_failures=2,
        timeout=1.5,
        priority_band="batch",
        exclusive=True,
        fence_after=30,
    )
    assert job.job_id == "/ann/train"
    spec = controller.specs["/ann/train"]
    assert list(spec.entrypoint.command.argv) == ["python", "x.py"]
    assert (spec.resources.cpu_millis, spec.resources.memory_bytes) == (500, 2 << 30)
    assert (spec.resources.device.kind, spec.resources.device.variant, spec.resources.device.count) == (
        "gpu",
        "H100",
        8,
    )
    assert (list(spec.environment.pip_packages), list(spec.environment.extras)) == (["einops"], ["gpu"])
    assert spec.environment.env_vars["A"] == "1"
    assert (spec.timeout_ms, spec.scheduling_timeout_ms) == (1500, 2000)
    assert (spec.replicas, spec.max_retries_failure, spec.max_retries_preemption) == (3, 4, 1000)
    assert spec.max_task_failures == 2
    assert (spec.exclusive, spec.fence_after_ms) == (True, 30_000)
    assert spec.constraints[0].op == pb.CONSTRAINT_OP_IN
    assert list(spec.constraints[0].values) == ["us-east1", "us-east5"]
    assert spec.band == pb.PRIORITY_BAND_BATCH
    assert list(spec.ports) == ["http"]
    assert controller.metadata[-1]["authorization"] == "Bearer u:ann:x"


def test_a_job_of_which_nothing_more_is_said_is_one_task_that_is_restarted_with_its_host_alone(controller, connection):
    IrisClient(connection, user="ann").submit(TRUE, "job")
    spec = controller.specs["/ann/job"]
    assert (spec.replicas, spec.max_retries_failure, spec.max_retries_preemption, spec.max_task_failures) == (
        1, 0, 1000, 0
    )  # fmt: skip
    said = {field.name for field, _ in spec.ListFields()}
    assert said == {
        "job_id", "entrypoint", "resources", "environment", "replicas", "max_retries_preemption", "runtime"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a/b"}, "a/b"),
        ({"name": "17"}, "17"),
        ({"replicas": 0}, "replicas must be a whole number from 1 to 2147483647, not 0"),
        ({"limits": replace(NO_LIMITS, max_retries_failure=-1)}, "max_retries_failure"),
        ({"limits": replace(NO_LIMITS, timeout=0)}, "timeout must be a number of seconds above 0"),
        ({"fence_after": 60.0}, "fence_after is 60.0, but the job is not exclusive"),
        ({"exclusive": True, "fence_after": 0.0}, "fence_after must be seconds above 0, at most 2592000 s"),
        ({"exclusive": True, "fence_after": float("nan")}, "fence_after must be seconds"),
        ({"constraints": (Constraint("zone", ConstraintOp.EQ, ("a", "b")),)}, "has 2 values; EQ takes one value"),
        ({"priority_band": "urgent"}, "production, interactive, batch"),
        ({"entrypoint": Entrypoint.from_callable(len, threading.Lock())}, "cannot be sent to another process"),
    ],
)
def test_what_can_never_work_is_refused_before_anything_is_sent(controller, connection, wrong, words):
    with pytest.raises(InvalidRequest, match=words):
        Submitter(connection, None, environ={}).submit(plan(**wrong), existing="fail", idempotency_key=None)
    assert controller.calls == []


@pytest.mark.parametrize(
    ("device", "group", "asked", "sent", "words"),
    [
        (tpu_device("v5p-64"), "tpu-name", 9, 16, "gang: 9 tasks become 16, to fill whole slices of v5p-64"),
        (tpu_device("v5p-64"), "tpu-name", 16, 16, ""),
        (tpu_device("v5p-64"), None, 9, 9, "gang: a slice of v5p-64 has 8 VMs, and each task gets one VM of any slice"),
        (tpu_device("v5p-64"), "rack", 9, 9, ""),
        (tpu_device("v5p-8"), None, 9, 9, ""),
        (gpu_device("H100", 8), "tpu-name", 9, 9, ""),
        (None, "tpu-name", 9, 9, ""),
    ],
)
def test_what_becomes_of_slices_of_several_vms_is_told(controller, connection, device, group, asked, sent, words):
    told: list[str] = []
    client = IrisClient(connection, user="ann", on_warning=told.append)
    resources, together = ResourceSpec(device=device), CoschedulingConfig(group) if group else None
    client.submit(TRUE, "gang", resources, replicas=asked, coscheduling=together)
    assert controller.specs["/ann/gang"].replicas == sent
    assert [line.partition(";")[0] for line in told] == ([words] if words else [])


def test_callables_travel_inline_when_small_and_as_blobs_when_large(controller, client):
    for name, argument in (("small", 1), ("large", b"x" * 3_000_000)):
        client.submit(Entrypoint.from_callable(len, argument), name)
        spec = controller.specs[f"/ann/{name}"]
        fn, args, kwargs = cloudpickle.loads(controller.blobs[spec.entrypoint.callable.payload_digest])
        assert (fn, args, kwargs) == (len, (argument,), {})
        assert spec.entrypoint.callable.display_name == "builtins:len"
    assert len(controller.called("UploadBlobs")) == 3


def test_the_workspace_is_packed_once_for_many_jobs(controller, connection, tmp_path):
    (tmp_path / "a.py").write_text("")
    client = IrisClient(connection, tmp_path, user="ann", same_machine=True)
    for name in ("one", "two"):
        client.submit(TRUE, name)
    digests = {controller.specs[f"/ann/{name}"].bundle_digest for name in ("one", "two")}
    assert digests <= set(controller.blobs)
    assert len(controller.called("FindMissingBlobs")) == 1


def test_a_client_for_another_workspace_is_still_inside_its_job(controller, connection, tmp_path):
    inside = JobEnv("h:1", "/bob/parent", "/bob/parent/0", "/bob/parent/0:1", "w", "", bundle_digest="abc")
    client = IrisClient(connection, inside=inside, same_machine=True)
    (tmp_path / "a.py").write_text("")
    job = client.with_workspace(tmp_path).submit(TRUE, "child")
    assert job.job_id == "/bob/parent/child"
    assert controller.specs[job.job_id].bundle_digest not in ("", "abc")
    assert controller.specs[client.submit(TRUE, "other").job_id].bundle_digest == "abc"


def test_inside_a_job_children_get_its_name_bundle_and_packages(controller, connection):
    inside = JobEnv(
        "h:1", "/bob/parent", "/bob/parent/0", "/bob/parent/0:1", "w", "", "", "abc", 1, ("cpu",), ("einops",)
    )
    submitter = Submitter(connection, None, inside=inside, environ={"MARIN_PREFIX": "gs://x", "HOME": "/h"})
    child = submitter.submit(plan(name="child"), existing="fail", idempotency_key=None).job_id
    assert child == "/bob/parent/child"
    spec = controller.specs[child]
    assert (spec.bundle_digest, list(spec.environment.extras)) == ("abc", ["cpu"])
    assert dict(spec.environment.env_vars) == {"MARIN_PREFIX": "gs://x"}
    own = plan(name="own", environment=EnvironmentSpec(extras=["gpu"], env_vars={"MARIN_PREFIX": "y"}))
    submitter.submit(own, existing="fail", idempotency_key=None)
    spec = controller.specs["/bob/parent/own"]
    assert (list(spec.environment.extras), list(spec.environment.pip_packages)) == (["gpu"], ["einops"])
    assert spec.environment.env_vars["MARIN_PREFIX"] == "y"
    with pytest.raises(InvalidRequest, match="belongs to 'bob'"):
        submitter.submit(plan(name="x", user="eve"), existing="fail", idempotency_key=None)


def test_a_command_runs_in_the_directory_in_which_it_was_typed(controller, connection, tmp_path, monkeypatch):
    (tmp_path / "proj" / "sub").mkdir(parents=True)
    (tmp_path / "proj" / "sub" / "a.py").write_text("")
    client = IrisClient(connection, tmp_path / "proj", user="ann", same_machine=True)

    def working_dir(name: str, **options: str) -> str:
        return controller.specs[client.submit(TRUE, name, **options).job_id].runtime.working_dir

    monkeypatch.chdir(tmp_path / "proj" / "sub")
    assert working_dir("typed") == "sub"
    assert working_dir("top", working_dir="") == ""
    assert working_dir("other", working_dir="new/place") == "new/place"
    monkeypatch.chdir(tmp_path)
    assert working_dir("outside") == ""
    for wrong in ("../x", "/abs", "a//b", "a/.", "x\0"):
        with pytest.raises(InvalidRequest, match="relative path without"):
            working_dir("wrong", working_dir=wrong)
    with pytest.raises(InvalidRequest, match="no workspace"):
        IrisClient(connection, user="ann").submit(TRUE, "none", working_dir="sub")


def test_nothing_is_sent_of_what_is_refused(controller, connection, tmp_path):
    (tmp_path / "a.py").write_text("")
    client = IrisClient(connection, tmp_path, user="ann")
    with pytest.raises(InvalidRequest, match=r"does not say which packages its jobs need: add a uv\.lock"):
        client.submit(TRUE, "job")
    (tmp_path / "requirements.txt").write_text("")
    with pytest.raises(InvalidRequest, match="extra 'gpu'"):
        IrisClient(connection, tmp_path, user="ann").submit(TRUE, "job", environment=EnvironmentSpec(extras=["gpu"]))
    assert controller.calls == []
    runtime = controller.specs[IrisClient(connection, tmp_path, user="ann").submit(TRUE, "job").job_id].runtime
    assert (runtime.packages, runtime.environment_path, runtime.interpreter) == (pb.PACKAGE_SOURCE_REQUIREMENTS, "", "")


def test_a_child_runs_where_its_parent_is(controller, connection, tmp_path, monkeypatch):
    (tmp_path / "attempt" / "sub" / "deep").mkdir(parents=True)
    inside = JobEnv(
        "h:1", "/bob/p", "/bob/p/0", "/bob/p/0:1", "w", "", bundle_digest="abc",
        workspace_dir=str(tmp_path / "attempt"), runtime=TaskRuntime(working_dir="sub"),
    )  # fmt: skip
    client = IrisClient(connection, inside=inside)

    def working_dir(name: str) -> str:
        return controller.specs[client.submit(TRUE, name).job_id].runtime.working_dir

    monkeypatch.chdir(tmp_path / "attempt" / "sub" / "deep")
    assert working_dir("below") == "sub/deep"
    monkeypatch.chdir(tmp_path)
    assert working_dir("elsewhere") == "sub"
    alone = IrisClient(connection, inside=inside, inherit_workspace=False)
    spec = controller.specs[alone.submit(TRUE, "alone").job_id]
    assert (spec.bundle_digest, spec.runtime.working_dir) == ("", "")


def test_a_lost_answer_does_not_make_a_second_job(controller, client):
    lost = []

    def lose_first(name, request, context):
        if name == "SubmitJob" and not lost:
            lost.append(request)
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")

    controller.on_call = lose_first
    job = client.submit(TRUE, "once")
    assert lost
    assert job.job_id == "/ann/once"
    assert len(controller.keys) == 1


def test_a_taken_name_is_an_error_or_is_adopted(client):
    client.submit(TRUE, "name")
    with pytest.raises(JobAlreadyExists, match="/ann/name"):
        client.submit(TRUE, "name")
    assert client.submit(TRUE, "name", adopt_existing=True).job_id == "/ann/name"


def test_wait_returns_when_the_job_ends_and_raises_for_failure(controller, client):
    job = client.submit(TRUE, "good")
    threading.Timer(0.05, controller.end, ["/ann/good"]).start()
    assert job.wait(timeout=20).state is JobState.SUCCEEDED

    failing = client.submit(TRUE, "bad")
    controller.end("/ann/bad", pb.JOB_STATE_FAILED, error="task 0 failed: exit code 3", exit_code=3)
    with pytest.raises(JobFailedError, match="/ann/bad failed: task 0 failed: exit code 3") as failed:
        failing.wait()
    assert failed.value.status.exit_code == 3
    assert failing.wait(raise_on_failure=False).state is JobState.FAILED


def test_wait_for_any_and_for_time(controller, client):
    jobs = [client.submit(TRUE, name) for name in ("a", "b")]
    with pytest.raises(DeadlineExceeded, match="/ann/a is running, /ann/b is running"):
        client.wait_jobs(jobs, timeout=0.05)
    controller.end("/ann/b")
    states = [status.state for status in client.wait_jobs(jobs, any=True, timeout=20)]
    assert states == [JobState.RUNNING, JobState.SUCCEEDED]


def test_a_wait_survives_a_restart_of_the_controller(controller, client):
    job = client.submit(TRUE, "long")
    result = []
    waiting = threading.Thread(target=lambda: result.append(job.wait(timeout=30)))
    waiting.start()
    with controller.changed:
        controller.changed.wait_for(lambda: controller.called("WaitJobs"), 10)
    controller.stop()
    controller.jobs["/ann/long"].state = pb.JOB_STATE_SUCCEEDED
    controller.start()
    waiting.join(30)
    assert [status.state for status in result] == [JobState.SUCCEEDED]


def test_a_controller_that_moved_is_found_again(controller):
    told = []
    connection = Connection(lambda answered: ControllerAddress(controller.address, "t"), reconnect_timeout=20)
    connection.on_interrupted = told.append
    client = IrisClient(connection, user="ann")
    job = client.submit(TRUE, "moves")
    controller.stop()
    controller.port = 0
    controller.start()
    assert job.status().job_id == "/ann/moves"
    client.shutdown()


def test_a_controller_that_stays_away_ends_the_wait_and_says_whether_it_was_there(controller):
    answers = []

    def resolve(answered):
        answers.append(answered)
        return ControllerAddress(controller.address, "t")

    client = IrisClient(Connection(resolve, reconnect_timeout=0.2, connect_timeout=0.2), user="ann")
    job = client.submit(TRUE, "job")
    controller.stop()
    with pytest.raises(ControllerUnreachable, match="is gone") as gone:
        job.wait(timeout=20)
    assert gone.value.was_connected
    assert answers[0] is False
    assert all(answers[1:])

    never = IrisClient(Connection(resolve, reconnect_timeout=5, connect_timeout=0.1), user="ann")
    with pytest.raises(ControllerUnreachable, match="cannot be reached") as unreachable:
        never.status("/ann/job")
    assert not unreachable.value.was_connected


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, Denied),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, NotFound),
    ],
)
def test_refusals_keep_their_class_and_words(controller, client, code, error):
    controller.on_call = lambda name, request, context: context.abort(code, "because of this")
    with pytest.raises(error, match="because of this"):
        client.status("/ann/x")
    assert len(controller.calls) == 1


def test_waiting_inside_a_job_names_the_attempt_that_waits(controller):
    connection = Connection(lambda answered: ControllerAddress(controller.address, "t"), attempt_id="/bob/p/0:2")
    client = IrisClient(connection, user="bob")
    client.submit(TRUE, "child")
    controller.end("/bob/child")
    client.wait_jobs(["/bob/child"], timeout=10)
    assert controller.metadata[-1]["iris-attempt-id"] == "/bob/p/0:2"
    client.shutdown()


def test_terminate_and_list(controller, client):
    job = client.submit(TRUE, "stops")
    assert job.terminate("enough") == ["/ann/stops"]
    assert job.state is JobState.KILLED
    client.list_jobs(prefix="/ann", states=[JobState.KILLED], limit=7)
    request = controller.called("ListJobs")[-1]
    assert (request.prefix, list(request.states), request.limit) == ("/ann", [pb.JOB_STATE_KILLED], 7)
    with pytest.raises(InvalidRequest, match="'running' is none; give one of JobState: PENDING, BUILDING, RUNNING"):
        client.list_jobs(state="running")
    with pytest.raises(InvalidRequest, match="state of jobs: 0 is none"):
        client.list_jobs(state=0)


def test_a_client_that_is_shut_down_says_so(client):
    client.shutdown()
    with pytest.raises(Exception, match="shut down"):
        client.status("/ann/x")


@pytest.mark.parametrize("text", ["host", "host:", ":7", "host:99999", "host:7/x"])
def test_addresses_are_host_and_port(text):
    assert parse_address("http://10.0.0.2:7077/") == "10.0.0.2:7077"
    with pytest.raises(InvalidRequest, match="host:port"):
        parse_address(text)


def test_bands_have_the_words_of_the_command_line():
    assert {band.word for band in PriorityBand} == {"production", "interactive", "batch"}
