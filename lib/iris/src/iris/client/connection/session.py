"""A client's session: many submissions, stops and waits share one stream to the controller.

A caller puts its call on the stream and sleeps until the answer arrives. Calls that accumulate meanwhile share one
message. The controller pushes the ends of submitted jobs, so waiting for a job usually needs no call. The stream lasts
as long as its channel. When it breaks, every waiter gets the same error as a separate call would, and retries on the
next stream. Idempotency keys make repeated submissions safe.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc

from iris.client.connection.streams import SessionBroken, SessionStream
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.status_map import error_of_status, status_of_number
from rigging.errors import MarinError

_MESSAGE_CALLS: Final = 500
_MESSAGE_BYTES: Final = 4 * 1024 * 1024


class KnownEnds:
    """The known ends of jobs submitted through sessions. Above a limit the oldest are dropped.

    A job's name may be reused, so the key of an end includes the submission's idempotency key.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._keys: OrderedDict[str, str] = OrderedDict()
        self._known: dict[str, pb.JobStatus] = {}

    def submitted(self, job_id: str, key: str) -> None:
        """Record that the name now refers to this submission."""
        self._known.pop(job_id, None)
        self._keys.pop(job_id, None)
        self._keys[job_id] = key
        if len(self._keys) > self._most:
            oldest, _ = self._keys.popitem(last=False)
            self._known.pop(oldest, None)

    def ended(self, status: pb.JobStatus) -> None:
        """Record that the job with this name has ended."""
        if status.job_id in self._keys:
            self._known[status.job_id] = status

    def find(self, job_id: str, key: str) -> pb.JobStatus | None:
        """Return the final status of this submission's job, if known."""
        if not key or self._keys.get(job_id) != key:
            return None
        return self._known.get(job_id)


class _Done:
    """An event with one setter and one waiter. It costs half as much as an Event, and Ctrl-C interrupts the wait."""

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._set = False

    def set(self) -> None:
        """Set the event. Call it with the session's lock held."""
        if not self._set:
            self._set = True
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


@dataclass(eq=False, slots=True)
class _Calls:
    """A batch of calls. `done` is set once all have answers or the stream has broken."""

    keys: dict[int, str]
    missing: set[int]
    replies: dict[int, pb.ClientReply] = field(default_factory=dict)
    broken: grpc.RpcError | None = None
    done: _Done = field(default_factory=_Done)


@dataclass(eq=False, slots=True)
class _JobWait:
    """A wait for the ends of jobs."""

    missing: set[str]
    any_of_them: bool
    ended: dict[str, pb.JobStatus] = field(default_factory=dict)
    refused: MarinError | None = None
    broken: grpc.RpcError | None = None
    done: _Done = field(default_factory=_Done)

    def end(self, status: pb.JobStatus) -> None:
        self.missing.discard(status.job_id)
        self.ended[status.job_id] = status
        if self.any_of_them or not self.missing:
            self.done.set()


class CallSession:
    """One stream. Thread-safe. Connection errors are grpc's, as for a separate call.

    Args:
        ends: The known ends, shared with earlier and later sessions.
    """

    def __init__(self, stream: SessionStream, ends: KnownEnds) -> None:
        self._ends = ends
        self._stream = stream
        self._lock = threading.Lock()
        self._outgoing: list[pb.ClientCall] = []
        self._to_watch: dict[str, None] = {}
        self._calls: dict[int, _Calls] = {}
        self._waits: dict[str, dict[_JobWait, None]] = {}
        self._waiting = 0
        self._last_id = 0
        self._error: grpc.RpcError | None = None

    def start(self) -> "CallSession":
        """Open the stream, and read it in a separate thread."""
        self._stream.begin(self._take, self._is_done)
        threading.Thread(target=self._read, name="iris-session", daemon=True).start()
        return self

    def close(self) -> None:
        """End the stream. Waiters get the error of a broken stream."""
        self._stream.close()

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        return self._error is not None

    def call(self, calls: Sequence[pb.ClientCall], timeout: float) -> list[pb.ClientReply]:
        """Make these calls together and return their replies in order.

        Args:
            calls: The calls.
            timeout: Timeout in seconds.

        Raises:
            grpc.RpcError: The stream ended before all calls were answered, or the timeout expired.
        """
        with self._lock:
            self._check_open()
            ids = list(range(self._last_id + 1, self._last_id + 1 + len(calls)))
            self._last_id += len(calls)
            begun = _Calls({}, set(ids))
            for call_id, call in zip(ids, calls, strict=True):
                call.call_id = call_id
                begun.keys[call_id] = call.submit.idempotency_key
                self._calls[call_id] = begun
            self._outgoing += calls
        self._stream.wake()
        try:
            if not begun.done.wait(timeout):
                raise SessionBroken(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {timeout:g} s")
        finally:
            if begun.missing:
                self._forget(begun)
        if begun.broken is not None:
            raise begun.broken
        return [begun.replies[call_id] for call_id in ids]

    def wait(
        self, jobs: Sequence[tuple[str, str]], *, any_of_them: bool, timeout: float
    ) -> tuple[dict[str, pb.JobStatus], bool]:
        """Wait until all (or any) of these jobs have ended. Return the known ends, and whether the wait is over.

        Args:
            jobs: Job ids, each with its submission's idempotency key ("" for the job that currently has the name).
            any_of_them: Return when one of them has ended.
            timeout: Timeout in seconds.

        Raises:
            grpc.RpcError: The stream ended early.
            MarinError: A job does not exist, or is not visible to the caller.
        """
        with self._lock:
            self._check_open()
            known = {job_id: self._ends.find(job_id, key) for job_id, key in jobs}
            ended = {job_id: status for job_id, status in known.items() if status is not None}
            missing = [job_id for job_id, status in known.items() if status is None]
            if not missing or (any_of_them and ended):
                return ended, True
            wait = _JobWait(set(missing), any_of_them, ended)
            for job_id in missing:
                self._waits.setdefault(job_id, {})[wait] = None
                self._to_watch[job_id] = None
            self._waiting += 1
        self._stream.wake()
        try:
            done = wait.done.wait(max(timeout, 0.0))
        finally:
            self._leave(wait, missing)
        if wait.refused is not None:
            raise wait.refused
        if wait.broken is not None:
            raise wait.broken
        return wait.ended, done

    def _forget(self, begun: _Calls) -> None:
        with self._lock:
            for call_id in begun.missing:
                self._calls.pop(call_id, None)

    def _leave(self, wait: _JobWait, job_ids: Sequence[str]) -> None:
        with self._lock:
            self._waiting -= 1
            for job_id in job_ids:
                waits = self._waits.get(job_id)
                if waits is not None:
                    waits.pop(wait, None)
                    if not waits:
                        del self._waits[job_id]

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error

    # ---- for the stream ----

    def _take(self) -> pb.ClientMessage | None:
        with self._lock:
            if not (self._outgoing or self._to_watch):
                return None
            calls = _first_message(self._outgoing)
            del self._outgoing[: len(calls)]
            watch, self._to_watch = list(self._to_watch), {}
            return pb.ClientMessage(calls=calls, watch=watch, waiting=self._waiting > 0)

    def _is_done(self) -> bool:
        """Return whether to stop sending: the stream has ended, or has been idle for a while."""
        with self._lock:
            if self._error is not None:
                return True
            if self._outgoing or self._to_watch or self._calls or self._waits:
                return False
            self._error = SessionBroken(grpc.StatusCode.UNAVAILABLE, "the session was not used")
            return True

    # ---- in the thread that reads ----

    def _read(self) -> None:
        error: grpc.RpcError = SessionBroken(grpc.StatusCode.UNAVAILABLE, "the controller ended the session")
        try:
            for news in self._stream.news():
                self._take_in(news)
        except grpc.RpcError as broken:
            error = broken
        with self._lock:
            self._error = error
            for begun in self._calls.values():
                begun.broken = error
                begun.done.set()
            for wait in [wait for waits in self._waits.values() for wait in waits]:
                wait.broken = error
                wait.done.set()
            self._calls, self._waits = {}, {}
        self._stream.close()

    def _take_in(self, news: pb.ClientNews) -> None:
        with self._lock:
            for reply in news.replies:
                self._take_reply(reply)
            for status in news.ended:
                self._ends.ended(status)
                for wait in self._waits.pop(status.job_id, ()):
                    wait.end(status)
            for refused in news.refused:
                for wait in self._waits.pop(refused.job_id, ()):
                    wait.refused = error_of(refused.error)
                    wait.done.set()

    def _take_reply(self, reply: pb.ClientReply) -> None:
        begun = self._calls.pop(reply.call_id, None)
        if begun is None:
            return  # its caller has given up
        if reply.HasField("submitted"):
            self._ends.submitted(reply.submitted.job_id, begun.keys[reply.call_id])
        begun.replies[reply.call_id] = reply
        begun.missing.discard(reply.call_id)
        if not begun.missing:
            begun.done.set()


def _first_message(calls: list[pb.ClientCall]) -> list[pb.ClientCall]:
    """Return as many of the first calls as fit into one message, but at least one."""
    if len(calls) == 1:
        return calls[:1]
    size = 0
    for place, call in enumerate(calls[:_MESSAGE_CALLS]):
        size += call.ByteSize()
        if size > _MESSAGE_BYTES and place:
            return calls[:place]
    return calls[:_MESSAGE_CALLS]


def error_of(error: pb.CallError) -> MarinError:
    """Return the error class for a refused call of a session."""
    return error_of_status(status_of_number(error.code), error.message)
