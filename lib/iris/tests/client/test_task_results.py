"""What callables returned, asked of a controller that is played."""

from typing import Any

import pytest

from iris.client.task_ends import fetch_results
from iris.client.types import JobStatus
from iris.cluster.types import JobState
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest, MarinError, NotFound, Unavailable
from rigging.results import ResultUnavailable, pack_problem, pack_result
from support.iris.played_connection import PlayedConnection

ENDED = JobStatus("/ann/a", JobState.SUCCEEDED, submitted_at_ms=17, replicas=3)


def connection(*results: bytes) -> PlayedConnection:
    """Gives results in pieces of a few bytes."""

    def answer(request: pb.GetResultRequest) -> pb.GetResultResponse:
        whole = results[request.task_index]
        return pb.GetResultResponse(data=whole[request.offset : request.offset + 7], size=len(whole))

    return PlayedConnection(GetResult=answer)


def fetch(played: Any, user: str = "ann") -> Any:
    return fetch_results(played, user, ENDED)


def test_each_task_has_its_own_in_pieces_and_none_is_nothing() -> None:
    played = connection(pack_result({"a": 1}), b"", pack_result("x" * 50))
    assert fetch(played) == [{"a": 1}, None, "x" * 50]
    assert {(request.job_id, request.submitted_at_ms) for request in played.requests} == {("/ann/a", 17)}


def test_of_another_user_nothing_is_asked_for_as_loading_it_runs_code() -> None:
    with pytest.raises(ResultUnavailable, match="for processes of ann, not of bob"):
        fetch(PlayedConnection(), "bob")


def test_one_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ResultUnavailable, match="task 1 of job /ann/a has no result: no room"):
        fetch(connection(b"", pack_problem("no room"), b""))


@pytest.mark.parametrize(
    ("error", "expected", "text"),
    [
        (NotFound("task /ann/a/1 has no result: it is failed"), ResultUnavailable, "it is failed"),
        (MarinError("unimplemented"), MarinError, "unimplemented"),
        (InvalidRequest("it runs the program"), InvalidRequest, "it runs the program"),
        (Unavailable("it is away"), Unavailable, "it is away"),
    ],
)
def test_what_the_controller_says(error: MarinError, expected: type[MarinError], text: str) -> None:
    with pytest.raises(expected, match=text) as caught:
        fetch(PlayedConnection(GetResult=error))
    assert type(caught.value) is expected
