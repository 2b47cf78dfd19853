"""What the controller knows of jobs and tasks, on the wire: each field where it belongs, and none left out."""

from dataclasses import replace
from typing import Any

import pytest

from iris.domain.entities import Job, Task, UserBudget
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import CallableEntrypoint, CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, TaskRuntime
from iris.domain.silence import SilentAttempt
from iris.domain.states import ExistingJobPolicy, JobState, PriorityBand, TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.convert import (
    budget_from_wire,
    budget_to_wire,
    bundle_parts,
    existing_policy_from_wire,
    job_states_from_wire,
    job_status,
    silent_attempt,
    task_status,
)
from iris.rpc.convert_job import (
    SpecReader,
    entrypoint_from_wire,
    resources_from_wire,
    resources_to_wire,
    spec_from_wire,
)
from iris.rpc.convert_runtime import runtime_from_wire, runtime_to_wire
from rigging.errors import InvalidRequest

SPEC = JobSpec(JobId("/ann/a/b"), CommandEntrypoint(("true", "x")), replicas=4, description="why")


def counts(**states: int) -> tuple[int, ...]:
    return tuple(states.get(TaskState(number).name.lower(), 0) if number else 0 for number in range(max(TaskState) + 1))


def test_the_status_of_a_job() -> None:
    job = Job(SPEC, JobState.FAILED, 1, 2, 3, "why", 4, 5, TaskId("/ann/a/b/2"), 6, "key", counts(running=7, failed=8))
    message = job_status(job, "waits", include_spec=True)
    assert message.spec.job_id == "/ann/a/b"
    message.ClearField("spec")
    assert message == job_status(job, "waits")
    assert message == pb.JobStatus(
        job_id="/ann/a/b", state=pb.JOB_STATE_FAILED, error="why", pending_reason="waits", submitted_at_ms=1,
        started_at_ms=2, finished_at_ms=3, exit_code=4, exit_signal=5, parent_id="/ann/a", replicas=4,
        deciding_task_id="/ann/a/b/2", display_command="true x", description="why",
        task_counts=[
            pb.TaskCount(state=pb.TaskState.ValueType(int(state)), count=count)
            for state, count in sorted([(TaskState.RUNNING, 7), (TaskState.FAILED, 8)])
        ],
    )  # fmt: skip
    root = job_status(Job(JobSpec(JobId("/ann/a"), CommandEntrypoint(("true",))), JobState.PENDING, 1))
    assert (root.parent_id, root.deciding_task_id, root.pending_reason, len(root.task_counts)) == ("", "", "", 0)


def test_the_status_of_a_task() -> None:
    silent = SilentAttempt(AttemptId("/ann/a/0:1"), WorkerId("w2"), 1500, True, 2500)
    task = Task(TaskId("/ann/a/0"), JobId("/ann/a"), 0, TaskState.FAILED)
    values: dict[str, Any] = {
        "attempt": 1, "worker_id": WorkerId("w1"), "exit_code": 2, "exit_signal": 3, "error": "e", "started_at_ms": 4,
        "finished_at_ms": 5, "failures": 6, "preemptions": 7, "causes": ("x", "y"),
    }  # fmt: skip
    message = task_status(replace(task, **values), "waits", [silent])
    assert message == pb.TaskStatus(
        task_id="/ann/a/0", state=pb.TASK_STATE_FAILED, pending_reason="waits",
        silent=[
            pb.SilentAttempt(
                attempt_id="/ann/a/0:1", worker_id="w2", silent_ms=1500, is_wanted=True, fenced_in_ms=2500
            )
        ],
        **values,
    )  # fmt: skip
    assert task_status(replace(task, worker_id=None)).worker_id == ""
    assert silent_attempt(silent) == message.silent[0]


def test_budgets() -> None:
    budget = UserBudget("ann", 2.5, PriorityBand.BATCH)
    wire = budget_to_wire(budget, 1.5)
    assert wire == pb.UserBudget(user="ann", max_weight=2.5, max_band=pb.PRIORITY_BAND_BATCH, held_weight=1.5)
    assert budget_from_wire(wire) == budget
    assert budget_from_wire(pb.UserBudget(user="ann")) == UserBudget("ann", 0, PriorityBand.PRODUCTION)
    for weight in (-0.5, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest, match=r"user ann: max_weight is .*; it must be 0 \(no limit\) or more"):
            budget_from_wire(pb.UserBudget(user="ann", max_weight=weight))
    with pytest.raises(InvalidRequest, match="priority band 9 is unknown"):
        budget_from_wire(pb.UserBudget(user="ann", max_band=9))


@pytest.mark.parametrize(
    ("number", "policy"),
    [
        (0, ExistingJobPolicy.FAIL),
        (1, ExistingJobPolicy.FAIL),
        (2, ExistingJobPolicy.ADOPT),
        (3, ExistingJobPolicy.REPLACE),
    ],
)
def test_policies(number: int, policy: ExistingJobPolicy) -> None:
    assert existing_policy_from_wire(number) is policy


def test_what_this_release_does_not_know_is_refused_with_what_it_does() -> None:
    with pytest.raises(InvalidRequest, match="existing-job policy 9 is unknown; known are fail, adopt, replace"):
        existing_policy_from_wire(9)
    with pytest.raises(InvalidRequest, match="job state 99 is unknown; known are "):
        job_states_from_wire([1, 99])
    assert job_states_from_wire([int(JobState.FAILED), int(JobState.FAILED)]) == frozenset({JobState.FAILED})
    constraint = pb.Constraint(key="k", op=99)
    with pytest.raises(InvalidRequest, match=r"constraint 'k': operator 99 is unknown"):
        spec_from_wire(pb.JobSpec(job_id="/a/b", entrypoint=command(), constraints=[constraint]))
    with pytest.raises(InvalidRequest, match="the job has no entrypoint: give a command or a callable"):
        entrypoint_from_wire(pb.Entrypoint())
    with pytest.raises(InvalidRequest, match="package source 99 is unknown; known are "):
        runtime_from_wire(pb.Runtime(packages=99))


def command() -> pb.Entrypoint:
    return pb.Entrypoint(command=pb.Command(argv=["true"]))


def test_entrypoints() -> None:
    assert entrypoint_from_wire(command()) == CommandEntrypoint(("true",))
    wire = pb.Entrypoint(callable=pb.Callable(payload_digest="d", display_name="n"))
    assert entrypoint_from_wire(wire) == CallableEntrypoint("d", "n")


@pytest.mark.parametrize(
    "resources",
    [
        Resources(),
        Resources(1, 2, 3),
        Resources(1, 2, 3, Device("tpu", "v5p-8", 4, ("v4-8",))),
        Resources(device=Device("cpu", "", 0)),
    ],
)
def test_resources(resources: Resources) -> None:
    assert resources_from_wire(resources_to_wire(resources)) == resources
    assert resources_from_wire(pb.Resources(device=pb.Device(count=3))) == Resources(), "a device of no kind is none"


def test_runtimes() -> None:
    assert runtime_to_wire(DEFAULT_RUNTIME) is None
    assert runtime_from_wire(None) == DEFAULT_RUNTIME
    runtime = TaskRuntime(working_dir="sub", python="3.12")
    assert runtime_from_wire(runtime_to_wire(runtime)) == runtime


def test_an_exclusive_job_has_a_fence_and_others_none() -> None:
    def fence(**fields: Any) -> int:
        return spec_from_wire(pb.JobSpec(job_id="/a/b", entrypoint=command(), **fields)).fence_after_ms

    assert fence() == 0
    assert fence(exclusive=True) == 600_000
    assert fence(exclusive=True, fence_after_ms=5) == 5


def test_the_parts_that_a_bundle_names() -> None:
    files = [pb.BundleFile(path="a", part_digests=["x", "y"]), pb.BundleFile(path="b", part_digests=["y", "z"])]
    assert bundle_parts(pb.BundleManifest(files=files).SerializeToString()) == {"x", "y", "z"}
    assert bundle_parts(b"\xff") == set()


def test_jobs_that_differ_in_their_names_only_are_read_once() -> None:
    reader = SpecReader()

    def read(name: str, band: PriorityBand = PriorityBand.INTERACTIVE, **fields: Any) -> JobSpec:
        message = pb.JobSpec(job_id=name, entrypoint=command(), replicas=2, **fields)
        found = reader.read(message, band)
        assert found == spec_from_wire(message, band)
        return found

    first, second = read("/a/b"), read("/a/c")
    assert first.entrypoint is second.entrypoint
    assert read("/a/d", PriorityBand.BATCH).band is PriorityBand.BATCH
    assert read("/a/e", timeout_ms=5).timeout_ms == 5
    assert read("/a/f").timeout_ms == 0
    with pytest.raises(InvalidRequest):
        read("not a name")
