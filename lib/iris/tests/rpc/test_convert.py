from dataclasses import replace
from typing import Any

import pytest

from iris.controller.services.convert_worker import observation_from_wire
from iris.domain.entities import Job, SilentAttempt, Task, UserBudget
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, PackageSource, TaskRuntime
from iris.domain.states import ExistingJobPolicy, FailureKind, JobState, PriorityBand, TaskState
from iris.domain.usage import USAGE_FIELDS, Usage, usage_from
from iris.rpc.convert import (
    budget_from_wire,
    budget_to_wire,
    bundle_parts,
    existing_policy_from_wire,
    job_states_from_wire,
    job_status,
    silent_attempt,
    task_status,
    usage_from_wire,
    usage_to_wire,
)
from iris.rpc.convert_job import (
    entrypoint_from_wire,
    resources_from_wire,
    resources_to_wire,
    spec_from_wire,
    spec_to_wire,
)
from iris.rpc.convert_runtime import runtime_from_wire, runtime_to_wire
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest
from support.iris.messages import filled


def full_spec() -> pb.JobSpec:
    constraint = pb.Constraint(key="zone", op=pb.CONSTRAINT_OP_IN, values=["a", "b"], soft=True)
    return filled(
        pb.JobSpec(
            job_id="/ann/train/child",
            entrypoint=pb.Entrypoint(callable=filled(pb.Callable())),
            resources=filled(pb.Resources(device=filled(pb.Device(alternatives=["v4-8"])))),
            environment=pb.Environment(extras=["tpu"], pip_packages=["numpy"]),
            constraints=[constraint],
            ports=["http"],
            band=pb.PRIORITY_BAND_BATCH,
            runtime=filled(pb.Runtime(packages=pb.PACKAGE_SOURCE_SUBMITTER)),
            notify_url="https://hooks.example.com",
        )
    )


def test_no_field_of_a_job_is_lost_between_wire_and_domain() -> None:
    wire = full_spec()
    assert {field.name for field, _ in wire.ListFields()} == {field.name for field in pb.JobSpec.DESCRIPTOR.fields}
    assert spec_to_wire(spec_from_wire(wire)) == wire


def test_env_vars_come_in_and_are_never_shown_and_without_a_band_there_is_a_default() -> None:
    wire = full_spec()
    wire.environment.env_vars["TOKEN"] = "hush"
    spec = spec_from_wire(wire)
    assert spec.env_vars == {"TOKEN": "hush"}
    assert spec_to_wire(spec) == full_spec()
    wire.band = pb.PRIORITY_BAND_UNSPECIFIED
    assert spec_from_wire(wire).band is PriorityBand.INTERACTIVE
    assert spec_from_wire(wire, PriorityBand.PRODUCTION).band is PriorityBand.PRODUCTION


@pytest.mark.parametrize(
    ("domain", "wire", "prefix"),
    [
        (JobState, pb.JobState, "JOB_STATE_"),
        (TaskState, pb.TaskState, "TASK_STATE_"),
        (FailureKind, pb.FailureKind, "FAILURE_KIND_"),
        (PriorityBand, pb.PriorityBand, "PRIORITY_BAND_"),
        (PackageSource, pb.PackageSource, "PACKAGE_SOURCE_"),
    ],
)
def test_the_numbers_of_the_wire_are_those_of_the_domain(domain: type, wire: object, prefix: str) -> None:
    on_wire = {name.removeprefix(prefix): number for name, number in wire.items()}  # type: ignore[attr-defined]
    in_domain = {member.name: member.value for member in domain}  # type: ignore[attr-defined]
    on_wire.pop("UNSPECIFIED", None)
    in_domain.pop("UNSPECIFIED", None)
    assert on_wire == in_domain


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": 99}, "attempt /ann/a/0:0: state 99 is unknown"),
        ({"state": pb.TASK_STATE_UNSCHEDULABLE}, "a worker cannot observe the state unschedulable"),
        ({"state": pb.TASK_STATE_FAILED, "failure": 77}, "failure kind 77 is unknown"),
    ],
)
def test_an_impossible_observation_is_refused(fields: dict[str, int], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        observation_from_wire(pb.Observation(attempt_id="/ann/a/0:0", **fields), WorkerId("w1"))


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


def test_what_this_release_does_not_know_is_refused_with_what_it_does() -> None:
    policies = [ExistingJobPolicy.FAIL, ExistingJobPolicy.FAIL, ExistingJobPolicy.ADOPT, ExistingJobPolicy.REPLACE]
    assert [existing_policy_from_wire(number) for number in range(4)] == policies
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


def test_an_exclusive_job_has_a_fence_and_others_none() -> None:
    def fence(**fields: Any) -> int:
        return spec_from_wire(pb.JobSpec(job_id="/a/b", entrypoint=command(), **fields)).fence_after_ms

    assert fence() == 0
    assert fence(exclusive=True) == 600_000
    assert fence(exclusive=True, fence_after_ms=5) == 5


def test_runtimes_and_the_parts_that_a_bundle_names() -> None:
    assert (runtime_to_wire(DEFAULT_RUNTIME), runtime_from_wire(None)) == (None, DEFAULT_RUNTIME)
    runtime = TaskRuntime(working_dir="sub", python="3.12")
    assert runtime_from_wire(runtime_to_wire(runtime)) == runtime
    files = [pb.BundleFile(path="a", part_digests=["x", "y"]), pb.BundleFile(path="b", part_digests=["y", "z"])]
    assert bundle_parts(pb.BundleManifest(files=files).SerializeToString()) == {"x", "y", "z"}
    assert bundle_parts(b"\xff") == set()


def test_every_number_comes_back() -> None:
    usage = Usage(*range(1, len(USAGE_FIELDS) + 1))
    message = usage_to_wire("/ann/a/0:1", usage, "w1")
    assert (message.attempt_id, message.worker_id) == ("/ann/a/0:1", "w1")
    assert usage_from_wire(message) == usage
    assert usage_from(list(usage.numbers())) == usage
    message = usage_to_wire("", Usage(cpu_ms=5))
    message.memory_bytes = -5
    assert usage_from_wire(message) == Usage(cpu_ms=5), "numbers below 0 mean nothing"
    assert usage_from([1, -2, *[0] * 20]) == Usage(cpu_ms=1), "later releases have more of them"
    assert usage_from("no list") == Usage()
