import dataclasses
import json
import math
import pickle

import pytest

from fray.cluster import ResourceConfig as ResourceConfigOfCluster
from fray.types import (
    ActorConfig,
    CpuConfig,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    JobRequest,
    JobStatus,
    ResourceConfig,
    TpuConfig,
    create_environment,
    parse_size,
)
from rigging.errors import InvalidRequest

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [("4g", 4 * GIB), ("128g", 128 * GIB), ("512m", GIB // 2), ("1GB", GIB), ("16GiB", 16 * GIB), ("0.5g", GIB // 2),
     ("1 TB", 1024 * GIB), ("1024", 1024), ("7b", 7)],
)  # fmt: skip
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "g", "4x", "-1g", "4 gigs", "0", 4])
def test_what_is_no_size_is_refused_with_examples(text: object) -> None:
    with pytest.raises(InvalidRequest, match=r"not a size.*"):
        parse_size(text)  # type: ignore[arg-type]


def encoded(resources: ResourceConfig) -> str:
    return json.dumps(dataclasses.asdict(resources), sort_keys=True)


def test_resource_fields_encode_as_they_always_did() -> None:
    """Stored versions hold these fields; another name, order or default would move people's outputs."""
    assert encoded(ResourceConfig()) == (
        '{"cpu": 1, "device": {"kind": "cpu", "variant": "cpu"}, "device_alternatives": null, "disk": "16g", '
        '"image": null, "preemptible": true, "ram": "4g", "regions": null, "replicas": 1, "zone": null}'
    )
    assert encoded(ResourceConfig.with_tpu("v5p-8")) == (
        '{"cpu": 32, "device": {"kind": "tpu", "topology": null, "variant": "v5p-8"}, "device_alternatives": null, '
        '"disk": "50g", "image": null, "preemptible": true, "ram": "128g", "regions": null, "replicas": 1, '
        '"zone": null}'
    )
    assert encoded(ResourceConfig.with_tpu(["v6e-16", "v5litepod-16"], slice_count=2)) == (
        '{"cpu": 32, "device": {"kind": "tpu", "topology": null, "variant": "v6e-16"}, '
        '"device_alternatives": ["v5litepod-16"], "disk": "50g", "image": null, "preemptible": true, "ram": "128g", '
        '"regions": null, "replicas": 8, "zone": null}'
    )
    assert encoded(ResourceConfig.with_gpu("H100", count=8)) == (
        '{"cpu": 1, "device": {"count": 8, "kind": "gpu", "variant": "H100"}, "device_alternatives": null, '
        '"disk": "16g", "image": null, "preemptible": true, "ram": "4g", "regions": null, "replicas": 1, "zone": null}'
    )


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (ResourceConfig, "cpu ram disk device preemptible regions zone replicas device_alternatives image"),
        (CpuConfig, "kind variant"),
        (GpuConfig, "variant kind count"),
        (TpuConfig, "variant kind topology"),
        (EnvironmentConfig, "workspace docker_image pip_packages env_vars extras"),
        (
            JobRequest,
            "name entrypoint resources environment replicas max_retries_failure max_retries_preemption "
            "max_task_failures description",
        ),
        (ActorConfig, "max_concurrency max_restarts max_task_retries"),
    ],
)
def test_public_fields_and_their_order(cls: type, names: str) -> None:
    assert [field.name for field in dataclasses.fields(cls)] == names.split()


def test_with_tpu_takes_overrides_of_its_defaults() -> None:
    resources = ResourceConfig.with_tpu("v5p-64", slice_count=3, ram="200g", regions=["us-east5"], preemptible=False)
    assert (resources.cpu, resources.ram, resources.disk) == (32, "200g", "50g")
    assert resources.replicas == 3 * 8
    assert resources.regions == ["us-east5"]
    assert resources.device == TpuConfig("v5p-64")
    assert hash(resources) == hash(dataclasses.replace(resources))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: ResourceConfig.with_tpu(["v5p-8", "v5p-64"]), r"v5p-8 has 1 VM.*v5p-64 has 8 VM"),
        (lambda: ResourceConfig.with_tpu([]), "at least one TPU type"),
        (lambda: ResourceConfig.with_tpu("v5p-9"), "v5p-9"),
        (lambda: ResourceConfig.with_tpu("v5p-8", slice_count=0), "slice_count must be at least 1, not 0"),
        (lambda: ResourceConfig.with_tpu("v5p-8", replicas=2), "sets replicas itself"),
        (lambda: ResourceConfig(cpu=0), "cpu must be above 0"),
        (lambda: ResourceConfig(ram="lots"), "ram: 'lots' is not a size"),
        (lambda: ResourceConfig(ram="4"), r"ram '4' is 4 bytes, below the minimum of 1MB; write a unit.*'4GB'"),
        (lambda: ResourceConfig(disk="4 apples"), "disk: '4 apples' is not a size"),
        (lambda: ResourceConfig(regions="us-east5"), r"regions must be a list.*\['us-east5'\]"),
        (lambda: GpuConfig("H100", count=0), "count must be at least 1, not 0"),
        (lambda: GpuConfig("H100", kind="tpu"), "kind must be 'gpu', not 'tpu'"),
        (lambda: EnvironmentConfig(), "one of workspace and docker_image, not neither"),
        (lambda: EnvironmentConfig(workspace=".", docker_image="x"), "not both"),
        (lambda: EnvironmentConfig(workspace=".", env_vars={"A": None}), r"env_vars\['A'\] must be text"),  # type: ignore[dict-item]
        (lambda: Entrypoint(), "from_callable"),
        (lambda: Entrypoint.from_callable("not one"), "not callable"),  # type: ignore[arg-type]
        (lambda: Entrypoint.from_binary(""), "command is empty"),
        (lambda: Entrypoint.from_binary("ls", "-l"), "list of words"),
        (lambda: ActorConfig(max_concurrency=0), "max_concurrency must be at least 1"),
        (lambda: ActorConfig(max_restarts=-5), "max_restarts must be 0 or more, not -5"),
        (lambda: ActorConfig(max_task_retries=True), "max_task_retries must be a whole number, 0 or more, not True"),
        (lambda: ResourceConfig(cpu="2"), "cpu must be above 0, a number, not '2'"),  # type: ignore[arg-type]
        (lambda: ResourceConfig(cpu=math.inf), "cpu must be above 0, a number, not inf"),
        (lambda: ResourceConfig(replicas="2"), "replicas must be a whole number, at least 1, not '2'"),  # type: ignore[arg-type]
        (lambda: ResourceConfig(device_alternatives="v5p-8"), r"device_alternatives must be a list.*\['v5p-8'\]"),
        (lambda: ResourceConfig.with_tpu("v5p-8", slice_count=1.5), "slice_count must be a whole number"),  # type: ignore[arg-type]
        (lambda: create_environment(pip_packages="numpy"), r"pip_packages must be a list.*\['numpy'\]"),
        (lambda: create_environment(extras="gpu"), r"extras must be a list.*\['gpu'\]"),
        (lambda: EnvironmentConfig(workspace=".", env_vars={"A": "\ud800"}), r"env_vars\['A'\] must be text without"),
        (lambda: EnvironmentConfig(workspace=".", env_vars={"A=B": "x"}), "the name 'A=B'; a name is text without '='"),
        (lambda: EnvironmentConfig(workspace=".", env_vars={"": "x"}), "the name ''"),
        (lambda: Entrypoint.from_callable(print, "abc"), r"args must be a list.*\['abc'\]"),
        (lambda: Entrypoint.from_binary("sleep", [1]), r"args\[0\] of the program 'sleep' must be text, not 1 \(int\)"),  # type: ignore[list-item]
        (lambda: Entrypoint.from_binary("echo", ["a", "x\0y"]), r"args\[1\] .* without NUL.*'x\\x00y'"),
        (lambda: Entrypoint.from_binary("echo\0"), r"command must be text without NUL"),
    ],
)
def test_refusals_explain_themselves(call: object, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "  "}, "must not be empty"),
        ({"name": "a/b"}, "'a/b'"),
        ({"name": "a\nb"}, "control characters"),
        ({"name": None}, "job name None: must be text, not NoneType"),
        ({"name": "j", "replicas": 0}, "job 'j': replicas must be at least 1"),
        ({"name": "j", "max_retries_failure": -1}, "max_retries_failure must be 0 or more"),
        ({"name": "j", "max_retries_preemption": -1}, "max_retries_preemption must be 0 or more"),
        ({"name": "j", "max_task_failures": -1}, "max_task_failures must be 0 or more"),
        ({"name": "j", "description": None}, "job 'j': description must be text, not None"),
    ],
)
def test_requests_are_checked_when_they_are_made(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        JobRequest(entrypoint=Entrypoint.from_callable(print), **fields)  # type: ignore[arg-type]


def test_replicas_come_from_the_request_or_its_resources() -> None:
    entrypoint = Entrypoint.from_callable(print)
    resources = ResourceConfig.with_tpu("v5p-64")
    assert JobRequest("j", entrypoint, resources).replica_count == 8
    assert JobRequest("j", entrypoint, resources, replicas=2).replica_count == 2
    assert JobRequest("j", entrypoint, ResourceConfig()).max_retries_preemption == 100


def test_flops_and_chips() -> None:
    v5p = ResourceConfig.with_tpu("v5p-64", slice_count=2)
    assert (v5p.device.chip_count(), v5p.chip_count()) == (4, 64)
    assert v5p.device_flops() == 459e12
    assert v5p.total_flops() == 64 * 459e12
    h100 = ResourceConfig.with_gpu("H100", count=8, replicas=2)
    assert h100.chip_count() == 16
    assert h100.device_flops() == 989e12
    assert h100.total_flops() == 16 * 989e12
    assert ResourceConfig().total_flops() == 1e11
    with pytest.raises(InvalidRequest, match="'Voodoo2': peak bf16 FLOP/s unknown; known types: T4"):
        GpuConfig("Voodoo2").device_flops()


def test_default_env_vars_choose_the_platform() -> None:
    assert CpuConfig().default_env_vars()["JAX_PLATFORMS"] == "cpu"
    assert TpuConfig("v5p-8").default_env_vars()["PJRT_DEVICE"] == "TPU"
    assert GpuConfig("H100").default_env_vars() == {"JAX_PLATFORMS": ""}


def test_create_environment_forwards_credentials_that_are_set() -> None:
    environment = create_environment(
        env_vars={"WANDB_API_KEY": "mine"}, environ={"HF_TOKEN": "secret", "WANDB_API_KEY": "theirs", "HOME": "/root"}
    )
    assert environment.env_vars["HF_TOKEN"] == "secret"
    assert environment.env_vars["WANDB_API_KEY"] == "mine"
    assert "HOME" not in environment.env_vars
    assert environment.workspace is not None
    assert "secret" not in repr(environment)
    assert "HF_TOKEN" in repr(environment)
    assert create_environment(docker_image="image").workspace is None


def test_values_survive_pickling() -> None:
    request = JobRequest("j", Entrypoint.from_callable(print, [1], {"sep": ""}), ResourceConfig.with_tpu("v5p-8"))
    assert pickle.loads(pickle.dumps(request)) == request
    assert ResourceConfigOfCluster is ResourceConfig
    assert [str(status) for status in JobStatus] == ["pending", "running", "succeeded", "failed", "stopped"]
    assert [status.finished() for status in JobStatus] == [False, False, True, True, True]
