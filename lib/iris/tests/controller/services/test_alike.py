"""Jobs that differ in their names only: what was read and checked for one is used for the next, and no more."""

from dataclasses import fields

import pytest

from iris.controller.services.convert_worker import launch_to_wire, relaunch
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec, is_alike, renamed
from iris.domain.states import PriorityBand
from iris.rpc.convert_job import SpecReader, spec_from_wire, spec_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.store.rows import SpecWriter, env_vars_to_json, spec_to_json
from rigging.errors import InvalidRequest

BAND = PriorityBand.INTERACTIVE
OTHER_VALUES: dict[str, object] = {
    "entrypoint": pb.Entrypoint(command=pb.Command(argv=["other"])),
    "resources": pb.Resources(cpu_millis=7),
    "environment": pb.Environment(env_vars={"A": "2"}),
    "runtime": pb.Runtime(working_dir="elsewhere"),
    "constraints": [pb.Constraint(key="zone", op=pb.CONSTRAINT_OP_EQ, values=["b"])],
    "ports": ["other"],
    "band": pb.PRIORITY_BAND_BATCH,
    "bundle_digest": "ef" * 32,
    "coscheduling_group_by": "other",
    "description": "other",
    "health_cmd": "other",
    "notify_url": "https://hooks.example.com/other",
    "enforced": "memory",
    "limits_mode": "enforced",
    "start_at_ms": 9,
    "max_running": 2,
    "after": "/ann/c:any",
    "reserve": True,
    "exclusive": True,
}


def wire(name: str = "/ann/a") -> pb.JobSpec:
    return pb.JobSpec(
        job_id=name,
        entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
        resources=pb.Resources(cpu_millis=1000, memory_bytes=2**20),
        environment=pb.Environment(env_vars={"A": "1"}),
        replicas=1,
    )


def changed(field: str) -> pb.JobSpec:
    """The job /ann/b, which differs from `wire()` in one field more."""
    message = wire("/ann/b")
    message.ClearField(field)  # type: ignore[arg-type]
    message.MergeFrom(pb.JobSpec(**{field: OTHER_VALUES.get(field, 8)}))  # type: ignore[arg-type]
    return message


ALL_BUT_NAME = [field.name for field in pb.JobSpec.DESCRIPTOR.fields if field.name != "job_id"]


def test_a_renamed_job_keeps_everything_else() -> None:
    spec = spec_from_wire(wire())
    other = renamed(spec, JobId("/ann/b"))
    assert other.job_id == "/ann/b"
    assert all(getattr(other, item.name) is getattr(spec, item.name) for item in fields(JobSpec)[1:])
    assert is_alike(spec, other)


@pytest.mark.parametrize("field", ALL_BUT_NAME)
def test_jobs_that_differ_in_one_field_are_not_taken_for_each_other(field: str) -> None:
    reader, writer = SpecReader(), SpecWriter()
    first = reader.read(wire(), BAND)
    writer.write(first)
    other = reader.read(changed(field), BAND)
    assert not is_alike(first, other)
    assert spec_to_wire(other) == spec_to_wire(spec_from_wire(changed(field)))
    assert writer.write(other) == (spec_to_json(other), env_vars_to_json(other) if other.env_vars else "")


def test_jobs_alike_share_their_parts_and_their_text() -> None:
    reader, writer = SpecReader(), SpecWriter()
    first, second = reader.read(wire(), BAND), reader.read(wire("/ann/b"), BAND)
    assert (first.job_id, second.job_id) == ("/ann/a", "/ann/b")
    assert second.resources is first.resources
    assert writer.write(second)[0] is writer.write(first)[0]


def test_the_band_of_the_parent_counts_and_a_bad_name_is_refused_each_time() -> None:
    reader = SpecReader()
    assert reader.read(wire(), BAND).band is BAND
    assert reader.read(wire("/ann/b"), PriorityBand.BATCH).band is PriorityBand.BATCH
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="not a job id"):
            reader.read(wire("a"), BAND)


def test_a_launch_made_from_another_names_its_own_job_and_token() -> None:
    first, second = spec_from_wire(wire()), spec_from_wire(wire("/ann/b"))
    launch = launch_to_wire(first, "one")
    assert relaunch(launch, second.job_id, "two") == launch_to_wire(second, "two")
    assert launch == launch_to_wire(first, "one")
