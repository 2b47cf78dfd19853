"""One client API for jobs and actors on every backend.

`current_client()` finds the client, `client.submit(JobRequest(...))` runs a job, `client.create_actor(...)` creates an
actor. A backend is imported on first use, so importing fray stays cheap.
"""

from typing import TYPE_CHECKING, Any

from fray.actor import (
    ActorContext,
    ActorFuture,
    ActorGroup,
    ActorHandle,
    ActorMethod,
    HostedActor,
    current_actor,
    typed_method,
)
from fray.client import Client, JobHandle, wait_all

# `fray.current_client` is a function and, for `from fray.current_client import ...`, a module: importing the module
# here, before anybody else can, leaves the function as the attribute.
from fray.current_client import current_client, set_current_client
from fray.errors import ActorLost, JobAlreadyExists, JobFailed, ResultUnavailable
from fray.mapping import map as map  # not in __all__: `import *` must not hide the builtin
from fray.types import (
    ActorConfig,
    BinaryEntrypoint,
    CallableEntrypoint,
    CpuConfig,
    DeviceConfig,
    DeviceKind,
    Entrypoint,
    EnvironmentConfig,
    GpuConfig,
    GpuType,
    JobRequest,
    JobStatus,
    ResourceConfig,
    TpuConfig,
    TpuTopologyInfo,
    TpuType,
    create_environment,
    get_tpu_topology,
)

if TYPE_CHECKING:
    from fray.local_backend import LocalActorHandle, LocalActorMethod, LocalClient, LocalJobHandle

    __version__: str

__all__ = [
    "ActorConfig",
    "ActorContext",
    "ActorFuture",
    "ActorGroup",
    "ActorHandle",
    "ActorLost",
    "ActorMethod",
    "BinaryEntrypoint",
    "CallableEntrypoint",
    "Client",
    "CpuConfig",
    "DeviceConfig",
    "DeviceKind",
    "Entrypoint",
    "EnvironmentConfig",
    "GpuConfig",
    "GpuType",
    "HostedActor",
    "JobAlreadyExists",
    "JobFailed",
    "JobHandle",
    "JobRequest",
    "JobStatus",
    "LocalActorHandle",
    "LocalActorMethod",
    "LocalClient",
    "LocalJobHandle",
    "ResourceConfig",
    "ResultUnavailable",
    "TpuConfig",
    "TpuTopologyInfo",
    "TpuType",
    "create_environment",
    "current_actor",
    "current_client",
    "get_tpu_topology",
    "set_current_client",
    "typed_method",
    "wait_all",
]


def __getattr__(name: str) -> Any:
    if name.startswith("Local") and name in __all__:
        from fray import local_backend

        return getattr(local_backend, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("marin-fray")
    raise AttributeError(f"module 'fray' has no attribute {name!r}")
