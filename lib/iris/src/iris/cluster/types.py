"""The public types of iris: names, entry points and requirements of jobs. Plain values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, Final

from iris.cluster.job_name import JobName
from iris.domain.resources import Device as DeviceSpec
from iris.domain.states import ExistingJobPolicy, JobState, PriorityBand, TaskState
from rigging.arguments import as_texts, check_text, check_type
from rigging.errors import InvalidRequest
from rigging.process.calls import generator_problem, is_generator_function, name_of
from rigging.text.quantities import check_count, check_unit, parse_size
from rigging.topology import get_tpu_topology

__all__ = [
    "CoschedulingConfig",
    "DeviceSpec",
    "Entrypoint",
    "EnvironmentSpec",
    "ExistingJobPolicy",
    "HealthCheck",
    "JobName",
    "JobState",
    "PriorityBand",
    "ResourceSpec",
    "TaskState",
    "gpu_device",
    "tpu_device",
]


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """The command of each task, or a Python callable with its arguments. Use the constructors."""

    argv: tuple[str, ...] = ()
    fn: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    pickled: bytes = field(default=b"", repr=False)
    label: str = ""

    def __post_init__(self) -> None:
        if bool(self.argv) + (self.fn is not None) + bool(self.pickled) != 1:
            raise InvalidRequest("use Entrypoint.from_command(program, *args) or Entrypoint.from_callable(fn, *args)")

    @staticmethod
    def from_callable(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Entrypoint":
        """Return an entry point that runs `fn(*args, **kwargs)`, sent as a cloudpickle. Lambdas and closures work.
        Coroutines are awaited. Generator functions are refused.

        Args:
            fn: The function.
            *args: Positional arguments.
            **kwargs: Keyword arguments.
        """
        if not callable(fn):
            raise InvalidRequest(f"Entrypoint.from_callable: {fn!r} is not callable")
        if is_generator_function(fn):
            raise InvalidRequest(f"Entrypoint.from_callable: {generator_problem(name_of(fn))}")
        return Entrypoint(fn=fn, args=args, kwargs=kwargs)

    @staticmethod
    def from_pickle(pickled: bytes, label: str) -> "Entrypoint":
        """Return an entry point that runs a pickled `(fn, args, kwargs)`. `label` is its readable name, e.g.
        "module:function".
        """
        return Entrypoint(pickled=pickled, label=label)

    @staticmethod
    def from_command(*argv: str) -> "Entrypoint":
        """Return an entry point that runs a program with its arguments, without a shell. "python" is the task
        environment's interpreter.
        """
        if not argv or not argv[0]:
            raise InvalidRequest("Entrypoint.from_command: name a program, e.g. from_command('python', '-m', 'module')")
        for word in argv:
            if not isinstance(word, str):
                raise InvalidRequest(f"Entrypoint.from_command: {word!r} is not text; pass each word as a str")
            check_text(word, "Entrypoint.from_command:")
            if "\0" in word:
                raise InvalidRequest(f"Entrypoint.from_command: {word!r} contains a NUL character")
        return Entrypoint(argv=argv)

    @property
    def display(self) -> str:
        """Return the entry point in readable form, e.g. "python -m trainer" or "package.module:function"."""
        if self.pickled:
            return self.label
        if self.fn is None:
            return " ".join(self.argv)
        return display_name(self.fn)


def display_name(fn: Callable[..., Any]) -> str:
    """Return a callable's readable name, "package.module:function", without `functools.partial` and wrappers."""
    while (inner := getattr(fn, "__wrapped__", None) or (fn.func if isinstance(fn, partial) else None)) is not None:
        fn = inner
    module = getattr(fn, "__module__", None) or "?"
    return f"{module}:{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def tpu_device(variant: str | Sequence[str], count: int | None = None) -> DeviceSpec:
    """Return the device for one host of a TPU slice.

    Args:
        variant: A type such as "v5p-8", or several acceptable types, the preferred type first.
        count: The number of the host's chips; None for all.

    Raises:
        InvalidRequest: The type is unknown or missing, or the alternatives' hosts have another number of chips.
    """
    variants = list(as_texts([variant] if isinstance(variant, str) else variant, "tpu_device: variant"))
    if not variants:
        raise InvalidRequest("tpu_device: name at least one TPU type, e.g. 'v5p-8'")
    chips = {name: get_tpu_topology(name).chips_per_vm for name in variants}
    wanted = chips[variants[0]] if count is None else count
    check_type(wanted, int, "tpu_device: count", "a whole number, or None")
    for name, available in chips.items():
        if count is None and available != wanted:
            raise InvalidRequest(
                f"TPU alternatives must have equal hosts: {variants[0]} has {wanted} chips a host, {name} {available}"
            )
        if not 1 <= wanted <= available:
            raise InvalidRequest(f"tpu_device: a host of {name} has {available} chips; asked for {wanted}")
    return DeviceSpec("tpu", variants[0], wanted, tuple(variants[1:]))


def gpu_device(variant: str = "", count: int = 1) -> DeviceSpec:
    """Return the device for `count` GPUs of a type (empty: any) on one host. Raise InvalidRequest for a count
    below 1.
    """
    check_text(variant, "gpu_device: variant")
    check_type(count, int, "gpu_device: count", "a whole number")
    if count < 1:
        raise InvalidRequest(f"gpu_device: count must be at least 1, not {count}")
    device = DeviceSpec("gpu", variant, count)
    _check_device_count(device)
    return device


def _check_device_count(device: DeviceSpec) -> None:
    check_count(device.count, f"the number of {device.kind}s of a task")


UNSTATED_DISK_BYTES: Final = 16 * 1024 * 1024
"""Disk for the directory and the log of an attempt without a request, the minimum to start."""


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """The resources of one task.

    Args:
        cpu: Cores, in steps of a thousandth; 0 reserves none.
        memory: Bytes, or text such as "4GB" (units are powers of 1024): 0, or at least 1 MB.
        disk: Scratch space to reserve, in the same form as `memory`. None reserves only the 16 MB of any attempt, and
            the task may use all free space. 0 allows a start on a full disk.
        device: The accelerators; None for none.
    """

    cpu: float = 1
    memory: str | int = "1GB"
    disk: str | int | None = None
    device: DeviceSpec | None = None

    def __post_init__(self) -> None:
        check_type(self.cpu, Real, "cpu", "a number of cores from 0 up")
        # Written so that NaN is refused too.
        if not 0 <= self.cpu <= 1e6:
            raise InvalidRequest(f"cpu {self.cpu!r}: give a number of cores from 0 up")
        check_unit(self.memory, "memory")
        if self.disk is not None:
            check_unit(self.disk, "disk")
        check_type(self.device, (DeviceSpec, type(None)), "device", "made by tpu_device or gpu_device, or None")
        if self.device is not None:
            _check_device_count(self.device)

    @property
    def cpu_millis(self) -> int:
        """Return the CPUs in thousandths of a core."""
        return round(self.cpu * 1000)

    @property
    def memory_bytes(self) -> int:
        return parse_size(self.memory, "memory")

    @property
    def disk_bytes(self) -> int:
        return UNSTATED_DISK_BYTES if self.disk is None else parse_size(self.disk, "disk")


@dataclass(frozen=True, slots=True, repr=False)
class EnvironmentSpec:
    """Packages and variables of a task's process, in addition to the workspace. The repr hides the variables' values.

    Args:
        pip_packages: Requirements to install on top of the lock file, e.g. "einops>=0.8".
        env_vars: The task's variables; None for none.
        extras: Extras of the root project or of any workspace member.
    """

    pip_packages: Sequence[str] = field(default=(), hash=False)
    env_vars: Mapping[str, str] = field(default_factory=dict, hash=False)
    extras: Sequence[str] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env_vars", self.env_vars or {})  # older programs say None for none
        for label, words in (("pip_packages", self.pip_packages), ("extras", self.extras)):
            # Kept as read: an iterator gives its values only once.
            object.__setattr__(self, label, as_texts(() if words is None else words, f"EnvironmentSpec: {label}"))
        if not isinstance(self.env_vars, Mapping):
            # Without the value: it may be a secret.
            raise InvalidRequest(f"EnvironmentSpec: env_vars must be a dict, not {type(self.env_vars).__name__}")
        for name, value in self.env_vars.items():
            check_text(name, "EnvironmentSpec: the name of a variable")
            check_text(value, f"EnvironmentSpec: env_vars[{name!r}]", secret=True)
            if not name or "=" in name or "\0" in name or "\0" in value:
                raise InvalidRequest(f"EnvironmentSpec: {name!r} cannot be the name of a variable")

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.env_vars))
        return (
            f"EnvironmentSpec(pip_packages={list(self.pip_packages)!r}, env_vars=<{names}>, "
            f"extras={list(self.extras)!r})"
        )


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A command that checks whether a task is healthy. It runs on the task's host, with the task's files and variables.

    Args:
        command: A line for /bin/sh. Exit code 0 means healthy.
        interval: Seconds between the end of one check and the next, and before the first.
        timeout: Seconds after which a check counts as failed.
        retries: This many consecutive failures end the attempt as a failure of the task.
    """

    command: str
    interval: float = 30.0
    timeout: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        check_text(self.command, "HealthCheck: command")
        if not self.command.strip():
            raise InvalidRequest("HealthCheck: command is empty; give a line for the shell")


@dataclass(frozen=True, slots=True)
class CoschedulingConfig:
    """Make a job's tasks a gang: placed together on workers with equal values of the attribute `group_by`."""

    group_by: str

    def __post_init__(self) -> None:
        check_text(self.group_by, "CoschedulingConfig: group_by")
        if not self.group_by:
            raise InvalidRequest("CoschedulingConfig: group_by must name a worker attribute, e.g. 'tpu-name'")
