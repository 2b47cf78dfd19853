"""Logs: streams that break go on without gap or repeat; what is printed is what was written."""

import io

import grpc
import pytest

from iris.client.logs.printer import LogPrinter
from iris.client.types import LogLine
from iris.rpc import iris_pb2 as pb
from rigging.errors import NotFound


def entry(number: int, task: int = 0, attempt: int = 0, at_ms: int | None = None) -> pb.LogEntry:
    return pb.LogEntry(
        task_id=f"/ann/job/{task}", attempt=attempt, at_ms=number if at_ms is None else at_ms, data=b"line %d" % number
    )


def break_after(controller, count: int) -> None:
    """The first stream breaks after `count` entries."""
    whole = type(controller).FetchLogs
    broken = []

    def fetch(request, context):
        for sent, batch in enumerate(whole(controller, request, context)):
            if sent == count and not broken:
                broken.append(True)
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            yield batch

    controller.FetchLogs = fetch
    controller.stop()
    controller.port = 0
    controller.start()


def texts(client, **query) -> list[str]:
    return [line.text for line in client.read_logs("/ann/job", **query)]


@pytest.mark.parametrize("broken_after", [0, 1, 7, 19])
def test_a_broken_stream_goes_on_where_it_was(controller, client, broken_after):
    # Two tasks and equal times: neither time nor position alone says what was seen.
    controller.log = [entry(i, task=i % 2, at_ms=5) for i in range(20)]
    break_after(controller, broken_after)
    assert texts(client, follow=True, from_start=True) == [f"line {i}" for i in range(20)]


def test_a_broken_tail_repeats_nothing_and_brings_nothing_older(controller, client):
    controller.log = [entry(i, task=i % 3) for i in range(30)]
    break_after(controller, 4)
    assert texts(client, max_lines=10, follow=True) == [f"line {i}" for i in range(20, 30)]


def test_a_new_attempt_after_the_break_is_shown_whole(controller, client):
    controller.log = [entry(i) for i in range(3)]
    break_after(controller, 2)
    lines = client.read_logs("/ann/job", follow=True, from_start=True)
    seen = [next(lines), next(lines)]
    controller.log += [entry(10 + i, attempt=1) for i in range(2)]
    assert [line.text for line in [*seen, *lines]] == ["line 0", "line 1", "line 2", "line 10", "line 11"]


def test_the_first_lines_end_with_the_limit_even_when_broken(controller, client):
    controller.log = [entry(i) for i in range(9)]
    break_after(controller, 2)
    assert texts(client, max_lines=4, from_start=True) == ["line 0", "line 1", "line 2", "line 3"]


def test_an_unknown_job_is_not_found(controller, client):
    def refuse(name, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no job /ann/job")

    controller.on_call = refuse
    with pytest.raises(NotFound, match="no job /ann/job"):
        texts(client)


class Screen:
    def __init__(self, **options) -> None:
        self.out, self.err = io.BytesIO(), io.BytesIO()
        self.printer = LogPrinter("/ann/job", out=self.out, err=self.err, **{"prefix_own": False, **options})

    def write(self, task: str, data: bytes, *, stderr: bool = False, partial: bool = False, attempt: int = 0) -> None:
        self.printer.write(LogLine(task, attempt, stderr, 0, data, partial))


def test_a_single_task_is_printed_byte_for_byte():
    screen = Screen()
    screen.write("/ann/job/0", b"\xff 10%\r", partial=True)
    screen.write("/ann/job/0", b" 100%")
    screen.write("/ann/job/0", b"bad", stderr=True)
    screen.write("/ann/job/0", b"no newline at the end", partial=True)
    screen.printer.finish()
    assert screen.out.getvalue() == b"\xff 10%\r 100%\nno newline at the end"
    assert screen.err.getvalue() == b"bad\n"


def test_lines_of_several_tasks_are_named_and_never_mixed():
    screen = Screen(prefix_own=True)
    screen.write("/ann/job/0", b"one ", partial=True)
    screen.write("/ann/job/1", b"other")
    screen.write("/ann/job/0", b"line")
    screen.write("/ann/job/1", b"cut", partial=True)
    screen.printer.finish()
    assert screen.out.getvalue() == b"[1] other\n[0] one line\n[1] cut\n"


def test_child_jobs_are_named_and_start_on_a_line_of_their_own():
    screen = Screen()
    screen.write("/ann/job/0", b"progress", partial=True)
    screen.write("/ann/job/child/0", b"hello")
    assert screen.out.getvalue() == b"progress\n[child/0] hello\n"


def test_a_new_attempt_is_announced_once():
    told = []
    screen = Screen(on_retry=lambda task, attempt: told.append((task, attempt)))
    for attempt in (0, 0, 1, 1):
        screen.write("/ann/job/0", b"x", attempt=attempt)
    assert told == [("/ann/job/0", 1)]


def test_what_iris_says_of_missing_output_is_marked_and_not_mixed_into_it():
    screen = Screen()
    screen.write("/ann/job/0", b"out")
    screen.write("/ann/job/0", b"half", stderr=True, partial=True)
    screen.printer.write(LogLine("/ann/job/0", 0, True, 0, b"5 bytes of output lost: no space", note=True))
    assert screen.out.getvalue() == b"out\n"
    assert screen.err.getvalue() == b"half\niris: task /ann/job/0: 5 bytes of output lost: no space\n"
