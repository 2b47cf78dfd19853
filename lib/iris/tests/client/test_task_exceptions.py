import os
import pickle
import sys
from typing import Any

import pytest

from iris.client.task_ends import fetch_exception, load_exception
from iris.client.types import JobStatus
from iris.cluster.types import JobState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.callable_main import pickle_exception
from rigging.errors import NotFound
from support.iris.played_connection import PlayedConnection

HERE = b"%d.%d\n" % sys.version_info[:2]


class OtherArguments(Exception):
    """Its constructor takes other arguments than it keeps."""

    def __init__(self, device: str, state: str) -> None:
        super().__init__(f"the {device} is {state}")
        self.device = device


class Fails:
    """Raises when it is unpickled."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self._error,)


def _raise(error: BaseException) -> None:
    raise error


def failed(name: str = "/ann/a", state: JobState = JobState.FAILED) -> JobStatus:
    return JobStatus(name, state, submitted_at_ms=17, deciding_task_id=f"{name}/0")


@pytest.mark.parametrize(
    "error",
    [
        LookupError("no shards"), OSError(28, "full", "/data/x"), ExceptionGroup("two", [ValueError(1)]),
        OtherArguments("device", "on fire"),
    ],
)  # fmt: skip
def test_what_was_raised_is_made_again(error: Exception) -> None:
    again = load_exception(pickle_exception(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert getattr(again, "device", None) == getattr(error, "device", None)


def test_what_can_be_made_again_as_a_whole_is_sent_so() -> None:
    """Also by whoever has nothing but the bytes: parts are for those that cannot."""
    python, _, pickled = pickle_exception(LookupError("no\nshards")).partition(b"\n")
    assert python + b"\n" == HERE
    assert repr(pickle.loads(pickled)) == repr(LookupError("no\nshards"))


@pytest.mark.parametrize(("more", "is_sent"), [(0, True), (1, False)])
def test_what_goes_along_with_an_error_has_a_limit(more: int, is_sent: bool) -> None:
    """That of the version and the pickle together, to the byte; the worker reads no more."""
    overhead = len(pickle_exception(ValueError("x" * 10_000))) - 10_000 - len(HERE)
    sent = pickle_exception(ValueError("x" * (64 * 1024 - 8 - overhead + more)))
    assert bool(sent) == is_sent


@pytest.mark.parametrize("held", [os.urandom(80_000), list(range(100_000)), (_ for _ in ())])
def test_one_that_is_large_or_cannot_be_pickled_stays_where_it_is(held: object) -> None:
    assert pickle_exception(ValueError(held)) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no line",
        HERE + b"no pickle",
        HERE + pickle.dumps("no exception"),
        HERE + pickle.dumps((1, 2)),
        HERE + pickle.dumps(Fails(ValueError())),
        HERE + pickle.dumps(Fails(SystemExit(3))),
        b"2.7\n" + pickle.dumps(ValueError("bytecode of another Python")),
    ],
)
def test_what_is_none_gives_none(data: bytes) -> None:
    assert load_exception(data) is None


def test_only_the_exceptions_of_the_users_own_failed_callables_are_asked_for() -> None:
    reply = pb.GetExceptionResponse(exception=pickle_exception(ValueError("mine")))
    connection: Any = PlayedConnection(GetException=reply)
    assert str(fetch_exception(connection, "ann", failed())) == "mine"
    assert connection.requests == [pb.GetExceptionRequest(job_id="/ann/a", submitted_at_ms=17)]
    assert connection.options == [(12.0, False)], "the failure itself is not to be held up"
    for user, status in (
        ("bob", failed()),
        ("ann", failed("/bob/a")),
        ("ann", failed(state=JobState.KILLED)),
        ("ann", JobStatus("/ann/a", JobState.FAILED)),
    ):
        assert fetch_exception(connection, user, status) is None
    assert len(connection.asked) == 1


def test_a_controller_that_cannot_say_it_leaves_the_failure_as_it_is() -> None:
    connection: Any = PlayedConnection(GetException=NotFound("forgotten meanwhile"))
    assert fetch_exception(connection, "ann", failed()) is None
