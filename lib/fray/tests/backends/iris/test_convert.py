import pickle

import pytest

from fray.backends.iris.convert import to_fray_status, to_iris_plan, to_iris_resources
from fray.types import (
    CpuConfig,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    JobStatus,
    ResourceConfig,
    TpuConfig,
    create_environment,
)
from iris.client import JobLimits
from iris.cluster.constraints import ConstraintOp
from iris.cluster.types import JobState
from rigging.errors import InvalidRequest

ENVIRONMENT = EnvironmentConfig(workspace=".")


def request(resources: ResourceConfig | None = None, **fields: object) -> JobRequest:
    return JobRequest("job", Entrypoint.from_callable(print), resources or ResourceConfig(), **fields)  # type: ignore[arg-type]


def constraints(resources: ResourceConfig) -> list[tuple[str, ConstraintOp, tuple[str, ...]]]:
    found = to_iris_plan(request(resources), ENVIRONMENT).constraints
    return [(constraint.key, constraint.op, tuple(constraint.values)) for constraint in found]


def test_a_callable_keeps_its_arguments_whatever_they_are_called_and_a_program_becomes_a_command() -> None:
    entrypoint = Entrypoint.from_callable(print, [1], {"fn": 2, "args": 3})
    iris = to_iris_plan(JobRequest("job", entrypoint), ENVIRONMENT).entrypoint
    assert pickle.loads(iris.pickled) == (print, (1,), {"fn": 2, "args": 3})
    assert (iris.argv, iris.display) == ((), "builtins:print")
    program = to_iris_plan(JobRequest("job", Entrypoint.from_binary("ls", ["-l", "/"])), ENVIRONMENT)
    assert program.entrypoint.argv == ("ls", "-l", "/")


def test_plain_resources_and_counts() -> None:
    asked = request(
        ResourceConfig(cpu=0.5, ram="512m", disk="2g"),
        max_retries_failure=2,
        max_task_failures=1,
        replicas=3,
        description="why",
    )
    iris = to_iris_plan(asked, ENVIRONMENT)
    assert (iris.resources.cpu_millis, iris.resources.memory_bytes, iris.resources.disk_bytes) == (500, 2**29, 2**31)
    assert iris.resources.device is None
    assert (iris.replicas, iris.description) == (3, "why")
    assert iris.limits == JobLimits(max_retries_failure=2, max_retries_preemption=100, max_task_failures=1)
    assert (iris.constraints, iris.coscheduling) == ((), None)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (ResourceConfig(ram="1g"), True),  # though it is the default of iris
        (ResourceConfig(disk="9g"), False),
        (ResourceConfig.with_tpu("v5p-8", ram="9g"), False),
    ],
)
def test_what_is_said_of_memory_is_a_limit_a_default_or_whole_host_none(resources: ResourceConfig, said: bool) -> None:
    iris = to_iris_plan(request(resources), ENVIRONMENT)
    assert (iris.limits_said, iris.soft_limits) == (said, None)
    assert to_iris_resources(ResourceConfig()).disk is None, "that nobody asked for"
    assert to_iris_resources(ResourceConfig(disk="50g")).disk == "50g"


def test_one_host_of_a_tpu_slice_for_each_task_and_the_slice_as_a_gang() -> None:
    tpus = ResourceConfig.with_tpu(["v6e-16", "v5litepod-16"])
    gpus = ResourceConfig(device=GpuConfig("H100", count=8), device_alternatives=["H200"])
    for asked, expected in ((tpus, ("tpu", "v6e-16", 4, ("v5litepod-16",))), (gpus, ("gpu", "H100", 8, ("H200",)))):
        device = to_iris_plan(request(asked), ENVIRONMENT).resources.device
        assert device is not None
        assert (device.kind, device.variant, device.count, device.alternatives) == expected
    gang = to_iris_plan(request(tpus), ENVIRONMENT)
    assert gang.replicas == 4
    assert gang.coscheduling is not None
    assert gang.coscheduling.group_by == "tpu-name"
    # A slice of one host is none, nor are copies of it, such as a group of actors.
    for copies in ({}, {"replicas": 3}):
        assert to_iris_plan(request(ResourceConfig.with_tpu("v5p-8"), **copies), ENVIRONMENT).coscheduling is None


@pytest.mark.parametrize(("tpu", "hosts"), [("v6e-16", 4), ("v5p-8", 1)])
def test_several_slices_are_one_gang_of_whole_slices(tpu: str, hosts: int) -> None:
    resources = ResourceConfig.with_tpu(tpu, slice_count=3)
    iris = to_iris_plan(request(resources), ENVIRONMENT)
    assert iris.replicas == 3 * hosts
    assert iris.coscheduling is not None
    assert iris.coscheduling.group_by == "tpu-name"


def test_where_it_may_run() -> None:
    assert constraints(ResourceConfig()) == []
    assert constraints(ResourceConfig(preemptible=False)) == [("preemptible", ConstraintOp.NE, ("true",))]
    assert constraints(ResourceConfig(regions=["us-east5"], zone="us-east5-a")) == [
        ("region", ConstraintOp.EQ, ("us-east5",)),
        ("zone", ConstraintOp.EQ, ("us-east5-a",)),
    ]
    assert constraints(ResourceConfig(regions=["us-east5", "us-central1"])) == [
        ("region", ConstraintOp.IN, ("us-east5", "us-central1"))
    ]


@pytest.mark.parametrize(
    ("asked", "environment", "image"),
    [
        (request(), ENVIRONMENT, None),
        (request(), EnvironmentConfig(docker_image="jax:1"), "jax:1"),
        (request(ResourceConfig(image="jax:2")), ENVIRONMENT, "jax:2"),
    ],
)
def test_the_image_is_the_environments_or_that_of_the_resources(
    asked: JobRequest, environment: EnvironmentConfig, image: str | None
) -> None:
    assert to_iris_plan(asked, environment).image == image


def test_environment_variables_win_over_the_devices_defaults() -> None:
    environment = create_environment(
        env_vars={"JAX_PLATFORMS": "mine"}, extras=["cpu"], pip_packages=["einops"], environ={"HF_TOKEN": "t"}
    )
    iris = to_iris_plan(request(), environment).environment
    assert (tuple(iris.extras), tuple(iris.pip_packages)) == (("cpu",), ("einops",))
    assert iris.env_vars["JAX_PLATFORMS"] == "mine"
    assert iris.env_vars["HF_TOKEN"] == "t"
    on_tpu = to_iris_plan(request(ResourceConfig.with_tpu("v5p-8")), ENVIRONMENT).environment
    assert on_tpu.env_vars["PJRT_DEVICE"] == "TPU"
    plain = dict(to_iris_plan(request(), ENVIRONMENT).environment.env_vars)
    assert float(plain.pop("MARIN_MIRROR_BUDGET_GB")) > 0
    assert plain == CpuConfig().default_env_vars()


@pytest.mark.parametrize(
    ("asked", "environment", "reason"),
    [
        (request(ResourceConfig(device=TpuConfig("v5p-8", topology="2x2x1"))), ENVIRONMENT, "leave topology out"),
        (
            request(ResourceConfig.with_tpu("v5p-64"), replicas=9),
            ENVIRONMENT,
            "9 hosts of TPU v5p-64.* have 8; .*multiple",
        ),
    ],
)
def test_what_iris_jobs_cannot_have_is_refused(asked: JobRequest, environment: EnvironmentConfig, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        to_iris_plan(asked, environment)


def test_every_state_has_a_status_and_ends_when_it_does() -> None:
    for state in JobState:
        assert to_fray_status(state).finished() == state.is_terminal
    assert to_fray_status(JobState.KILLED) is JobStatus.STOPPED
    assert to_fray_status(JobState.UNSCHEDULABLE) is JobStatus.FAILED
