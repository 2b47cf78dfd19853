"""A stream of logs that breaks anywhere goes on without a gap and without a repeat: all small cases."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris.client.logs.stream import LogSelection, ReplayFilter, read_logs
from iris.client.types import LogLine
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from rigging.errors import NotFound
from support.iris.played_connection import PlayedConnection
from support.iris.rpc_error import FakeRpcError


def answer(log: list[LogLine], query: LogSelection) -> list[LogLine]:
    """What a controller sends: the first or the last lines that are not older than asked for."""
    found = [line for line in log if line.at_ms >= query.since_ms]
    if not query.max_lines:
        return found
    return found[: query.max_lines] if query.from_start else found[-query.max_lines :]


def merged(tasks: list[list[tuple[int, bytes]]]) -> list[LogLine]:
    """The lines of several attempts, each with growing times, in the order of their times."""
    lines = [LogLine(f"/a/b/{task}", 0, False, at_ms, data) for task, own in enumerate(tasks) for at_ms, data in own]
    return sorted(lines, key=lambda line: line.at_ms)


def attempts() -> st.SearchStrategy[list[list[tuple[int, bytes]]]]:
    line = st.tuples(st.integers(0, 4), st.sampled_from([b"x", b"y"]))
    return st.lists(st.lists(line, max_size=5).map(sorted), min_size=1, max_size=3)


def read(log: list[LogLine], query: LogSelection, breaks: Iterator[int]) -> list[LogLine]:
    """What is delivered when the n-th stream breaks after so many lines."""
    memory = ReplayFilter(query)
    delivered: list[LogLine] = []
    for count in (*breaks, None):
        for line in answer(log, memory.next_query())[:count]:
            if memory.is_new(line):
                delivered.append(line)
                if memory.is_complete():
                    return delivered
    return delivered


@settings(max_examples=150, deadline=None)
@given(
    tasks=attempts(),
    breaks=st.lists(st.integers(0, 12), max_size=3),
    max_lines=st.integers(0, 5),
    from_start=st.booleans(),
    since_ms=st.integers(0, 3),
)
def test_nothing_is_lost_or_repeated(
    tasks: list[list[tuple[int, bytes]]], breaks: list[int], max_lines: int, from_start: bool, since_ms: int
) -> None:
    if max_lines and not from_start:
        # Of lines that are equal in time and text a tail cannot tell which was its first.
        tasks = [[(at_ms, b"%d" % number) for number, (at_ms, _) in enumerate(own)] for own in tasks]
    log = merged(tasks)
    query = LogSelection("/a/b", since_ms=since_ms, max_lines=max_lines, from_start=from_start)
    assert read(log, query, iter([])) == answer(log, query)
    found = read(log, query, iter(breaks))
    for task in range(len(tasks)):
        own = [line for line in log if line.task_id == f"/a/b/{task}"]
        shown = [line for line in found if line.task_id == f"/a/b/{task}"]
        assert any(shown == own[start : start + len(shown)] for start in range(len(own) + 1)), "no gap, no repeat"
    if not max_lines or from_start:
        assert len(found) == len(answer(log, query))


def batch(*numbers: int) -> pb.LogBatch:
    records = b"".join(encode(False, n, b"%d" % n) for n in numbers)
    return pb.LogBatch(parts=[pb.LogPart(task_id="/a/b/0", records=records)])


def played(*streams: list[Any]) -> Any:
    connection = PlayedConnection()
    connection.answers["FetchLogs"] = connection.streams(*streams)
    return connection


def texts(connection: Any, query: LogSelection) -> list[str]:
    return [line.text for line in read_logs(connection, query)]


AWAY = FakeRpcError(grpc.StatusCode.UNAVAILABLE)


def test_a_stream_that_broke_is_asked_for_again_and_every_answer_gives_new_patience() -> None:
    connection = played([batch(1, 2), AWAY], [AWAY], [batch(1, 2, 3)])
    assert texts(connection, LogSelection("/a/b", max_lines=9)) == ["1", "2", "3"]
    assert connection.events == [
        *("answer", "reset", "pause", "cancel"), *("pause", "cancel"), *("answer", "reset", "cancel"),
    ]  # fmt: skip
    asked = [(request.since_ms, request.max_lines) for request in connection.requests]
    assert (asked, connection.options) == ([(0, 9), (1, 0), (1, 0)], [(12.0, True)] * 3)


def test_following_has_no_deadline() -> None:
    connection = played([batch(1)])
    assert texts(connection, LogSelection("/a/b", follow=True)) == ["1"]
    assert connection.options == [(None, True)]


def test_a_limit_holds_within_a_message_after_an_interruption() -> None:
    connection = played([batch(1, 2), AWAY], [batch(1, 2, 3, 4, 5)])
    assert texts(connection, LogSelection("/a/b", max_lines=3, from_start=True)) == ["1", "2", "3"]
    assert connection.events[-1] == "cancel"


def test_a_refusal_is_no_interruption() -> None:
    connection = played([FakeRpcError(grpc.StatusCode.NOT_FOUND, "because")])
    with pytest.raises(NotFound, match="because"):
        texts(connection, LogSelection("/a/b"))
    assert connection.events == ["cancel"]


def line(task: int, at_ms: int, data: bytes = b"x", attempt: int = 0) -> LogLine:
    return LogLine(f"/a/b/{task}", attempt, False, at_ms, data)


def test_the_first_query_is_the_one_that_was_asked_for_as_long_as_nothing_came() -> None:
    query = LogSelection("/a/b", True, 5, 3, False, True)
    memory = ReplayFilter(query)
    assert memory.next_query() is query
    assert memory.next_query() is query
    wire = query.to_wire()
    assert (wire.id, wire.include_children, wire.since_ms, wire.max_lines) == ("/a/b", True, 5, 3)
    assert (wire.from_start, wire.follow) == (False, True)


def test_after_an_interruption_a_tail_begins_with_its_oldest_line() -> None:
    memory = ReplayFilter(LogSelection("/a/b", since_ms=2, max_lines=3))
    assert memory.is_new(line(0, 9))
    assert memory.is_new(line(1, 7))
    again = memory.next_query()
    assert (again.since_ms, again.max_lines, again.from_start) == (7, 0, True)
    assert not memory.is_new(line(2, 6)), "older than the tail ever was"
    assert memory.is_new(line(2, 7))
    assert not memory.is_new(line(0, 8)), "before the first line of its attempt"
    assert not memory.is_new(line(0, 9))
    assert memory.is_new(line(0, 9))
    assert memory.is_new(line(0, 10))


def test_the_whole_begins_again_where_it_began() -> None:
    memory = ReplayFilter(LogSelection("/a/b", since_ms=2))
    assert memory.is_new(line(0, 9))
    assert memory.next_query().since_ms == 2
    assert memory.is_new(line(1, 1)), "whatever the controller sends is shown"
    assert memory.is_new(line(0, 1, attempt=1))


@pytest.mark.parametrize(
    ("query", "complete"),
    [
        (LogSelection("/a/b", max_lines=2, from_start=True), True),
        (LogSelection("/a/b", max_lines=3, from_start=True), False),
        (LogSelection("/a/b", max_lines=2), False),
        (LogSelection("/a/b", from_start=True), False),
        (LogSelection("/a/b", max_lines=2, from_start=True, follow=True), False),
    ],
)
def test_only_the_first_lines_are_ever_complete(query: LogSelection, complete: bool) -> None:
    memory = ReplayFilter(query)
    memory.is_new(line(0, 1))
    assert not memory.is_complete()
    memory.is_new(line(0, 2))
    assert memory.is_complete() is complete
