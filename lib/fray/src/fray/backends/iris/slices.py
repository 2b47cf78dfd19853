"""Run one program of a job on several TPU slices: set the variables that let libtpu connect the slices.

Task order is slice order, so each task knows its slice. The first task publishes its host as an endpoint. Endpoints
disappear with their task, which may be short, so the first task continues only after all others have read its endpoint.
Programs are started by `python -m fray.backends.iris.slices HOSTS PROGRAM [ARGUMENT...]`.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fray.replica import replica_index
from iris.client import IrisClient, IrisContext, iris_ctx

_COORDINATOR: Final = "MEGASCALE_COORDINATOR_ADDRESS"
_ENDPOINT: Final = "megascale-coordinator"
_WAITING: Final = "megascale-waiting-"
_PORT: Final = 8081
_OWN_HOST: Final = "IRIS_ACTOR_HOST"  # a worker sets it, unless only its own host reaches it
_LOOPBACK: Final = "127.0.0.1"
_CANNOT_START: Final = 126
_NOT_FOUND: Final = 127


def call_on_slices(hosts: int, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Call `fn` in a task of a job on several slices with `hosts` hosts each.

    Args:
        hosts: Hosts of each slice.
        fn: The function to call.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    join_slices(hosts)
    return fn(*args, **kwargs)  # perhaps a coroutine, which the caller awaits


def join_slices(hosts: int) -> None:
    """Set the variables of this task and return once all tasks run. The job's own variables take precedence."""
    if os.environ.get(_COORDINATOR):
        return
    task = iris_ctx()
    # A client for this alone: the job's own code may fork, which an open connection would not survive.
    with IrisClient.remote(task.job.controller_address) as client:
        coordinator = _coordinator(IrisContext(task.job, client))
    os.environ |= {
        _COORDINATOR: coordinator,
        "MEGASCALE_NUM_SLICES": str(task.job.num_tasks // hosts),
        "MEGASCALE_SLICE_ID": str(replica_index() // hosts),
        "MEGASCALE_PORT": str(_PORT),
    }


def _coordinator(task: IrisContext) -> str:
    name, waiting = f"{task.job_id}/{_ENDPOINT}", f"{task.job_id}/{_WAITING}"
    address = f"{os.environ.get(_OWN_HOST) or _LOOPBACK}:{_PORT}"
    index = replica_index()
    if index > 0:
        task.registry.register(f"{waiting}{index}", address)
        first = next(found.endpoints[0] for found in task.resolver.watch(name) if found.endpoints)
        task.registry.unregister(f"{waiting}{index}")
        return first.address
    others = (len(found.endpoints) for found in task.resolver.watch(prefix=waiting))
    next(count for count in others if count == task.job.num_tasks - 1)
    task.registry.register(name, address)
    next(count for count in others if count == 0)
    return address


def main(hosts: int, argv: list[str]) -> int:
    """Exec the program. Return the shell's exit code if that fails."""
    join_slices(hosts)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot start {argv[0]!r}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_START


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
