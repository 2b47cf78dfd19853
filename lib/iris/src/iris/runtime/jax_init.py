"""Distributed JAX over all tasks of a job."""

import os
import socket
from collections.abc import Mapping
from typing import Final

from iris.actor import EndpointFollower
from iris.client.context import IrisContext, get_iris_ctx
from rigging.errors import DeadlineExceeded

COORDINATOR: Final = "jax_coordinator"
"""The default endpoint of task 0's address."""

_HOST_ENV: Final = "IRIS_ACTOR_HOST"


def initialize_jax(port: int = 8476, endpoint_name: str = COORDINATOR, poll_timeout: float = 300.0) -> None:
    """Make the tasks of this job one distributed JAX program. Has no effect outside a job, or in a job with one task.

    The hosts of a TPU slice find each other, so that the arguments count only on CPUs and GPUs.

    Args:
        port: Port of the coordinator, task 0. The job's port "jax" takes precedence. If the port is taken, another is
            used.
        endpoint_name: Endpoint under which task 0 registers its address.
        poll_timeout: How long the other tasks wait for the address, in seconds.

    Raises:
        DeadlineExceeded: Task 0 did not register its address in time.
    """
    context = get_iris_ctx()
    if context is None or context.job.num_tasks <= 1:
        return
    import jax

    if os.environ.get("TPU_WORKER_HOSTNAMES"):
        jax.distributed.initialize()
        return
    address, index = coordinator(context, port, endpoint_name, poll_timeout)
    jax.distributed.initialize(coordinator_address=address, num_processes=context.job.num_tasks, process_id=index)


def coordinator(
    context: IrisContext, port: int, endpoint_name: str, timeout: float, port_name: str = "jax"
) -> tuple[str, int]:
    """Register (in task 0) or find the coordinator's address; return it and this task's index.

    Args:
        context: This task.
        port: As in `initialize_jax`.
        endpoint_name: As in `initialize_jax`.
        timeout: How long to wait for task 0, in seconds.
        port_name: The job's port that takes precedence, also the suffix of the function that all tasks call.

    Raises:
        DeadlineExceeded: Task 0 did not register its address in time.
    """
    index = int(context.task_id.rpartition("/")[2])
    # By its full name: a parent job may have a coordinator, too.
    name = f"{context.job_id}/{endpoint_name}"
    if index == 0:
        host = own_host(os.environ)
        address = f"{host}:{context.ports.get(port_name) or free_port(host, port)}"
        context.registry.register(name, address)
        return address, index
    follower = EndpointFollower(context.client, name)
    try:
        found = follower.wait_for(lambda found: bool(found.endpoints), timeout)
    except DeadlineExceeded:
        raise DeadlineExceeded(
            f"task 0 of {context.job_id} told no address of a coordinator within {timeout:g} s; every task of the job "
            f"has to call initialize_{port_name}()"
        ) from None
    finally:
        follower.close()
    return found.endpoints[0].address, index


def own_host(environ: Mapping[str, str]) -> str:
    """Return the address of this task for other tasks: from its worker, else from the host name."""
    return environ.get(_HOST_ENV) or socket.gethostbyname(socket.gethostname())


def free_port(host: str, port: int) -> int:
    """Return `port`, or a free port if it is in use.

    JAX would share a used port with its owner, and receive the owner's connections.
    """
    for wanted in (port, 0):
        with socket.socket() as probe:
            try:
                probe.bind((host, wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    return port
