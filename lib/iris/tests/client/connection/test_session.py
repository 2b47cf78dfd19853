"""A client's session against a scripted stream: what is sent, who is answered, and how it ends."""

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.client.connection.session import CallSession, KnownEnds, error_of
from iris.client.connection.streams import SessionBroken
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import Denied, MarinError, NotFound

Script = Callable[[pb.ClientMessage], Sequence[pb.ClientNews]]
A, B = ("/u/a", ""), ("/u/b", "")


class Stream:
    """The controller's side: answers each message by a script; `say` adds news, `end` ends it."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._news: queue.SimpleQueue[pb.ClientNews | grpc.RpcError | None] = queue.SimpleQueue()
        self.messages: list[pb.ClientMessage] = []
        self.closed = False

    def begin(self, take: Callable[[], pb.ClientMessage | None], is_done: Callable[[], bool]) -> None:
        self._take, self.is_done = take, is_done

    def wake(self) -> None:
        while (message := self._take()) is not None:
            self.messages.append(message)
            self.say(*self._script(message))

    def say(self, *news: pb.ClientNews) -> None:
        for item in news:
            self._news.put(item)

    def end(self, error: grpc.RpcError | None = None) -> None:
        self._news.put(error)

    def news(self) -> Iterator[pb.ClientNews]:
        while (item := self._news.get()) is not None:
            if isinstance(item, grpc.RpcError):
                raise item
            yield item

    def close(self) -> None:
        self.closed = True
        self._news.put(None)


def accept(message: pb.ClientMessage) -> list[pb.ClientNews]:
    replies = [
        pb.ClientReply(call_id=call.call_id, submitted=pb.SubmitJobResponse(job_id=call.submit.spec.job_id))
        for call in message.calls
    ]
    return [pb.ClientNews(replies=replies)] if replies else []


Opened = tuple[CallSession, Stream]


@pytest.fixture
def opened() -> Iterator[Callable[..., Opened]]:
    """Sessions that are closed when the test ends: `opened(script)`."""
    made: list[CallSession] = []

    def make(script: Script = lambda message: (), ends: KnownEnds | None = None) -> Opened:
        stream = Stream(script)
        made.append(CallSession(stream, ends or KnownEnds()).start())
        return made[-1], stream

    yield make
    for session in made:
        session.close()


def submission(job_id: str, key: str = "", size: int = 0) -> pb.ClientCall:
    spec = pb.JobSpec(job_id=job_id)
    blobs = [bytes(size)] if size else []
    return pb.ClientCall(submit=pb.SubmitJobRequest(spec=spec, idempotency_key=key, inline_blobs=blobs))


def ended(job_id: str, state: int = pb.JOB_STATE_SUCCEEDED) -> pb.ClientNews:
    return pb.ClientNews(ended=[pb.JobStatus(job_id=job_id, state=state)])


def wait(session: CallSession, *jobs: tuple[str, str], any_of_them: bool = False, timeout: float = 20) -> Any:
    """The names of the jobs whose ends are known when a wait ends, and whether it is over."""
    found, done = session.wait(jobs, any_of_them=any_of_them, timeout=timeout)
    return sorted(found), done


def test_replies_come_in_the_order_of_the_calls_whatever_the_order_of_the_answers(opened: Any) -> None:
    def backwards(message: pb.ClientMessage) -> list[pb.ClientNews]:
        [news] = accept(message)
        return [pb.ClientNews(replies=[reply]) for reply in reversed(news.replies)]

    session, stream = opened(backwards)
    names = [f"/u/{number}" for number in range(5)]
    for _ in range(2):
        replies = session.call([submission(name) for name in names], 20)
        assert [reply.submitted.job_id for reply in replies] == names
    assert len({call.call_id for message in stream.messages for call in message.calls}) == 10


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [([0] * 1001, [500, 500, 1]), ([3, 3, 3], [1, 1, 1]), ([1] * 5, [3, 2]), ([6, 0], [1, 1])],
    ids=["many", "large", "several", "one that is too large goes by itself"],
)
def test_calls_that_are_large_or_many_are_sent_in_several_messages(
    opened: Any, sizes: list[int], messages: list[int]
) -> None:
    session, stream = opened(accept)
    calls = [submission(f"/u/{number}", size=size << 20) for number, size in enumerate(sizes)]
    assert len(session.call(calls, 20)) == len(sizes)
    assert [len(message.calls) for message in stream.messages] == messages


def test_no_answer_in_time_is_an_error_and_a_late_one_is_nobodys(opened: Any) -> None:
    session, stream = opened()
    with pytest.raises(SessionBroken, match=r"DEADLINE_EXCEEDED: no answer within 0\.01 s") as late:
        session.call([submission("/u/a"), submission("/u/b")], 0.01)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert late.value.details() == "no answer within 0.01 s"
    stream.say(pb.ClientNews(replies=[pb.ClientReply(call_id=1, submitted=pb.SubmitJobResponse(job_id="/u/a"))]))
    assert wait(session, A, timeout=0.01) == ([], False)
    assert not session.is_over
    assert stream.is_done(), "what is given up does not keep a session open"
    assert session.is_over
    with pytest.raises(SessionBroken, match="the session was not used"):
        session.call([submission("/u/a")], 1)


def test_two_who_wait_for_the_same_job_leave_each_by_itself(opened: Any) -> None:
    session, stream = opened()
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(wait, session, A)
        eventually(lambda: stream.messages, "it is sent")
        assert wait(session, A, timeout=0.01) == ([], False)
        stream.say(ended("/u/a"))
        assert patient.result(20) == (["/u/a"], True)


def test_a_wait_for_any_job_may_be_told_of_several_ends_at_once(opened: Any) -> None:
    def script(message: pb.ClientMessage) -> list[pb.ClientNews]:
        both = pb.ClientNews(ended=[pb.JobStatus(job_id=name) for name in message.watch])
        return accept(message) or [both]

    session, _ = opened(script)
    found, done = wait(session, A, B, any_of_them=True)
    assert (bool(found), done) == (True, True)
    assert session.call([submission("/u/c")], 20)[0].submitted.job_id == "/u/c", "the session goes on"


@pytest.mark.parametrize(
    ("raised", "words"),
    [(SessionBroken(grpc.StatusCode.UNAVAILABLE, "gone"), "gone"), (None, "the controller ended the session")],
)
def test_the_end_of_the_stream_ends_every_call_and_wait_with_its_error(
    opened: Any, raised: grpc.RpcError | None, words: str
) -> None:
    session, stream = opened()
    with ThreadPoolExecutor(2) as pool:
        found = [
            pool.submit(session.call, [submission("/u/a"), submission("/u/b")], 20),
            pool.submit(wait, session, A, B),
        ]
        eventually(lambda: sum(len(item.calls) + len(item.watch) for item in stream.messages) == 4, "all are sent")
        stream.end(raised)
        for future in found:
            with pytest.raises(SessionBroken, match=words):
                future.result(20)
    assert session.is_over
    for late in (lambda: session.call([submission("/u/a")], 1), lambda: wait(session, A, any_of_them=True, timeout=1)):
        with pytest.raises(SessionBroken, match=words):
            late()
    eventually(lambda: stream.closed, "the sending half is closed, too")


def test_ends_that_are_known_need_no_word_of_the_controller(opened: Any) -> None:
    ends = KnownEnds()
    a, b = ("/u/a", "ka"), ("/u/b", "kb")
    for name, key in (a, b):
        ends.submitted(name, key)
    ends.ended(pb.JobStatus(job_id="/u/a", state=pb.JOB_STATE_FAILED))
    session, stream = opened(ends=ends)
    found, done = session.wait([a], any_of_them=False, timeout=20)
    assert (found["/u/a"].state, done) == (pb.JOB_STATE_FAILED, True)
    assert wait(session, a, b, any_of_them=True) == (["/u/a"], True)
    assert stream.messages == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, session, a, b)
        eventually(lambda: stream.messages, "it is sent")
        [message] = stream.messages
        assert (list(message.watch), message.waiting) == (["/u/b"], True)
        stream.say(ended("/u/b"))
        assert waiting.result(20) == (["/u/a", "/u/b"], True)
    assert wait(session, a, ("/u/c", ""), timeout=0.01) == (["/u/a"], False)


@pytest.mark.parametrize(("any_of_them", "told"), [(True, 1), (False, 2)])
def test_a_wait_ends_with_the_first_or_the_last(opened: Any, any_of_them: bool, told: int) -> None:
    session, _ = opened(lambda message: [ended(name) for name in message.watch][:told])
    assert wait(session, A, B, any_of_them=any_of_them) == (["/u/a", "/u/b"][:told], True)


def test_a_wait_that_is_refused_says_why_and_leaves_the_others(opened: Any) -> None:
    error = pb.CallError(code=grpc.StatusCode.NOT_FOUND.value[0], message="no such job")
    session, _ = opened(
        lambda message: [pb.ClientNews(refused=[pb.WatchRefused(job_id=name, error=error) for name in message.watch])]
    )
    with pytest.raises(NotFound, match="no such job"):
        wait(session, A)
    assert not session.is_over


def test_the_end_of_what_was_submitted_here_is_kept_by_its_key(opened: Any) -> None:
    ends = KnownEnds()
    session, _ = opened(
        lambda message: [*accept(message), *(ended(call.submit.spec.job_id) for call in message.calls)], ends
    )
    session.call([submission("/u/a", "key")], 20)
    assert wait(session, ("/u/a", "key"))[1]
    assert ends.find("/u/a", "key") is not None
    assert ends.find("/u/a", "other") is None
    assert ends.find("/u/a", "") is None


def test_a_session_that_is_used_does_not_end(opened: Any) -> None:
    session, stream = opened()
    with ThreadPoolExecutor(2) as pool:
        asking, waiting = pool.submit(session.call, [submission("/u/a")], 20), pool.submit(wait, session, B)
        eventually(lambda: sum(len(item.calls) + len(item.watch) for item in stream.messages) == 2, "both are sent")
        assert not stream.is_done()
        for message in stream.messages:
            stream.say(*accept(message))
        assert asking.result(20)[0].submitted.job_id == "/u/a"
        assert not stream.is_done(), "one still waits"
        stream.say(ended("/u/b"))
        assert waiting.result(20)[1]
    assert stream.is_done()
    assert stream.is_done(), "it stays over"


def test_a_message_says_whether_anybody_waits(opened: Any) -> None:
    session, stream = opened(accept)
    session.call([submission("/u/a")], 20)
    wait(session, A, timeout=0.01)
    session.call([submission("/u/b")], 20)
    assert [message.waiting for message in stream.messages] == [False, True, False]


@pytest.mark.parametrize(
    ("code", "kind"), [(grpc.StatusCode.PERMISSION_DENIED.value[0], Denied), (12345, MarinError)]
)  # fmt: skip
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
