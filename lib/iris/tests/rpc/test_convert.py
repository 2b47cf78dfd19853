import pytest

from iris.controller.services.convert_worker import observation_from_wire
from iris.domain.ids import WorkerId
from iris.domain.runtime import PackageSource
from iris.domain.states import FailureKind, JobState, PriorityBand, TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.convert_job import spec_from_wire, spec_to_wire
from rigging.errors import InvalidRequest


def full_spec() -> pb.JobSpec:
    return pb.JobSpec(
        job_id="/ann/train/child",
        entrypoint=pb.Entrypoint(callable=pb.Callable(payload_digest="ab" * 32, display_name="m:f")),
        resources=pb.Resources(
            cpu_millis=1500,
            memory_bytes=2,
            disk_bytes=3,
            device=pb.Device(kind="tpu", variant="v5p-8", count=4, alternatives=["v4-8"]),
        ),
        environment=pb.Environment(extras=["tpu"], pip_packages=["numpy"]),
        bundle_digest="cd" * 32,
        replicas=3,
        max_retries_failure=1,
        max_retries_preemption=2,
        timeout_ms=4,
        scheduling_timeout_ms=5,
        constraints=[pb.Constraint(key="zone", op=pb.CONSTRAINT_OP_IN, values=["a", "b"], soft=True)],
        coscheduling_group_by="slice",
        ports=["http"],
        band=pb.PRIORITY_BAND_BATCH,
        max_task_failures=2,
        reserve=True,
        exclusive=True,
        fence_after_ms=30_000,
        runtime=pb.Runtime(
            working_dir="sub",
            project_dir="proj",
            python="3.12",
            packages=pb.PACKAGE_SOURCE_SUBMITTER,
            environment_path="/v",
            interpreter="/p",
        ),
        description="why",
        retry_window_ms=60_000,
        health_cmd="true",
        health_interval_ms=1,
        health_timeout_ms=2,
        health_retries=3,
        stall_timeout_ms=4,
        notify_url="https://hooks.example.com",
        enforced="memory",
        limits_mode="enforced",
    )


def test_no_field_of_a_job_is_lost_between_wire_and_domain() -> None:
    wire = full_spec()
    assert {field.name for field, _ in wire.ListFields()} == {field.name for field in pb.JobSpec.DESCRIPTOR.fields}
    assert spec_to_wire(spec_from_wire(wire)) == wire


def test_env_vars_come_in_and_are_never_shown() -> None:
    wire = full_spec()
    wire.environment.env_vars["TOKEN"] = "hush"
    spec = spec_from_wire(wire)
    assert spec.env_vars == {"TOKEN": "hush"}
    assert spec_to_wire(spec) == full_spec()


def test_a_job_without_a_band_takes_the_default() -> None:
    wire = full_spec()
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
