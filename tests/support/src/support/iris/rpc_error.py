"""A gRPC error for tests that call without a server."""

from collections.abc import Callable

import grpc
import pytest


class FakeRpcError(grpc.RpcError):
    """An error with a status code and details, like the errors of real calls."""

    def __init__(self, code: grpc.StatusCode, details: str = "Connection refused") -> None:
        super().__init__()
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """Run a call that must be refused, and return the status and details."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details() or ""
