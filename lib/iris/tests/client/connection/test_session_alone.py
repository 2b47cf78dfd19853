"""A client's session against a scripted stream: what is sent, who is answered, and how it ends."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import pytest

from iris.client.connection.session import CallSession, KnownEnds, error_of
from iris.client.connection.streams import GrpcStream, SessionBroken
from iris.rpc import iris_pb2 as pb
from iris.rpc.iris_pb2_grpc import ClientServiceStub
from rigging.errors import Denied, MarinError, NotFound
from rigging.testing.waiting import eventually

Scripted = Callable[[pb.ClientMessage], Sequence[pb.ClientNews]]


class SessionStream:
    """The controller's side: answers each message by a script; `say` adds news, `end` ends it."""

    def __init__(self, script: Scripted) -> None:
        self._script = script
        self._news: queue.SimpleQueue[pb.ClientNews | grpc.RpcError | None] = queue.SimpleQueue()
        self.messages: list[pb.ClientMessage] = []
        self.closed = threading.Event()
        self.metadata: Any = None

    def Session(self, messages: Iterator[pb.ClientMessage], *, metadata: Any) -> Iterator[pb.ClientNews]:
        self.metadata = metadata
        threading.Thread(target=self._take_in, args=(messages,), daemon=True).start()
        return self._tell()

    def say(self, *news: pb.ClientNews) -> None:
        for item in news:
            self._news.put(item)

    def end(self, error: grpc.RpcError | None = None) -> None:
        self._news.put(error)

    def _take_in(self, messages: Iterator[pb.ClientMessage]) -> None:
        for message in messages:
            self.messages.append(message)
            self.say(*self._script(message))
        self.closed.set()

    def _tell(self) -> Iterator[pb.ClientNews]:
        while (item := self._news.get()) is not None:
            if isinstance(item, grpc.RpcError):
                raise item
            yield item


def opened(
    script: Scripted = lambda message: (), ends: KnownEnds | None = None, idle_s: float = 60.0
) -> tuple[Any, SessionStream]:
    stream = SessionStream(script)
    way = GrpcStream(cast(ClientServiceStub, stream), (("k", "v"),), idle_s)
    return CallSession(way, ends or KnownEnds()).start(), stream


def accept(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
    replies = [
        pb.ClientReply(call_id=call.call_id, submitted=pb.SubmitJobResponse(job_id=call.submit.spec.job_id))
        for call in message.calls
    ]
    return [pb.ClientNews(replies=replies)] if replies else []


def submission(job_id: str, key: str = "", size: int = 0) -> pb.ClientCall:
    spec = pb.JobSpec(job_id=job_id)
    blobs = [bytes(size)] if size else []
    return pb.ClientCall(submit=pb.SubmitJobRequest(spec=spec, idempotency_key=key, inline_blobs=blobs))


def ended(job_id: str, state: int = pb.JOB_STATE_SUCCEEDED) -> pb.ClientNews:
    return pb.ClientNews(ended=[pb.JobStatus(job_id=job_id, state=state)])


def test_replies_come_in_the_order_of_the_calls_whatever_the_order_of_the_answers() -> None:
    def backwards(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
        [news] = accept(message)
        return [pb.ClientNews(replies=[reply]) for reply in reversed(news.replies)]

    session, stream = opened(backwards)
    names = [f"/u/{number}" for number in range(5)]
    for _ in range(2):
        replies = session.call([submission(name) for name in names], 20)
        assert [reply.submitted.job_id for reply in replies] == names
    assert stream.metadata == (("k", "v"),)
    ids = [call.call_id for message in stream.messages for call in message.calls]
    assert len(set(ids)) == 10
    stream.end()


def test_calls_that_are_large_or_many_are_sent_in_several_messages() -> None:
    session, stream = opened(accept)
    assert len(session.call([submission(f"/u/{number}") for number in range(1001)], 20)) == 1001
    assert [len(message.calls) for message in stream.messages] == [500, 500, 1]
    stream.messages.clear()
    megabyte = 2**20
    session.call([submission(f"/u/{number}", size=size) for number, size in enumerate([3 * megabyte] * 3)], 20)
    assert [len(message.calls) for message in stream.messages] == [1, 1, 1]
    stream.messages.clear()
    session.call([submission(f"/u/{number}", size=megabyte) for number in range(5)], 20)
    assert [len(message.calls) for message in stream.messages] == [3, 2]
    stream.messages.clear()
    session.call([submission("/u/huge", size=6 * megabyte), submission("/u/small")], 20)
    assert [len(message.calls) for message in stream.messages] == [1, 1], "one that is too large goes by itself"
    stream.end()


def test_no_answer_in_time_is_an_error_and_a_late_one_is_nobodys() -> None:
    session, stream = opened()
    with pytest.raises(SessionBroken, match=r"DEADLINE_EXCEEDED: no answer within 0\.01 s") as late:
        session.call([submission("/u/a"), submission("/u/b")], 0.01)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert late.value.details() == "no answer within 0.01 s"
    stream.say(pb.ClientNews(replies=[pb.ClientReply(call_id=1, submitted=pb.SubmitJobResponse(job_id="/u/a"))]))
    waiting = session.wait([("/u/x", "")], any_of_them=False, timeout=0.01)
    assert waiting == ({}, False)
    assert not session.is_over
    stream.end()


class Played:
    """A stream in which the test says what is news, and when it is asked whether it may end."""

    def begin(self, take: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        self._take, self.is_done = take, is_done
        self.messages: list[pb.ClientMessage] = []
        self._said: queue.SimpleQueue[pb.ClientNews | None] = queue.SimpleQueue()

    def wake(self) -> None:
        while (message := self._take()) is not None:
            self.messages.append(message)

    def say(self, news: pb.ClientNews) -> None:
        self._said.put(news)

    def news(self) -> Iterator[pb.ClientNews]:
        while (item := self._said.get()) is not None:
            yield item

    def close(self) -> None:
        self._said.put(None)


@pytest.mark.parametrize("kind", ["calls", "waits"])
def test_what_is_given_up_does_not_keep_a_session_open(kind: str) -> None:
    stream = Played()
    session = CallSession(stream, KnownEnds()).start()
    if kind == "calls":
        with pytest.raises(SessionBroken, match="no answer within"):
            session.call([submission("/u/a"), submission("/u/b")], 0.01)
    else:
        assert session.wait([("/u/a", ""), ("/u/b", "")], any_of_them=False, timeout=0.01) == ({}, False)
    assert not session.is_over
    assert stream.is_done()
    assert session.is_over
    session.close()


def test_two_who_wait_for_the_same_job_leave_each_by_itself() -> None:
    session, stream = opened()
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(session.wait, [("/u/a", "")], any_of_them=False, timeout=20)
        while not stream.messages:
            time.sleep(0.001)
        assert session.wait([("/u/a", "")], any_of_them=False, timeout=0.01) == ({}, False)
        stream.say(ended("/u/a"))
        found, done = patient.result(20)
    assert (list(found), done) == (["/u/a"], True)
    stream.end()


def test_a_wait_for_any_job_may_be_told_of_several_ends_at_once() -> None:
    def script(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
        if message.calls:
            return accept(message)
        return [pb.ClientNews(ended=[pb.JobStatus(job_id=name) for name in message.watch])]

    session, stream = opened(script)
    found, done = session.wait([("/u/a", ""), ("/u/b", "")], any_of_them=True, timeout=20)
    assert done
    assert found
    assert session.call([submission("/u/c")], 20)[0].submitted.job_id == "/u/c", "the session goes on"
    stream.end()


def broken_by(work: Callable[[], object]) -> grpc.RpcError | None:
    try:
        work()
    except grpc.RpcError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (SessionBroken(grpc.StatusCode.UNAVAILABLE, "gone"), "gone"),
        (None, "the controller ended the session"),
    ],
)
def test_the_end_of_the_stream_ends_every_call_and_wait_with_its_error(
    raised: grpc.RpcError | None, words: str
) -> None:
    session, stream = opened()
    jobs = [("/u/a", ""), ("/u/b", "")]
    with ThreadPoolExecutor(2) as pool:
        found = [
            pool.submit(broken_by, lambda: session.call([submission("/u/a"), submission("/u/b")], 20)),
            pool.submit(broken_by, lambda: session.wait(jobs, any_of_them=False, timeout=20)),
        ]
        while sum(len(message.calls) + len(message.watch) for message in stream.messages) < 4:
            time.sleep(0.001)
        stream.end(raised)
        assert [future.result(20).details() for future in found] == [words, words]
    assert session.is_over
    with pytest.raises(SessionBroken, match=words):
        session.call([submission("/u/a")], 1)
    with pytest.raises(SessionBroken, match=words):
        session.wait(jobs, any_of_them=True, timeout=1)
    assert stream.closed.wait(20), "the sending half is closed, too"


def test_ends_that_are_known_need_no_word_of_the_controller() -> None:
    ends = KnownEnds()
    for name in ("/u/a", "/u/b"):
        ends.submitted(name, "k" + name)
    ends.ended(pb.JobStatus(job_id="/u/a", state=pb.JOB_STATE_FAILED))
    session, stream = opened(ends=ends)
    found, done = session.wait([("/u/a", "k/u/a")], any_of_them=False, timeout=20)
    assert (found["/u/a"].state, done) == (pb.JOB_STATE_FAILED, True)
    found, done = session.wait([("/u/a", "k/u/a"), ("/u/b", "k/u/b")], any_of_them=True, timeout=20)
    assert (list(found), done) == (["/u/a"], True)
    assert stream.messages == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(session.wait, [("/u/a", "k/u/a"), ("/u/b", "k/u/b")], any_of_them=False, timeout=20)
        eventually(lambda: bool(stream.messages), "it is sent")
        [message] = stream.messages
        assert (list(message.watch), message.waiting) == (["/u/b"], True)
        stream.say(ended("/u/b"))
        found, done = waiting.result(20)
    assert (sorted(found), done) == (["/u/a", "/u/b"], True)
    found, done = session.wait([("/u/a", "k/u/a"), ("/u/c", "")], any_of_them=False, timeout=0.01)
    assert (list(found), done) == (["/u/a"], False)
    stream.end()


@pytest.mark.parametrize(("any_of_them", "told"), [(True, 1), (False, 2)])
def test_a_wait_ends_with_the_first_or_the_last(any_of_them: bool, told: int) -> None:
    def script(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
        return [ended(name) for name in message.watch][:told]

    session, stream = opened(script)
    found, done = session.wait([("/u/a", ""), ("/u/b", "")], any_of_them=any_of_them, timeout=20)
    assert done
    assert list(found) == ["/u/a", "/u/b"][:told]
    stream.end()


def test_a_wait_that_is_refused_says_why_and_leaves_the_others() -> None:
    def refuse(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
        error = pb.CallError(code=grpc.StatusCode.NOT_FOUND.value[0], message="no such job")
        return [pb.ClientNews(refused=[pb.WatchRefused(job_id=name, error=error) for name in message.watch])]

    session, stream = opened(refuse)
    with pytest.raises(NotFound, match="no such job"):
        session.wait([("/u/a", "")], any_of_them=False, timeout=20)
    assert not session.is_over
    stream.end()


def test_the_end_of_what_was_submitted_here_is_kept_by_its_key() -> None:
    ends = KnownEnds()

    def at_once(message: pb.ClientMessage) -> Sequence[pb.ClientNews]:
        return [*accept(message), *(ended(call.submit.spec.job_id) for call in message.calls)]

    session, stream = opened(at_once, ends)
    session.call([submission("/u/a", "key")], 20)
    assert session.wait([("/u/a", "key")], any_of_them=False, timeout=20)[1]
    assert ends.find("/u/a", "key") is not None
    assert ends.find("/u/a", "other") is None
    stream.end()


def test_a_session_that_nobody_uses_closes_its_half() -> None:
    session, stream = opened(idle_s=0.02)
    assert stream.closed.wait(20)
    assert session.is_over
    with pytest.raises(SessionBroken, match="the session was not used"):
        session.call([submission("/u/a")], 1)
    stream.end()


def test_a_session_that_is_used_does_not_end() -> None:
    stream = Played()
    session = CallSession(stream, KnownEnds()).start()
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(session.call, [submission("/u/a")], 20)
        waiting = pool.submit(session.wait, [("/u/b", "")], any_of_them=False, timeout=20)
        eventually(lambda: sum(len(item.calls) + len(item.watch) for item in stream.messages) == 2, "both are sent")
        assert not stream.is_done()
        for message in stream.messages:
            for news in accept(message):
                stream.say(news)
        assert asking.result(20)[0].submitted.job_id == "/u/a"
        assert not stream.is_done(), "one still waits"
        stream.say(ended("/u/b"))
        assert waiting.result(20)[1]
    assert stream.is_done()
    session.close()


def test_a_message_says_whether_anybody_waits() -> None:
    session, stream = opened(accept)
    session.call([submission("/u/a")], 20)
    session.wait([("/u/a", "")], any_of_them=False, timeout=0.01)
    eventually(lambda: len(stream.messages) == 2, "what is waited for is sent")
    session.call([submission("/u/b")], 20)
    assert [message.waiting for message in stream.messages] == [False, True, False]
    stream.end()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(grpc.StatusCode.PERMISSION_DENIED.value[0], Denied), (12345, MarinError)],
)
def test_a_refusal_keeps_its_class(code: int, kind: type[MarinError]) -> None:
    error = error_of(pb.CallError(code=code, message="because"))
    assert type(error) is kind
    assert "because" in str(error)


def test_the_oldest_ends_are_dropped_beyond_a_number() -> None:
    ends = KnownEnds(most=2)
    for name in ("/u/a", "/u/b", "/u/c"):
        ends.submitted(name, "k")
        ends.ended(pb.JobStatus(job_id=name))
    assert [ends.find(name, "k") is not None for name in ("/u/a", "/u/b", "/u/c")] == [False, True, True]
    assert len(ends._known) == 2, "nothing of it is kept"
    ends.ended(pb.JobStatus(job_id="/u/a"))
    assert ends.find("/u/a", "k") is None
    ends.submitted("/u/b", "k")  # used again: the newest now
    assert ends.find("/u/b", "k") is None
    ends.submitted("/u/d", "k")
    ends.ended(pb.JobStatus(job_id="/u/b"))
    assert ends.find("/u/b", "k") is not None
    assert ends.find("/u/c", "k") is None
