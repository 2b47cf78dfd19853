"""From the arguments of a client to what is sent to the cluster."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iris.client.job_env import JobEnv
from iris.cluster.constraints import region_constraint
from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec, ResourceSpec, gpu_device
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import AlreadyExists, InvalidRequest

TRUE = Entrypoint.from_command("true")
INSIDE = JobEnv("h:1", "/bob/parent", "/bob/parent/0", "/bob/parent/0:1", "w", "", bundle_digest="abc")


def test_everything_asked_for_is_in_the_request(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.9"\n[project.optional-dependencies]\ngpu = []\n'
    )
    (tmp_path / "uv.lock").write_text("version = 1\n")
    job = cluster.client(tmp_path).submit(
        Entrypoint.from_command("python", "x.py"),
        "train",
        ResourceSpec(cpu=0.5, memory="2GB", disk="1GB", device=gpu_device("H100", 8)),
        EnvironmentSpec(["einops"], {"A": "1"}, ["gpu"]),
        ports=["http"],
        scheduling_timeout=2,
        constraints=[region_constraint(["us-east1", "us-east5"])],
        coscheduling=CoschedulingConfig("rack"),
        replicas=3,
        max_retries_failure=4,
        max_retries_preemption=5,
        max_task_failures=2,
        timeout=1.5,
        retry_window=7,
        retry_delay=2.5,
        stall_timeout=8,
        grace=10,
        start_at=9,
        max_running=3,
        after=["a"],
        description="why",
        working_dir="sub",
        priority_band="batch",
        exclusive=True,
        fence_after=30,
    )
    assert job.job_id == "/ann/train"
    spec = cluster.spec
    assert list(spec.entrypoint.command.argv) == ["python", "x.py"]
    device = pb.Device(kind="gpu", variant="H100", count=8)
    assert spec.resources == pb.Resources(cpu_millis=500, memory_bytes=2 << 30, disk_bytes=1 << 30, device=device)
    assert (list(spec.environment.pip_packages), list(spec.environment.extras)) == (["einops"], ["gpu"])
    assert spec.environment.env_vars["A"] == "1"
    [constraint] = spec.constraints
    assert (constraint.op, list(constraint.values)) == (pb.CONSTRAINT_OP_IN, ["us-east1", "us-east5"])
    assert (list(spec.ports), spec.runtime.working_dir, spec.coscheduling_group_by) == (["http"], "sub", "rack")
    plain = {
        "timeout_ms": 1500, "scheduling_timeout_ms": 2000, "replicas": 3, "max_retries_failure": 4,
        "max_retries_preemption": 5, "max_task_failures": 2, "exclusive": True, "fence_after_ms": 30_000,
        "band": pb.PRIORITY_BAND_BATCH, "retry_window_ms": 7000, "retry_delay_ms": 2500,
        "stall_timeout_ms": 8000, "grace_ms": 10_000, "start_at_ms": 9000, "max_running": 3, "description": "why",
        "after": "/ann/a:ok",
    }  # fmt: skip
    assert {name: getattr(spec, name) for name in plain} == plain


def test_a_job_of_which_nothing_more_is_said_is_one_task_that_is_restarted_with_its_host_alone(cluster: Any) -> None:
    cluster.client().submit(TRUE, "job")
    assert (cluster.spec.replicas, cluster.spec.max_retries_preemption) == (1, 1000)
    assert not cluster.spec.resources.HasField("device")
    said = {field.name for field, _ in cluster.spec.ListFields()}
    assert said == {
        "job_id", "entrypoint", "resources", "environment", "replicas", "max_retries_preemption", "runtime"
    }  # fmt: skip


def test_a_client_for_another_workspace_is_still_inside_its_job(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = cluster.client(inside=INSIDE, same_machine=True)
    (tmp_path / "a.py").write_text("")
    assert client.with_workspace(tmp_path).submit(TRUE, "child").job_id == "/bob/parent/child"
    assert cluster.spec.bundle_digest in cluster.blobs
    client.submit(TRUE, "other")
    assert cluster.spec.bundle_digest == "abc"
    parent = replace(INSIDE, runtime=replace(INSIDE.runtime, working_dir="sub"))
    cluster.client(inside=parent, inherit_workspace=False).submit(TRUE, "alone")
    assert (cluster.spec.bundle_digest, cluster.spec.runtime.working_dir) == ("", "")


def test_nothing_is_sent_of_what_is_refused(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with pytest.raises(InvalidRequest, match=r"does not list the packages of its jobs: add a uv\.lock"):
        cluster.client(tmp_path).submit(TRUE, "job")
    (tmp_path / "requirements.txt").write_text("")
    with pytest.raises(InvalidRequest, match="extra 'gpu'"):
        cluster.client(tmp_path).submit(TRUE, "job", environment=EnvironmentSpec(extras=["gpu"]))
    assert (cluster.requests, cluster.looked_for) == ([], [])
    cluster.client(tmp_path).submit(TRUE, "job")
    runtime = cluster.spec.runtime
    assert (runtime.packages, runtime.environment_path, runtime.interpreter) == (pb.PACKAGE_SOURCE_REQUIREMENTS, "", "")


def test_a_taken_name_is_an_error_or_is_adopted(cluster: Any) -> None:
    cluster.answers = [[AlreadyExists("taken")]]
    with pytest.raises(AlreadyExists, match="taken"):
        cluster.client().submit(TRUE, "name", idempotency_key="k")
    cluster.client().submit(TRUE, "name", adopt_existing=True, idempotency_key="k")
    sent = [(request.existing, request.idempotency_key) for (request,) in cluster.requests]
    assert sent == [(pb.EXISTING_JOB_POLICY_FAIL, "k"), (pb.EXISTING_JOB_POLICY_ADOPT, "k")]
