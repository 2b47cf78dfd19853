"""Looks at the processes of tasks, workers and the controller (`iris process`)."""

from collections.abc import Iterator

import grpc

from iris.client.connection.connection import Connection
from iris.rpc.generated import exec_pb2 as pb
from iris.rpc.status_map import from_rpc_error


def inspect(connection: Connection, target: str, what: str, seconds: int = 1) -> Iterator[bytes]:
    """Yield pieces of the result: JSON (status), text (logs, threads), SVG (cpu) or HTML (mem).

    Args:
        connection: The connection to the controller.
        target: A task, "worker/NAME" or "controller".
        what: "status", "logs", "threads", "cpu" or "mem".
        seconds: Duration of a profile.

    Raises:
        Conflict: The task is not running, or the result cannot be had; the message says why.
        Denied: The caller may not read the task's logs; or is no admin, for a worker or the controller.
        NotFound: There is no such task or worker.
        Unavailable: The controller or the worker cannot be reached.
    """
    request = pb.InspectRequest(target=target, what=what, seconds=seconds)
    stubs = connection.current()
    call = stubs.execs.Inspect(request, metadata=stubs.metadata)
    try:
        for piece in call:
            yield piece.data
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    finally:
        call.cancel()
