"""A client's connection to a controller: channel, token, retries, and rediscovery after the controller moved."""

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import grpc

from iris.client.errors import ControllerUnreachable
from iris.rpc.channels import open_channel
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.forks import in_fork, use_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated.access_pb2_grpc import AccessServiceStub
from iris.rpc.generated.dashboard_pb2_grpc import DashboardServiceStub
from iris.rpc.generated.endpoints_pb2_grpc import EndpointServiceStub
from iris.rpc.generated.exec_pb2_grpc import ExecServiceStub
from iris.rpc.generated.iris_pb2_grpc import BlobServiceStub, ClientServiceStub, ClusterServiceStub, JobServiceStub
from iris.rpc.protocol import CHANNEL_OPTIONS, call_metadata
from iris.rpc.status_map import from_rpc_error
from iris.tls.trust import certificate_trouble, speaks_tls
from rigging.errors import Conflict, InvalidRequest, MarinError
from rigging.timing import ExponentialBackoff

RECONNECT_TIMEOUT_ENV: Final = "IRIS_RECONNECT_TIMEOUT"
DEFAULT_RECONNECT_TIMEOUT: Final = 60.0
CONNECT_TIMEOUT: Final = 10.0
CALL_TIMEOUT: Final = 60.0
UPLOAD_TIMEOUT: Final = 600.0
QUERY_TIMEOUT: Final = 20.0
"""Longer than the controller's time limit for a query, including its time in the queue."""
_SILENT_SECONDS: Final = 1.0

# gRPC's own back-off between attempts to connect would make a restarted controller seem away for a second and more.
_OPTIONS: Final = (
    *CHANNEL_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

Request = TypeVar("Request")
Reply = TypeVar("Reply")
ReplyT_co = TypeVar("ReplyT_co", covariant=True)
Metadata = tuple[tuple[str, str], ...]


Resolver = Callable[[bool], ControllerAddress]
"""Returns the controller's location. If the argument is True, it has answered before, and no new cluster is started."""


@dataclass(frozen=True, slots=True)
class Stubs:
    """The stubs of one channel, with the metadata and timeout of their calls."""

    jobs: JobServiceStub
    clients: ClientServiceStub
    blobs: BlobServiceStub
    cluster: ClusterServiceStub
    endpoints: EndpointServiceStub
    access: AccessServiceStub
    dashboard: DashboardServiceStub
    execs: ExecServiceStub
    metadata: Metadata
    timeout: float
    """Timeout in seconds of an ordinary call."""
    socket: str = ""
    """Path of the controller's Unix socket on this machine; empty if there is none."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Callbacks to run when the channel closes."""


class ReplyStream(Protocol[ReplyT_co]):
    """A call with many replies."""

    def __iter__(self) -> Iterator[ReplyT_co]: ...

    def cancel(self) -> bool: ...


class Connection:
    """Calls to a controller that survive its restart. Thread-safe. Close it when done.

    Args:
        resolve: Returns the controller's current location. Called again when the controller does not answer.
        attempt_id: The calling task attempt, inside a job: its waits lend its CPUs to its children.
        reconnect_timeout: Seconds that a controller which answered before may be unreachable; None for
            IRIS_RECONNECT_TIMEOUT, or 60.
        on_interrupted: Called once with a message when a controller that answered before becomes unreachable.

    Attributes:
        on_sending: Called repeatedly during uploads with the number of bytes sent so far.
    """

    def __init__(
        self,
        resolve: Resolver,
        *,
        attempt_id: str | None = None,
        reconnect_timeout: float | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        on_interrupted: Callable[[str], None] | None = None,
    ) -> None:
        self._resolve = resolve
        self._attempt_id = attempt_id
        self._reconnect_timeout = _reconnect_timeout(os.environ) if reconnect_timeout is None else reconnect_timeout
        self._connect_timeout = connect_timeout
        self._told_away = False
        self.on_interrupted = on_interrupted
        self.on_sending: Callable[[int], None] | None = None
        self._lock = threading.Lock()
        self._endpoint: ControllerAddress | None = None
        self._channel: grpc.Channel | None = None
        self._call: Stubs | None = None
        self._answered = False
        self._closed = False

    @property
    def address(self) -> str:
        """The controller's last known address."""
        return self._endpoint.address if self._endpoint else "unknown"

    @property
    def lends(self) -> bool:
        """Whether waits of this process lend its CPUs to its children."""
        return self._attempt_id is not None

    @property
    def found(self) -> bool:
        """Whether a controller was found, so that calls may have reached it."""
        return self._endpoint is not None

    def close(self) -> None:
        """Close the channel. Running calls end with Unavailable, later ones with Conflict. Does nothing in a fork."""
        if in_fork():
            return
        with self._lock:
            self._closed = True
            channel, call, self._channel, self._call = self._channel, self._call, None, None
        _close(channel, call)

    def run(self, call: Callable[[Stubs], Reply], *, retry: bool = True) -> Reply:
        """Make a call, retrying while the controller is unreachable, up to the connection's timeouts.

        Args:
            call: The call. It may run several times, so it must be idempotent.
            retry: False makes a single attempt.

        Raises:
            ControllerUnreachable: The controller stayed unreachable.
            MarinError: The controller refused. The class says why (see rigging.errors).
        """
        retry_deadline = self.retry_deadline()
        while True:
            try:
                reply = call(self.current())
            except grpc.RpcError as error:
                if self._closed or not is_away(error):
                    raise from_rpc_error(error) from None
                if not retry:
                    raise self.unreachable(error) from None
                retry_deadline.pause(error)
            else:
                self.note_answer()
                return reply

    def ask(
        self,
        rpc: "Callable[[Stubs], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        *,
        seconds: float | None = None,
        retry: bool = True,
    ) -> Reply:
        """Make a call with one request and one reply. Raise like `run`.

        Args:
            rpc: Selects the call from the stubs.
            request: The request. It may be sent several times, so it must be idempotent.
            seconds: Timeout; None for the default of calls that do not wait.
            retry: False makes a single attempt.
        """
        return self.run(
            lambda c: rpc(c)(request, timeout=c.timeout if seconds is None else seconds, metadata=c.metadata),
            retry=retry,
        )

    def stream(self, begin: Callable[[Stubs], ReplyStream[Reply]]) -> Generator[Reply]:
        """Yield the replies of a call until it ends, restarting it after the controller was unreachable.

        Args:
            begin: Starts the call.

        Raises:
            ControllerUnreachable: The controller stayed unreachable.
            MarinError: The controller refused.
        """
        retry_deadline = self.retry_deadline()
        while True:
            call = begin(self.current())
            try:
                for reply in call:
                    self.note_answer()
                    retry_deadline.reset()
                    yield reply
                return
            except grpc.RpcError as error:
                if not is_away(error):
                    raise from_rpc_error(error) from None
                retry_deadline.pause(error)
            finally:
                call.cancel()

    def note_answer(self) -> None:
        """Record that the controller answered, so that later calls retry for longer."""
        self._told_away = False
        if not self._answered:
            with self._lock:
                self._answered = True
                if self._call is not None:
                    self._call = dataclasses.replace(self._call, timeout=CALL_TIMEOUT)

    def retry_deadline(self) -> "RetryDeadline":
        """Return the retry schedule of one call."""
        return RetryDeadline(self)

    def reconnect(self) -> None:
        """Look up the controller again, and reconnect if its address or token changed."""
        endpoint = self._resolve(self._answered)
        with self._lock:
            if endpoint == self._endpoint or self._closed:
                return
            channel, call, self._channel, self._call, self._endpoint = self._channel, self._call, None, None, endpoint
        _close(channel, call)

    def controller_address(self) -> ControllerAddress:
        """Return the controller's last known address, for a separate channel. `reconnect` looks it up again."""
        self.current()
        with self._lock:
            if self._endpoint is None:
                raise Conflict("this client is shut down; create a new one")
            return self._endpoint

    def unreachable(self, error: grpc.RpcError) -> ControllerUnreachable:
        """Return the error for an unreachable controller."""
        reason = from_rpc_error(error)
        endpoint = self._endpoint
        if not self._answered and endpoint is not None and not endpoint.ca_sha256 and speaks_tls(endpoint.address):
            return ControllerUnreachable(
                f"the controller at {self.address} speaks TLS only, and the token pins no CA: use a token that "
                "was made by this controller (its user-token file, or `iris user token create`)",
                was_connected=False,
            )
        state = "is gone" if self._answered else "cannot be reached"
        return ControllerUnreachable(
            f"the controller at {self.address} {state}: {_short(str(reason))}", was_connected=self._answered
        )

    def time_limit(self) -> float:
        """Seconds that the controller may be unreachable: short before its first answer, long afterwards."""
        return self._reconnect_timeout if self._answered else min(self._connect_timeout, self._reconnect_timeout)

    def tell_interrupted(self) -> None:
        """Tell the user once that the controller has become unreachable."""
        with self._lock:
            if not self._answered or self._told_away:
                return
            self._told_away = True
        if self.on_interrupted is not None:
            self.on_interrupted(
                f"the controller at {self.address} does not answer; trying for {self._reconnect_timeout:g} s"
            )

    def current(self) -> Stubs:
        """Return the stubs of the current channel, created on first use.

        Raises:
            Conflict: The connection is closed, or this process was forked from one that used gRPC.
        """
        use_grpc("this client cannot be used here")
        with self._lock:
            if self._closed:
                raise Conflict("this client is shut down; create a new one")
            if self._call is not None:
                return self._call
            if self._endpoint is None:
                self._endpoint = self._resolve(self._answered)
            self._channel = open_channel(self._endpoint, _OPTIONS)
            self._call = Stubs(
                JobServiceStub(self._channel),
                ClientServiceStub(self._channel),
                BlobServiceStub(self._channel),
                ClusterServiceStub(self._channel),
                EndpointServiceStub(self._channel),
                AccessServiceStub(self._channel),
                DashboardServiceStub(self._channel),
                ExecServiceStub(self._channel),
                call_metadata(self._endpoint.token, self._attempt_id),
                CALL_TIMEOUT if self._answered else self._connect_timeout,
                self._endpoint.socket,
            )
            return self._call

    def missing_blobs(self, digests: Sequence[str]) -> list[str]:
        """Return the blobs among these that the cluster lacks."""
        reply = self.ask(lambda c: c.blobs.FindMissingBlobs, pb.FindMissingBlobsRequest(digests=digests))
        return list(reply.digests)

    def upload_blobs(self, messages: Callable[[], Iterator[pb.UploadBlobsRequest]]) -> None:
        """Send blobs. A retry calls `messages` again. Errors of `messages` end the upload and propagate."""
        failures: list[MarinError] = []

        def guarded() -> Iterator[pb.UploadBlobsRequest]:
            # gRPC would log an error of the iterator and report an unrelated one.
            try:
                sent = 0
                for message in messages():
                    yield message
                    sent += sum(len(chunk.data) for chunk in message.chunks)
                    if self.on_sending is not None:
                        self.on_sending(sent)
            except MarinError as error:
                failures.append(error)

        self.run(lambda c: c.blobs.UploadBlobs(guarded(), timeout=UPLOAD_TIMEOUT, metadata=c.metadata))
        if failures:
            raise failures[0]


def _close(channel: grpc.Channel | None, call: Stubs | None) -> None:
    for close in call.closing if call is not None else ():
        close()
    if channel is not None:
        channel.close()


class RetryDeadline:
    """The retries of one call: growing delays with jitter, up to the connection's limit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._backoff = ExponentialBackoff(initial=0.02, maximum=1.0, factor=1.6, jitter=0.2)
        self._started: float | None = None
        self._told = False

    def reset(self) -> None:
        """Record an answer of the controller: the retry time starts anew."""
        self._started, self._told = None, False
        self._backoff.reset()
        self._connection.note_answer()

    def pause(self, error: grpc.RpcError) -> None:
        """Wait briefly and look up the controller again. Raise ControllerUnreachable when the time is up."""
        now = time.monotonic()
        if self._started is None:
            self._started = now
        away = now - self._started
        left = self._connection.time_limit() - away
        if left <= 0:
            raise self._connection.unreachable(error) from None
        # Told only when it lasts: a local controller is back sooner.
        if away > _SILENT_SECONDS and not self._told:
            self._told = True
            self._connection.tell_interrupted()
        time.sleep(min(left, self._backoff.next_interval()))
        self._connection.reconnect()


def is_away(error: grpc.RpcError) -> bool:
    """Return whether an error means that the controller did not answer. A refusal is an answer."""
    code = error.code() if hasattr(error, "code") else None
    return code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def _reconnect_timeout(environ: Mapping[str, str]) -> float:
    text = environ.get(RECONNECT_TIMEOUT_ENV, "")
    if not text:
        return DEFAULT_RECONNECT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InvalidRequest(f"{RECONNECT_TIMEOUT_ENV}={text!r}: give a number of seconds from 0 up")
    return seconds


def _short(reason: str) -> str:
    # gRPC nests its connection errors; the innermost is what people understand.
    if trouble := certificate_trouble(reason, time.time()):
        return f"its certificate {trouble}"
    for known in ("Connection refused", "Connection reset", "Socket closed", "Deadline Exceeded"):
        if known.lower() in reason.lower():
            return known.lower()
    return reason
