"""Converts the use of attempts: wire ↔ domain."""

from iris.domain.usage import USAGE_FIELDS, Usage
from iris.rpc import iris_pb2 as pb


def usage_to_wire(attempt_id: str, usage: Usage, worker_id: str = "") -> pb.AttemptUsage:
    """Return the wire form of an attempt's usage.

    Args:
        attempt_id: The attempt; empty where the message around it says which.
        usage: What it has used.
        worker_id: Where; empty: the receiver knows.
    """
    numbers = {name: getattr(usage, name) for name in USAGE_FIELDS}
    return pb.AttemptUsage(attempt_id=attempt_id, worker_id=worker_id, **numbers)


def usage_from_wire(message: pb.AttemptUsage) -> Usage:
    """Return an attempt's usage; a peer that sends numbers below 0 has sent 0."""
    return Usage(*(max(getattr(message, name), 0) for name in USAGE_FIELDS))
