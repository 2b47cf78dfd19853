"""Submit, stop and wait, with separate calls or through a session if the client is busy."""

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import grpc

from iris.client.connection.connection import Connection, Stubs
from iris.client.connection.session import CallSession, KnownEnds, error_of
from iris.client.connection.streams import open_stream
from iris.client.errors import ControllerUnreachable
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated.iris_pb2_grpc import ClientServiceStub
from rigging.errors import MarinError

_ALONE: Final = 2
"""Number of calls before a session is opened: a command that submits one job needs no session."""
_CALLS_PER_SECOND: Final = 100
"""Lowest expected rate of a controller for many concurrent calls, in calls per second."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class JobCalls:
    """The frequent calls of one connection. Thread-safe.

    Args:
        lends: Whether waits of this process lend its CPUs to its children. Such waits need separate calls.
    """

    def __init__(self, connection: Connection, *, lends: bool = False) -> None:
        self._connection = connection
        self._lends = lends
        self._lock = threading.Lock()
        self._ends = KnownEnds()
        self._alone = _ALONE
        self._session: tuple[ClientServiceStub, CallSession] | None = None

    def submit(self, requests: Sequence[pb.SubmitJobRequest]) -> list[pb.SubmitJobResponse | MarinError]:
        """Submit these jobs, each with its idempotency key, and return the outcome of each.

        Raise ControllerUnreachable. Some jobs may then be stored; repeating with the same keys finds them.
        """
        if len(requests) > 1 or not self._goes_alone():
            calls = [pb.ClientCall(submit=request) for request in requests]
            replies = self._by_session(calls)
            return [error_of(reply.error) if reply.HasField("error") else reply.submitted for reply in replies]
        return self._one_by_one(lambda c: c.jobs.SubmitJob, requests)

    def stop(self, requests: Sequence[pb.StopJobRequest]) -> list[pb.StopJobResponse | MarinError]:
        """Stop these jobs and return the outcome of each. Raise ControllerUnreachable."""
        if len(requests) > 1 or self._is_open():
            replies = self._by_session([pb.ClientCall(stop=request) for request in requests])
            return [error_of(reply.error) if reply.HasField("error") else reply.stopped for reply in replies]
        return self._one_by_one(lambda c: c.jobs.StopJob, requests)

    def wait(
        self, jobs: Sequence[tuple[str, str]], *, any_of_them: bool, seconds: float
    ) -> tuple[dict[str, pb.JobStatus], bool] | None:
        """Wait like `CallSession.wait`; return None if this wait needs a separate call.

        Raise MarinError like a separate call.

        Args:
            jobs: Job ids with their submissions' keys; "" for the job that currently has the id.
            any_of_them: Return when one of them has ended.
            seconds: Maximum time to wait.
        """
        if self._lends or not (self._is_open() or not self._goes_alone()):
            return None

        return self._run_in_session(lambda session: session.wait(jobs, any_of_them=any_of_them, timeout=seconds))

    def _goes_alone(self) -> bool:
        with self._lock:
            self._alone -= 1
            return self._alone >= 0

    def _is_open(self) -> bool:
        session = self._session
        return session is not None and not session[1].is_over

    def _by_session(self, calls: Sequence[pb.ClientCall]) -> list[pb.ClientReply]:
        extra = len(calls) / _CALLS_PER_SECOND
        return self._run_in_session(lambda session: session.call(calls, self._connection.current().timeout + extra))

    def _run_in_session(self, work: Callable[[CallSession], Reply]) -> Reply:
        """Run a call in the session, retrying while the controller is unreachable."""
        return self._connection.run(lambda call: work(self._open(call)))

    def _open(self, call: Stubs) -> CallSession:
        """Return the session on this channel, opening it if needed."""
        with self._lock:
            known = self._session
            if known is not None and known[0] is call.clients and not known[1].is_over:
                return known[1]
            stream = open_stream(call.socket, call.clients, call.metadata, call.timeout)
            session = CallSession(stream, self._ends).start()
            if known is not None and known[1].close in call.closing:
                call.closing.remove(known[1].close)
            self._session = (call.clients, session)
            call.closing.append(session.close)
            return session

    def _one_by_one(
        self, rpc: "Callable[[Stubs], grpc.UnaryUnaryMultiCallable[Request, Reply]]", requests: Sequence[Request]
    ) -> list[Reply | MarinError]:
        replies: list[Reply | MarinError] = []
        for request in requests:
            try:
                replies.append(self._connection.ask(rpc, request))
            except ControllerUnreachable:
                raise
            except MarinError as error:
                replies.append(error)
        return replies
