import grpc
import pytest

from iris.rpc.auth import Unauthenticated
from iris.rpc.status_map import from_rpc_error, to_status
from rigging import errors


class Failed(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("error_class", "code"),
    [
        (errors.InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
        (errors.NotFound, grpc.StatusCode.NOT_FOUND),
        (errors.AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
        (errors.Conflict, grpc.StatusCode.FAILED_PRECONDITION),
        (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
        (errors.Denied, grpc.StatusCode.PERMISSION_DENIED),
        (errors.DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
        (errors.BudgetExceeded, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_an_error_crosses_the_wire_as_itself(error_class: type[errors.MarinError], code: grpc.StatusCode) -> None:
    assert to_status(error_class("why")) == (code, "why")
    back = from_rpc_error(Failed(code, "why"))
    assert type(back) is error_class
    assert str(back) == "why"


def test_what_has_no_row_keeps_its_message() -> None:
    assert to_status(errors.JobFailed("why")) == (grpc.StatusCode.INTERNAL, "why")
    assert str(from_rpc_error(Failed(grpc.StatusCode.INTERNAL, "boom"))) == "the controller failed (INTERNAL): boom"
    broken_off = from_rpc_error(Failed(grpc.StatusCode.INTERNAL, "Internal error from Core"))
    assert isinstance(broken_off, errors.Unavailable)
    assert str(broken_off) == "the connection to the controller broke"
    assert str(from_rpc_error(grpc.RpcError("no code"))) == "the call failed: no code"


@pytest.mark.parametrize("text", ["x" * 50_000, "é" * 9000, "\ud800" * 9000])
def test_a_message_is_cut_to_what_a_status_can_carry(text: str) -> None:
    _, details = to_status(errors.InvalidRequest(f"query {text} is too long"))
    encoded = details.encode()
    assert details.startswith("query ")
    assert details.endswith("is too long")
    assert len(encoded) < 4200
