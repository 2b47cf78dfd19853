"""JAX over all tasks of a job."""

import socket
import time
from typing import Final

from iris.client.context import IrisContext, get_iris_ctx
from rigging.errors import DeadlineExceeded

COORDINATOR: Final = "jax_coordinator"
"""The endpoint under which task 0 tells its address."""

_LOOK_EVERY_S: Final = 0.5


def initialize_jax(port: int = 8476, endpoint_name: str = COORDINATOR, poll_timeout: float = 300.0) -> None:
    """Make the tasks of this job one distributed JAX program; nothing outside a job, and in a job of one task.

    Args:
        port: Of the coordinator, which is task 0; taken by the job's port "jax" where it has one.
        endpoint_name: Where task 0 tells its address.
        poll_timeout: Seconds that the other tasks wait for it.

    Raises:
        DeadlineExceeded: Task 0 did not tell its address in time.
    """
    context = get_iris_ctx()
    if context is None or context.job.num_tasks <= 1:
        return
    import jax

    address, index = coordinator(context, port, endpoint_name, poll_timeout)
    jax.distributed.initialize(address, context.job.num_tasks, index)


def coordinator(context: IrisContext, port: int, endpoint_name: str, timeout: float) -> tuple[str, int]:
    """Tell, in task 0, or find the coordinator's address; return it and this task's index.

    Args:
        context: This task.
        port: As of `initialize_jax`.
        endpoint_name: As of `initialize_jax`.
        timeout: Seconds to wait for task 0.

    Raises:
        DeadlineExceeded: It told nothing in time.
    """
    index = int(context.task_id.rpartition("/")[2])
    if index == 0:
        address = f"{socket.gethostbyname(socket.gethostname())}:{context.ports.get('jax', port)}"
        context.registry.register(endpoint_name, address)
        return address, index
    deadline = time.monotonic() + timeout
    while not (found := context.resolver.resolve(endpoint_name)):
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(f"task 0 of {context.job_id} told no JAX coordinator within {timeout:g} s")
        time.sleep(_LOOK_EVERY_S)
    return found[0].address, index
