"""Domain → wire for the answers to queries."""

from iris.rpc import iris_pb2 as pb
from iris.store.query import QueryRows, Value


def query_response(result: QueryRows) -> pb.QueryResponse:
    """Return the wire form of the rows of a query."""
    rows = [pb.QueryRow(values=map(_value_to_wire, row)) for row in result.rows]
    return pb.QueryResponse(columns=result.columns, rows=rows, truncated=result.truncated)


def _value_to_wire(value: Value) -> pb.QueryValue:
    if value is None:
        return pb.QueryValue()
    if isinstance(value, int):
        return pb.QueryValue(integer=value)
    if isinstance(value, float):
        return pb.QueryValue(real=value)
    return pb.QueryValue(text=value) if isinstance(value, str) else pb.QueryValue(blob=value)
