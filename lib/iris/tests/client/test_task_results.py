"""What callables returned, asked of a controller that is played."""

from collections.abc import Callable
from typing import Any

import pytest

from iris.client.task_results import fetch_results
from iris.client.types import JobStatus
from iris.cluster.types import JobState
from iris.rpc import iris_pb2 as pb
from rigging.errors import InvalidRequest, MarinError, NotFound, Unavailable
from rigging.results import ResultUnavailable, pack_problem, pack_result

ENDED = JobStatus("/ann/a", JobState.SUCCEEDED, submitted_at_ms=17, replicas=3)


class Connection:
    """Gives results in pieces of a few bytes, or fails."""

    def __init__(self, *results: bytes, error: MarinError | None = None) -> None:
        self.results, self.error = results, error
        self.asked: list[pb.GetResultRequest] = []

    def ask(self, _: Callable[[Any], Any], request: pb.GetResultRequest) -> pb.GetResultResponse:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        whole = self.results[request.task_index]
        return pb.GetResultResponse(data=whole[request.offset : request.offset + 7], size=len(whole))


def fetch(connection: Any, user: str = "ann") -> Any:
    return fetch_results(connection, user, ENDED)


def test_each_task_has_its_own_in_pieces_and_none_is_nothing() -> None:
    connection = Connection(pack_result({"a": 1}), b"", pack_result("x" * 50))
    assert fetch(connection) == [{"a": 1}, None, "x" * 50]
    assert {(request.job_id, request.submitted_at_ms) for request in connection.asked} == {("/ann/a", 17)}


def test_of_another_user_nothing_is_asked_for_as_loading_it_runs_code() -> None:
    connection = Connection()
    with pytest.raises(ResultUnavailable, match="for processes of ann, not of bob"):
        fetch(connection, "bob")
    assert connection.asked == []


def test_one_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ResultUnavailable, match="task 1 of job /ann/a has no result to give: no room"):
        fetch(Connection(b"", pack_problem("no room"), b""))


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (NotFound("task /ann/a/1 has no result: it is failed"), ResultUnavailable, "it is failed"),
        (MarinError("unimplemented"), ResultUnavailable, "its controller, of a former release: unimplemented"),
        (InvalidRequest("it runs the program"), InvalidRequest, "it runs the program"),
        (Unavailable("it is away"), Unavailable, "it is away"),
    ],
)
def test_what_the_controller_says(error: MarinError, expected: type[MarinError], text: str) -> None:
    with pytest.raises(expected, match=text) as caught:
        fetch(Connection(error=error))
    assert type(caught.value) is expected
