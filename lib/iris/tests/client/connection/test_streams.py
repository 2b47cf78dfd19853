"""A session's stream: what is sent when, and when it ends."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from fray.testing.waiting import eventually
from iris.client.connection.streams import GrpcStream
from iris.rpc import iris_pb2 as pb

METADATA = (("authorization", "Bearer t"),)
NEWS = pb.ClientNews(ended=[pb.JobStatus(job_id="/a/b")])


class Stub:
    """The stub of a channel on which the test is gRPC's thread that sends."""

    def Session(self, messages: Iterator[pb.ClientMessage], *, metadata: Any) -> Iterator[pb.ClientNews]:
        self.messages, self.metadata = messages, metadata
        return iter([NEWS])


@pytest.mark.parametrize("closed", [False, True])
def test_it_is_asked_now_and_then_and_at_the_end_whether_it_is_used(closed: bool) -> None:
    asked: list[int] = []

    def is_done() -> bool:
        asked.append(1)
        return closed or len(asked) == 3

    stub = Stub()
    stream = GrpcStream(cast(Any, stub), METADATA, idle_s=600 if closed else 0.001)
    stream.begin(lambda: None, is_done)
    assert (stub.metadata, list(stream.news())) == (METADATA, [NEWS])
    if closed:
        stream.close()
    assert list(stub.messages) == []
    assert len(asked) == (1 if closed else 3)


def test_what_is_there_later_is_sent_at_once() -> None:
    waiting, stub = [pb.ClientMessage(waiting=True)], Stub()
    stream = GrpcStream(cast(Any, stub), METADATA, idle_s=600)
    stream.begin(lambda: waiting.pop(0) if waiting else None, lambda: False)
    assert next(stub.messages).waiting
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(next, stub.messages)
        eventually(lambda: stream._sleeps, "it waits")
        waiting.append(pb.ClientMessage(watch=["/a"]))
        stream.wake()
        assert list(sending.result(20).watch) == ["/a"]
