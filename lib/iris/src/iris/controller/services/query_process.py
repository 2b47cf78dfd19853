"""A process that answers queries for a controller: `python -m iris.controller.services.query_process`.

Input is lines of JSON, each a query. Output is a frame for each: the number of a gRPC status and the length of the data
(4 bytes each), then a `QueryResponse` or the error's text. A user's query may be slow, so the kernel enforces the
limits: SIGALRM ends the process of a slow query, even without the controller.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final

from iris.controller.storage.query_processes import FRAME, MEMORY_LIMIT
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.status_map import to_status
from iris.store.query import QueryRows, Value, run_query
from rigging.errors import BudgetExceeded, MarinError
from rigging.text.quantities import format_size

_NICE: Final = 5
# SQLite looks at the clock between its steps, and says by itself that a query is too slow; this is for long steps.
_PAST_THE_LIMIT_S: Final = 0.5


def answer(line: str) -> tuple[int, bytes]:
    """Return the status number of a query and the bytes of its answer or error."""
    asked = json.loads(line)
    error: MarinError
    try:
        signal.setitimer(signal.ITIMER_REAL, asked["time_limit_s"] + _PAST_THE_LIMIT_S)
        found = run_query(
            Path(asked["state_dir"]), asked["sql"], asked["max_rows"], asked["time_limit_s"], reader=asked["reader"]
        )
        return 0, query_response(found).SerializeToString()
    except MemoryError:
        error = BudgetExceeded(
            f"the query needed more than {format_size(MEMORY_LIMIT)} of memory and was stopped; ask for less, e.g. for "
            "one user or job"
        )
    except MarinError as told:
        error = told
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    code, words = to_status(error)
    return code.value[0], words.encode()


def main() -> None:
    """Serve the controller on stdin and stdout."""
    os.nice(_NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the controller ends this when it ends
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    for line in iter(sys.stdin.readline, ""):
        status, data = answer(line)
        try:
            sys.stdout.buffer.write(FRAME.pack(status, len(data)) + data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)


def query_response(result: QueryRows) -> pb.QueryResponse:
    """Return the wire form of a query's rows."""
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


if __name__ == "__main__":
    main()
