"""Distributed PyTorch over all tasks of a job."""

import os
from typing import Final

from iris.client.context import get_iris_ctx
from iris.runtime.jax_init import coordinator

COORDINATOR: Final = "torch_coordinator"
"""The default endpoint of task 0's address."""


def initialize_torch(
    backend: str | None = None, port: int = 29500, endpoint_name: str = COORDINATOR, poll_timeout: float = 300.0
) -> None:
    """Make the tasks of this job one process group. Has no effect outside a job, or in a job with one task.

    Each task is a rank. Sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.

    Args:
        backend: E.g. "nccl"; None for NCCL where CUDA is available, else Gloo.
        port: Port of task 0. The job's port "torch" takes precedence. If the port is taken, another is used.
        endpoint_name: Endpoint under which task 0 registers its address.
        poll_timeout: How long the other tasks wait for the address, in seconds.

    Raises:
        DeadlineExceeded: Task 0 did not register its address in time.
    """
    context = get_iris_ctx()
    if context is None or context.job.num_tasks <= 1:
        return
    import torch
    import torch.distributed

    address, rank = coordinator(context, port, endpoint_name, poll_timeout, "torch")
    host, _, number = address.rpartition(":")
    ranks = {"RANK": str(rank), "WORLD_SIZE": str(context.job.num_tasks)}
    os.environ.update({"MASTER_ADDR": host, "MASTER_PORT": number, **ranks})
    torch.distributed.init_process_group(backend or ("nccl" if torch.cuda.is_available() else "gloo"))
