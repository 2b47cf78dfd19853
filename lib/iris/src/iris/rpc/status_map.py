"""Maps marin's error classes to gRPC status codes and back."""

from typing import Final

import grpc

from iris.rpc.auth import Unauthenticated
from rigging.errors import (
    AlreadyExists,
    BudgetExceeded,
    Conflict,
    DeadlineExceeded,
    Denied,
    InvalidRequest,
    MarinError,
    NotFound,
    Unavailable,
)

# Most specific class first: the first row an error is an instance of is its code.
_TABLE: Final[tuple[tuple[type[MarinError], grpc.StatusCode], ...]] = (
    (InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (Conflict, grpc.StatusCode.FAILED_PRECONDITION),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (BudgetExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
)

# What gRPC's asyncio client says of a stream whose connection has broken off; no controller says so.
_BROKEN_OFF: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")

# A status travels in the trailers, of which gRPC takes 16 KiB; what is not ASCII takes three bytes a byte there.
_MOST_DETAILS: Final = 4096

_CLASS_OF_CODE: Final[dict[grpc.StatusCode, type[MarinError]]] = {
    **{code: error_class for error_class, code in _TABLE},
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.ABORTED: Conflict,
}


_CODE_OF_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}


def status_of_number(number: int) -> grpc.StatusCode:
    """Return the gRPC status with this number; UNKNOWN for an unknown number."""
    return _CODE_OF_NUMBER.get(number, grpc.StatusCode.UNKNOWN)


def to_status(error: MarinError) -> tuple[grpc.StatusCode, str]:
    """Return the gRPC status and message of an error; INTERNAL for a class without a mapping."""
    details = _cut(str(error))
    for error_class, code in _TABLE:
        if isinstance(error, error_class):
            return code, details
    return grpc.StatusCode.INTERNAL, details


def _cut(text: str) -> str:
    """Truncate a text to the maximum length for a status, because an error may quote long input."""
    data = text.encode(errors="replace")
    if len(data) <= _MOST_DETAILS:
        return text
    head, tail = data[: _MOST_DETAILS // 2], data[-_MOST_DETAILS // 2 :]
    return f"{head.decode(errors='ignore')} ... {tail.decode(errors='ignore')}"


def from_rpc_error(error: grpc.RpcError) -> MarinError:
    """Return the error for a failed call; a plain MarinError for codes without a mapping."""
    code = error.code() if hasattr(error, "code") else None
    details = (error.details() if hasattr(error, "details") else None) or ""
    return MarinError(f"the call failed: {error}") if code is None else error_of_status(code, details)


def error_of_status(code: grpc.StatusCode, details: str) -> MarinError:
    """Return the error for a gRPC status; a plain MarinError for codes without a mapping."""
    if (code, details) == _BROKEN_OFF:
        return Unavailable("the connection to the controller broke")
    error_class = _CLASS_OF_CODE.get(code)
    if error_class is None:
        return MarinError(f"the controller failed ({code.name}): {details}")
    return error_class(details or code.name)
