"""Converts task runtimes between wire and domain, for clients, the controller and workers."""

from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

from iris.domain.runtime import DEFAULT_RUNTIME, PackageSource, TaskRuntime
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest

_Number = TypeVar("_Number", bound=IntEnum)


def number(kind: type[_Number], value: int, what: str) -> _Number:
    """Return the member of `kind` with this number. Raises InvalidRequest with `what` and the valid numbers.

    Args:
        kind: The enumeration.
        value: The number.
        what: The number's name for the error.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.name}" for member in kind)
        raise InvalidRequest(f"{what} {value} is unknown; known are {known}") from None


def runtime_from_wire(message: pb.Runtime | None) -> TaskRuntime:
    """Return the runtime; None for the default. Raises InvalidRequest for an unknown package source."""
    return DEFAULT_RUNTIME if message is None else _read(message.SerializeToString())


@lru_cache(maxsize=256)  # the jobs of a day have few different ones, and to look one up takes a tenth of reading it
def _read(encoded: bytes) -> TaskRuntime:
    message = pb.Runtime.FromString(encoded)
    return TaskRuntime(
        working_dir=message.working_dir,
        project_dir=message.project_dir,
        python=message.python,
        packages=number(PackageSource, message.packages, "package source"),
        environment_path=message.environment_path,
        interpreter=message.interpreter,
        image=message.image,
    )


@lru_cache(maxsize=256)  # shared: built messages are not changed
def runtime_to_wire(runtime: TaskRuntime) -> pb.Runtime | None:
    """Return the wire form of a runtime; None for the default."""
    if runtime == DEFAULT_RUNTIME:
        return None
    return pb.Runtime(
        working_dir=runtime.working_dir,
        project_dir=runtime.project_dir,
        python=runtime.python,
        packages=pb.PackageSource.ValueType(int(runtime.packages)),
        environment_path=runtime.environment_path,
        interpreter=runtime.interpreter,
        image=runtime.image,
    )
