"""What a submitted job must be like: each refusal names the field, the value and what is allowed."""

from typing import Any

import pytest

from iris.controller.admission import admission
from iris.controller.admission.admission import Admission
from iris.controller.admission.validate import (
    MAX_CONSTRAINT_VALUES,
    MAX_CONSTRAINTS,
    MAX_PLAIN_TEXT_LENGTH,
    MAX_PORTS,
    MAX_REPLICAS,
    MAX_TEXT_LENGTH,
    validate_fence,
    validate_place,
    validate_spec,
)
from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import MAX_FENCE_AFTER_MS, CallableEntrypoint, CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import TaskRuntime
from iris.domain.scale_groups import ScaleGroup
from rigging.errors import InvalidRequest

DIGEST = "ab" * 32
GPU = Resources(1000, device=Device("gpu", "H100", 1))


def spec(argv: tuple[str, ...] = ("true",), **fields: Any) -> JobSpec:
    return JobSpec(**{"job_id": JobId("/ann/a"), "entrypoint": CommandEntrypoint(argv), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"replicas": MAX_REPLICAS},
        {"coscheduling_group_by": "x" * MAX_PLAIN_TEXT_LENGTH},
        {"reserve": True, "resources": GPU},
        {"exclusive": True, "fence_after_ms": 1},
        {"exclusive": True, "fence_after_ms": MAX_FENCE_AFTER_MS},
        {"argv": ("x" * MAX_TEXT_LENGTH,)},
        {"argv": ("sh", "-c", "", "a b\n")},
        {"entrypoint": CallableEntrypoint(DIGEST, "f")},
        {"bundle_digest": DIGEST, "runtime": TaskRuntime(working_dir="sub")},
        {"env_vars": {"_A1": "", "b": "x" * (MAX_TEXT_LENGTH - 4)}},
        {"extras": ("a", "tpu", "a-b_c.d", "1")},
        {"ports": ("http", "a" * 64, "H-_1")},
        {
            "pip_packages": (
                "numpy", "numpy>=2", " numpy == 1.0 ", "a.b[c, d-e]", "x @ https://x/y", "x@file:///y",
                "a;python_version>'3'", "a~=1", "a(>=1)", "a[]",
            )
        },
        {"constraints": (Constraint("zone", ConstraintOp.NE, ("a",)),) * MAX_CONSTRAINTS},
        {"constraints": (Constraint("zone", ConstraintOp.IN, ("a",) * MAX_CONSTRAINT_VALUES),)},
        {"ports": tuple(f"p{number}" for number in range(MAX_PORTS))},
    ],
)  # fmt: skip
def test_what_is_accepted(fields: dict[str, Any]) -> None:
    accepted = spec(**fields)
    validate_spec(accepted)
    assert accepted == spec(**fields), "it is taken as it is"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"replicas": 0}, "replicas is 0; allowed are 1 to 100000"),
        (
            {"coscheduling_group_by": "x" * (MAX_PLAIN_TEXT_LENGTH + 1)},
            "coscheduling_group_by has 4097 characters; at most 4096 are allowed",
        ),
        ({"replicas": MAX_REPLICAS + 1}, "replicas is 100001; allowed"),
        *(
            ({name: -1}, f"{name} is -1; it must be 0 or more")
            for name in (
                "max_retries_failure",
                "max_retries_preemption",
                "max_task_failures",
                "timeout_ms",
                "scheduling_timeout_ms",
            )
        ),
        ({"health_cmd": "true"}, "health_interval_ms is 0; with a health_cmd it must be above 0"),
        ({"health_retries": 1}, "health_retries is 1; with a health_cmd it must be above 0, without one 0"),
        (
            {"health_cmd": "a\0b", "health_interval_ms": 1, "health_timeout_ms": 1, "health_retries": 1},
            "health_cmd has a NUL character",
        ),
        ({"stall_timeout_ms": -1}, "stall_timeout_ms is -1; it must be 0 or more"),
        ({"grace_ms": 600_001}, "grace_ms is 600001; it must be at most 600000"),
        ({"retry_window_ms": -1}, "retry_window_ms is -1; it must be 0 or more"),
        ({"notify_url": "ftp://h/key"}, "(?!.*key)the notify URL begins with 'ftp'"),
        ({"reserve": True}, "reserve is set, but no accelerator"),
        ({"fence_after_ms": 5}, "fence_after_ms is 5, but the job is not exclusive"),
        ({"exclusive": True}, f"fence_after_ms is 0; it must be above 0 and at most {MAX_FENCE_AFTER_MS}"),
        ({"exclusive": True, "fence_after_ms": MAX_FENCE_AFTER_MS + 1}, "it must be above 0 and at most"),
        ({"argv": ()}, "the command is empty"),
        ({"argv": ("", "x")}, "the command is empty"),
        ({"argv": ("a", "b\0")}, "the command has a NUL character"),
        ({"argv": ("x", "x" * MAX_TEXT_LENGTH)}, "the command is longer than 1048576 characters"),
        ({"entrypoint": CallableEntrypoint("xyz")}, "'xyz' is not a blob digest"),
        ({"bundle_digest": DIGEST.upper()}, "is not a blob digest"),
        ({"runtime": TaskRuntime(working_dir="sub")}, "working_dir is 'sub', but the job has no workspace"),
        ({"bundle_digest": DIGEST, "runtime": TaskRuntime(working_dir="../x")}, "job /ann/a: .*working_dir"),
        ({"resources": Resources(-1)}, "job /ann/a: cpu is -1"),
        ({"constraints": (Constraint("", ConstraintOp.EQ, ("a",)),)}, "job /ann/a: "),
        (
            {"constraints": (Constraint("zone", ConstraintOp.EXISTS),) * (MAX_CONSTRAINTS + 1)},
            "job /ann/a: the job has 101 constraints; at most 100 are allowed",
        ),
        (
            {"constraints": (Constraint("zone", ConstraintOp.IN, ("a",) * (MAX_CONSTRAINT_VALUES + 1)),)},
            "the constraints have 1001 values; at most 1000",
        ),
        ({"ports": tuple(f"p{number}" for number in range(MAX_PORTS + 1))}, "101 ports; a task may have at most 100"),
        ({"env_vars": {"1A": "x"}}, "environment variable '1A'; a name has"),
        ({"env_vars": {"A": "x\0"}}, "the value of environment variable A has a NUL"),
        (
            {"env_vars": {"_A1": "", "b": "x" * (MAX_TEXT_LENGTH - 3)}},
            "the environment variables have 1048577 characters; at most 1048576",
        ),
        ({"extras": ("-a",)}, "extra '-a'; allowed"),
        ({"extras": ("",)}, "extra ''"),
        ({"ports": ("1a",)}, "port name '1a'"),
        ({"ports": ("a" * 65,)}, "port name"),
        ({"ports": ("http", "http")}, r"port names \['http', 'http'\] are not distinct"),
        *(
            ({"pip_packages": ("numpy", wrong)}, f"pip package {wrong!r} is not a requirement")
            for wrong in ("", "--index-url x", "-r x", "a b", "x @ ", "./x")
        ),
    ],
)
def test_what_is_refused_and_why(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        validate_spec(spec(**fields))


def test_a_fence_leaves_room_for_lost_heartbeats_four_of_them() -> None:
    exclusive = spec(exclusive=True, fence_after_ms=5000)
    validate_fence(exclusive, 5000)
    validate_fence(spec(), 5000)
    with pytest.raises(InvalidRequest, match=r"job /ann/a: fence_after is 5 s; it must be at least 5\.001 s here"):
        validate_fence(exclusive, 5001)
    gate = Admission(heartbeat_interval_s=5)
    gate.check(spec(exclusive=True, fence_after_ms=20_000))
    for _ in range(2):  # what was refused is not found good afterwards
        with pytest.raises(InvalidRequest, match="it must be at least 20 s here"):
            gate.check(spec(exclusive=True, fence_after_ms=19_999))


def test_a_job_that_no_worker_could_ever_run() -> None:
    validate_place(spec(resources=Resources(1000)), [])
    group = ScaleGroup("small", Resources(1000, 2**30, 2**30), max_slices=1)
    validate_place(spec(resources=Resources(1000)), [], (group,))
    with pytest.raises(InvalidRequest, match="job /ann/a can never run: "):
        validate_place(spec(resources=Resources(2000)), [], (group,))


def test_jobs_that_differ_in_their_names_only_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them come in a row."""
    looked: list[str] = []
    monkeypatch.setattr(admission, "validate_spec", lambda job: looked.append(f"spec {job.job_id}"))
    monkeypatch.setattr(admission, "validate_place", lambda job, *_: looked.append(f"place {job.job_id}"))
    gate = Admission(heartbeat_interval_s=5)
    offers = [(WorkerId("w"), Resources(1000), {})]
    for name in "abc":
        gate.check(spec(job_id=JobId(f"/ann/{name}")))
        gate.check_place(spec(job_id=JobId(f"/ann/{name}")), list(offers))
    assert looked == ["spec /ann/a", "place /ann/a"]
    other = spec(job_id=JobId("/ann/d"), resources=Resources(2000))
    gate.check(other)
    gate.check_place(other, offers)
    gate.check_place(other, [])
    assert looked[2:] == ["spec /ann/d", "place /ann/d", "place /ann/d"]
