"""The description of a job: entry point, resources, environment, request. Pure values without a backend."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from fray.requests.checks import (
    check_amount,
    check_count,
    check_list,
    check_name,
    check_variables,
    check_word,
    parse_size,
)
from fray.requests.devices import CpuConfig, DeviceConfig, DeviceKind, GpuConfig, GpuType, TpuConfig, TpuType
from rigging.errors import InvalidRequest
from rigging.process.calls import generator_problem, is_generator_function, name_of
from rigging.project import FORWARDED_ENV_VARS
from rigging.text.quantities import check_unit
from rigging.topology import TPU_TOPOLOGIES, TpuTopologyInfo, get_tpu_topology

__all__ = [
    "FORWARDED_ENV_VARS",
    "TPU_TOPOLOGIES",
    "ActorConfig",
    "BinaryEntrypoint",
    "CallableEntrypoint",
    "CpuConfig",
    "DeviceConfig",
    "DeviceKind",
    "Entrypoint",
    "EnvironmentConfig",
    "GpuConfig",
    "GpuType",
    "JobRequest",
    "JobStatus",
    "ResourceConfig",
    "TpuConfig",
    "TpuTopologyInfo",
    "TpuType",
    "create_environment",
    "get_tpu_topology",
    "parse_size",
]

DEFAULT_DISK: Final = "16g"

Value = TypeVar("Value")
if TYPE_CHECKING:  # a bare `JobHandle` is one of Any
    from typing_extensions import TypeVar as TypeVarWithDefault

    Value_co = TypeVarWithDefault("Value_co", covariant=True, default=Any)
else:
    Value_co = TypeVar("Value_co", covariant=True)


class JobStatus(StrEnum):
    """The state of a job; `succeeded`, `failed` and `stopped` are final."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    # An ordinary method is reachable both as `status.finished()` and as `JobStatus.finished(status)`.
    def finished(self) -> bool:
        """Whether this status is final."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


@dataclass(frozen=True, slots=True)
class ResourceConfig:
    """The resources of each replica of a job.

    Args:
        cpu: Processors of one replica; fractions are allowed.
        ram: Memory of one replica, e.g. "4g" (see `parse_size`); at least "1m".
        disk: Scratch disk of one replica. On Iris the default reserves nothing: the replica may use all free space.
        device: The accelerator, or `CpuConfig()`.
        preemptible: Whether it may run on preemptible capacity.
        regions: Allowed regions; None for any.
        zone: The only allowed zone; None for any.
        replicas: Number of copies, which start together. `with_tpu` sets one per host of its slices.
        device_alternatives: Variants that are acceptable instead of `device.variant`.
        image: Container image; None for the backend's default.
    """

    cpu: int | float = 1
    ram: str = "4g"
    disk: str = DEFAULT_DISK
    device: DeviceConfig = field(default_factory=CpuConfig)
    preemptible: bool = True
    regions: Sequence[str] | None = field(default=None, hash=False)
    zone: str | None = None
    replicas: int = 1
    device_alternatives: Sequence[str] | None = field(default=None, hash=False)
    image: str | None = None

    def __post_init__(self) -> None:
        check_amount("ResourceConfig: cpu", self.cpu)
        for name, text in (("ram", self.ram), ("disk", self.disk)):
            try:
                parse_size(text)
            except InvalidRequest as error:
                raise InvalidRequest(f"ResourceConfig: {name}: {error}") from None
            check_unit(text, f"ResourceConfig: {name}")
        check_count("ResourceConfig: replicas", self.replicas)
        check_list("ResourceConfig: regions", self.regions)
        check_list("ResourceConfig: device_alternatives", self.device_alternatives)

    @staticmethod
    def with_tpu(tpu_type: str | Sequence[str], slice_count: int = 1, **kwargs: Any) -> "ResourceConfig":
        """Return resources for `slice_count` slices of a TPU type, with one replica per host.

        Args:
            tpu_type: A type such as "v5p-8", or several acceptable ones, the preferred one first.
            slice_count: The number of slices.
            **kwargs: Other fields of `ResourceConfig`; cpu, ram and disk default to 32, "128g" and "50g" here.

        Raises:
            InvalidRequest: No type, an unknown type, alternatives of another shape, or `replicas` was given.
        """
        variants = [tpu_type] if isinstance(tpu_type, str) else list(tpu_type)
        if not variants:
            raise InvalidRequest("ResourceConfig.with_tpu: name at least one TPU type, e.g. 'v5p-8'")
        check_count("ResourceConfig.with_tpu: slice_count", slice_count)
        for derived in ("replicas", "device", "device_alternatives"):
            if derived in kwargs:
                raise InvalidRequest(f"ResourceConfig.with_tpu sets {derived} itself; leave it out (use slice_count)")
        shapes = {variant: get_tpu_topology(variant) for variant in variants}
        preferred = shapes[variants[0]]
        for variant, shape in shapes.items():
            if (shape.vm_count, shape.chips_per_vm) != (preferred.vm_count, preferred.chips_per_vm):
                raise InvalidRequest(
                    f"TPU alternatives must agree in VMs and chips per VM: {_describe(preferred, variants[0])}, "
                    f"{_describe(shape, variant)}"
                )
        fields: dict[str, Any] = {"cpu": 32, "ram": "128g", "disk": "50g", **kwargs}
        return ResourceConfig(
            device=TpuConfig(variants[0]),
            replicas=slice_count * preferred.vm_count,
            device_alternatives=variants[1:] or None,
            **fields,
        )

    @staticmethod
    def with_gpu(gpu_type: str, count: int = 1, **kwargs: Any) -> "ResourceConfig":
        """Return resources for `count` GPUs of a type on each replica's host. `kwargs` are other fields."""
        return ResourceConfig(device=GpuConfig(gpu_type, count=count), **kwargs)

    @staticmethod
    def with_cpu(**kwargs: Any) -> "ResourceConfig":
        """Return resources without an accelerator. `kwargs` are other fields."""
        return ResourceConfig(device=CpuConfig(), **kwargs)

    def chip_count(self) -> int:
        """Return the number of accelerator chips over all replicas. A replica of a TPU job is one host of a slice."""
        return self.replicas * self.device.chip_count()

    def device_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of one accelerator chip. Raise NotImplementedError for CPUs."""
        return self.device.device_flops(dtype)

    def total_flops(self, dtype: str = "bf16") -> float:
        """Return the peak dense FLOP/s of all chips of all replicas; 1e11 for a job without accelerators."""
        if isinstance(self.device, CpuConfig):
            return self.device.total_flops(dtype)
        return self.device.device_flops(dtype) * self.chip_count()


def _describe(shape: TpuTopologyInfo, variant: str) -> str:
    return f"{variant} has {shape.vm_count} VM(s) of {shape.chips_per_vm} chips"


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentConfig:
    """The environment of a job's process. Its code comes from a `workspace` directory or a `docker_image`.

    The repr shows the names of `env_vars` without their values, which are often credentials.
    """

    workspace: str | None = None
    docker_image: str | None = None
    pip_packages: Sequence[str] = field(default=(), hash=False)
    env_vars: Mapping[str, str] = field(default_factory=dict, hash=False)
    extras: Sequence[str] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        if (self.workspace is None) == (self.docker_image is None):
            given = "neither" if self.workspace is None else "both"
            raise InvalidRequest(f"EnvironmentConfig: give one of workspace and docker_image, not {given}")
        check_list("EnvironmentConfig: pip_packages", self.pip_packages)
        check_list("EnvironmentConfig: extras", self.extras)
        check_variables("EnvironmentConfig", self.env_vars)

    def __repr__(self) -> str:
        return (
            f"EnvironmentConfig(workspace={self.workspace!r}, docker_image={self.docker_image!r}, "
            f"pip_packages={list(self.pip_packages)!r}, env_vars=<{', '.join(sorted(self.env_vars))}>, "
            f"extras={list(self.extras)!r})"
        )


DEFAULT_ENV_VARS: Mapping[str, str] = MappingProxyType(
    {"HF_DATASETS_TRUST_REMOTE_CODE": "1", "TOKENIZERS_PARALLELISM": "false"}
)
"""Variables that `create_environment` sets for every job unless `env_vars` overrides them."""


def create_environment(
    workspace: str | None = None,
    docker_image: str | None = None,
    pip_packages: Sequence[str] | None = None,
    env_vars: Mapping[str, str | None] | None = None,
    extras: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> EnvironmentConfig:
    """Return an environment that includes the submitter's values of `FORWARDED_ENV_VARS`.

    Args:
        workspace: The folder that the job receives. Without it and an image, the current directory.
        docker_image: Image to run in instead of a workspace.
        pip_packages: Requirements to install.
        env_vars: Variables. They override forwarded and default variables. A value of None removes the variable.
        extras: Optional-dependency groups of the workspace's project to install.
        environ: The variables to forward from; None for `os.environ`.
    """
    check_list("create_environment: pip_packages", pip_packages)
    check_list("create_environment: extras", extras)
    source = os.environ if environ is None else environ
    forwarded = {name: source[name] for name in FORWARDED_ENV_VARS if name in source}
    if workspace is None and docker_image is None:
        workspace = os.getcwd()
    variables = {**DEFAULT_ENV_VARS, **forwarded, **(env_vars or {})}
    return EnvironmentConfig(
        workspace=workspace,
        docker_image=docker_image,
        pip_packages=list(pip_packages or ()),
        env_vars={name: value for name, value in variables.items() if value is not None},
        extras=list(extras or ()),
    )


@dataclass(frozen=True, slots=True)
class CallableEntrypoint(Generic[Value_co]):
    """A Python callable and its arguments. Backends with separate processes pickle it with cloudpickle.

    Coroutines are awaited. Generator functions are refused.
    """

    callable: Callable[..., Value_co | Coroutine[Any, Any, Value_co]]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if is_generator_function(self.callable):
            raise InvalidRequest(f"a job's callable: {generator_problem(name_of(self.callable))}")


@dataclass(frozen=True, slots=True)
class BinaryEntrypoint:
    """A program and its arguments, started without a shell."""

    command: str
    args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_word("a program's command", self.command)
        if not self.command:
            raise InvalidRequest("Entrypoint.from_binary: command is empty; name a program")
        for index, word in enumerate(self.args):
            check_word(f"args[{index}] of the program {self.command!r}", word)


@dataclass(frozen=True, slots=True)
class Entrypoint(Generic[Value_co]):
    """The code of a job: either a callable or a program."""

    callable_entrypoint: CallableEntrypoint[Value_co] | None = None
    binary_entrypoint: BinaryEntrypoint | None = None

    def __post_init__(self) -> None:
        if (self.callable_entrypoint is None) == (self.binary_entrypoint is None):
            raise InvalidRequest("use Entrypoint.from_callable(fn) or Entrypoint.from_binary(command, args)")

    # Arguments come as a list, which has no types for each of its items: only that there must be some is checked.
    @overload
    @staticmethod
    def from_callable(
        fn: Callable[..., Coroutine[Any, Any, Value]], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> "Entrypoint[Value]": ...

    @overload
    @staticmethod
    def from_callable(fn: Callable[[], Value]) -> "Entrypoint[Value]": ...

    @overload
    @staticmethod
    def from_callable(
        fn: Callable[..., Value], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> "Entrypoint[Value]": ...

    @overload
    @staticmethod
    def from_callable(
        fn: Callable[..., Value], args: Sequence[Any] = (), *, kwargs: Mapping[str, Any] | None
    ) -> "Entrypoint[Value]": ...

    @staticmethod
    def from_callable(
        fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> "Entrypoint[Any]":
        """Return an entry point that runs `fn(*args, **kwargs)`.

        Args:
            fn: The callable.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
        """
        if not callable(fn):
            raise InvalidRequest(f"Entrypoint.from_callable: {fn!r} is not callable")
        check_list("Entrypoint.from_callable: args", args)
        return Entrypoint(callable_entrypoint=CallableEntrypoint(fn, tuple(args), dict(kwargs or {})))

    @staticmethod
    def from_binary(command: str, args: Sequence[str] = ()) -> "Entrypoint[Any]":
        """Return an entry point that runs the program `command` with `args`, without a shell or any expansion."""
        check_list("Entrypoint.from_binary: args", args, " of words")
        return Entrypoint(binary_entrypoint=BinaryEntrypoint(command, tuple(args)))


@dataclass(frozen=True, slots=True)
class JobRequest(Generic[Value_co]):
    """A request to run a job.

    Args:
        name: The job's name, unique among its live siblings; no "/" and no control characters.
        entrypoint: The code to run.
        resources: The resources of each replica.
        environment: The environment of its process; None for the submitter's own.
        replicas: Number of copies, which start together; None for `resources.replicas`.
        max_retries_failure: Maximum number of restarts after failures of the job itself.
        max_retries_preemption: Maximum number of restarts after preemptions.
        max_task_failures: Replicas that may fail for good, after their retries, before the job fails. The hosts of a
            slice fail together. Backends whose replicas all fail together refuse more than 0.
        description: The purpose of the job, in one line; Iris shows it.
    """

    name: str
    entrypoint: Entrypoint[Value_co]
    resources: ResourceConfig = field(default_factory=ResourceConfig)
    environment: EnvironmentConfig | None = None
    replicas: int | None = None
    max_retries_failure: int = 0
    max_retries_preemption: int = 100
    max_task_failures: int = 0
    description: str = ""

    def __post_init__(self) -> None:
        check_name("job", self.name)
        if self.replicas is not None:
            check_count(f"job {self.name!r}: replicas", self.replicas)
        check_count(f"job {self.name!r}: max_retries_failure", self.max_retries_failure, 0)
        check_count(f"job {self.name!r}: max_retries_preemption", self.max_retries_preemption, 0)
        check_count(f"job {self.name!r}: max_task_failures", self.max_task_failures, 0)
        check_word(f"job {self.name!r}: description", self.description)

    @property
    def replica_count(self) -> int:
        """Return the number of copies: `replicas`, or else `resources.replicas`."""
        return self.resources.replicas if self.replicas is None else self.replicas


@dataclass(frozen=True, slots=True)
class ActorConfig:
    """How an actor serves its calls.

    Args:
        max_concurrency: Number of concurrent calls; 1 runs them one after another in the order they were made.
        max_restarts: Maximum number of restarts of a lost actor; None for the backend's default.
        max_task_retries: Maximum number of retries of a call after its actor was lost; None for the backend's default.
    """

    max_concurrency: int = 1
    max_restarts: int | None = None
    max_task_retries: int | None = None

    def __post_init__(self) -> None:
        check_count("ActorConfig: max_concurrency", self.max_concurrency)
        for label, count in (("max_restarts", self.max_restarts), ("max_task_retries", self.max_task_retries)):
            if count is not None:
                check_count(f"ActorConfig: {label}", count, 0)
