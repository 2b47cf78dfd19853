"""One session with the controller, from Hello to its end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris.domain.resources import Resources
from iris.domain.states import FailureKind
from iris.rpc.channels import open_aio_channel
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.convert import usage_to_wire
from iris.rpc.convert_job import resources_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.key_proof import prove, public_bytes
from iris.rpc.protocol import (
    CHANNEL_OPTIONS,
    MAX_BLOB_CHUNK_BYTES,
    PROTOCOL_VERSION,
    call_metadata,
    version_mismatch,
)
from iris.rpc.status_map import from_rpc_error
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection import wire
from iris.worker.connection.clock_skew import SkewEstimate
from iris.worker.guardian.protocol import boot_ms
from iris.worker.host.disk_offer import CapacityOffer
from iris.worker.reports.outbox import ReportBatch
from rigging.errors import Conflict, Unavailable

logger = logging.getLogger(__name__)

_GREETING_S: Final = 30.0
_BEAT_SHARE: Final = 0.5
"""Heartbeats are sent twice as often as required, so that one late message does no harm."""

# Channels to one address share their back-off unless each has its own pool, and then a controller that has just come
# up would be found late. gRPC waits at least `min_reconnect_backoff` for a listener that accepts and never answers:
# its default is 20 s.
_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 1000),
)


class Incompatible(Conflict):
    """The controller uses another version of the protocol, so reconnecting cannot help."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The worker's name, and the resources and attributes it offers."""

    worker_id: str
    instance_id: str
    capacity: Resources
    attributes: Mapping[str, str]
    version: str = ""
    protocol_version: int = PROTOCOL_VERSION
    place: str = ""
    key: Ed25519PrivateKey | None = field(default=None, repr=False)


class SessionEnd(StrEnum):
    """The worker's next action after a session."""

    RECONNECT = "reconnect"
    EXIT = "exit"


@contextlib.contextmanager
def _blob_errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # The channel was closed for a new session: the caller asks again there.
        raise Unavailable("the connection to the controller was replaced") from None


class GrpcControllerLink:
    """A channel to one controller, with the worker's token. Raises MarinError if the connection is not safe for the
    token.
    """

    def __init__(self, place: ControllerAddress) -> None:
        self.address = place.address
        self._channel = open_aio_channel(place, _OPTIONS)
        self._metadata = call_metadata(place.token)
        self._worker = iris_pb2_grpc.WorkerServiceStub(self._channel)
        self._blobs = iris_pb2_grpc.BlobServiceStub(self._channel)

    def open_session(self) -> "grpc.aio.StreamStreamCall[pb.WorkerMessage, pb.ControllerMessage]":
        return self._worker.Session(metadata=self._metadata)

    async def fetch(self, digests: list[str]) -> AsyncIterator[tuple[str, int, bytes, bool]]:
        """Yield chunks (digest, offset, data, last) of these blobs. Raises MarinError."""
        with _blob_errors():
            call: Any = self._blobs.FetchBlobs(pb.FetchBlobsRequest(digests=digests), metadata=self._metadata)
            async for response in call:
                for chunk in response.chunks:
                    yield chunk.digest, chunk.offset, chunk.data, chunk.last

    async def upload(self, digest: str, data: bytes) -> None:
        """Store a blob. Raises MarinError."""
        starts = range(0, len(data), MAX_BLOB_CHUNK_BYTES)
        chunks = (
            pb.BlobChunk(
                digest=digest,
                offset=start,
                data=data[start : start + MAX_BLOB_CHUNK_BYTES],
                last=start + MAX_BLOB_CHUNK_BYTES >= len(data),
            )
            for start in starts
        )
        with _blob_errors():
            await self._blobs.UploadBlobs(
                (pb.UploadBlobsRequest(chunks=[chunk]) for chunk in chunks), metadata=self._metadata
            )

    async def close(self) -> None:
        await self._channel.close()


class AgentSession:
    """Runs the session protocol over an open call.

    After Hello and Welcome one task reads the controller's requests and another sends reports, independently.

    Args:
        clock: Returns the time of a heartbeat in ms, like `guardian.protocol.boot_ms`.
        offer: Returns the resources currently offered; None if those of `identity` do not change.
        on_welcome: Called when the controller has accepted the session.
        on_exec: Called with the id of a command in an attempt, and whether to run it, or its caller has gone.
    """

    def __init__(
        self,
        call: Any,
        identity: WorkerIdentity,
        supervisor: Supervisor,
        clock: Callable[[], int] = boot_ms,
        offer: CapacityOffer | None = None,
        on_welcome: Callable[[], None] = lambda: None,
        on_exec: Callable[[str, bool], None] = lambda *_: None,
    ) -> None:
        self._on_welcome = on_welcome
        self._on_exec = on_exec
        self._offer = offer or CapacityOffer(identity.capacity)
        self._call = call
        self._identity = identity
        self._supervisor = supervisor
        self._revision = 0
        self._heartbeat_s = 5.0
        self.welcomed = False
        self._said_leaving = False
        self._said_trouble = ""
        self._clock = clock
        self._beat = 0
        self._skew = SkewEstimate()
        self._last_beat_ms = -1_000_000_000
        self._beats: dict[int, int] = {}  # when each was sent that is not acknowledged

    async def run(self) -> SessionEnd:
        """Run until the controller says goodbye, then return what to do next.

        Raises:
            Incompatible: The controller uses another protocol version.
            MarinError: The connection or the controller failed.
        """
        try:
            async with asyncio.timeout(_GREETING_S):
                await self._greet()
            tasks = [asyncio.create_task(self._read_wishes()), asyncio.create_task(self._write_news())]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return next(end for end in [task.result() for task in done] if end is not None)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        except TimeoutError as error:
            raise Unavailable(f"the controller did not answer Hello within {_GREETING_S:g} s") from error
        except asyncio.InvalidStateError as error:  # grpc.aio: a write after the call has ended
            raise Unavailable(f"the session ended: {error}") from error
        finally:
            self._call.cancel()

    async def leave(self) -> None:
        """Send the remaining reports, and half-close the call; the controller then ends its half."""
        await self._supervisor.outbox.wait_until_delivered()
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._call.done_writing()

    async def _greet(self) -> None:
        outbox = self._supervisor.outbox
        outbox.clear()
        identity = self._identity
        self._offer.renew(self._supervisor.reserved_disk)
        sent_ms = self._clock()
        await self._call.write(
            wire.hello(
                identity.worker_id,
                identity.instance_id,
                identity.protocol_version,
                self._offer.capacity,
                identity.attributes,
                self._supervisor.inventory(),
                outbox.leaving,
                self._supervisor.now_ms(),
                identity.version,
                identity.place,
                b"" if identity.key is None else public_bytes(identity.key),
            )
        )
        self._said_leaving = outbox.leaving
        if outbox.ending:  # Hello has no place for it, so that the first message tells it
            self._said_leaving = False
            outbox.leave(outbox.ending)
        message = await self._call.read()
        if message is not grpc.aio.EOF and message.challenge and identity.key is not None:
            proof = prove(identity.key, identity.worker_id, message.challenge)
            await self._call.write(pb.WorkerMessage(proof=proof))
            message = await self._call.read()
        if message is grpc.aio.EOF:
            raise Unavailable(f"the controller refused the session: {await self._call.details()}")
        if message.WhichOneof("kind") != "welcome":
            raise Conflict("the controller did not answer Hello with Welcome")
        welcome = message.welcome
        mismatch = version_mismatch("this worker", identity.protocol_version, welcome.protocol_version)
        if mismatch:
            raise Incompatible(mismatch)
        if welcome.heartbeat_interval_ms > 0:
            self._heartbeat_s = welcome.heartbeat_interval_ms / 1000
        self._supervisor.contact(sent_ms)
        self._supervisor.resume_logs({ack.attempt_id: ack.offset for ack in welcome.log_offsets})
        self.welcomed = True
        self._on_welcome()

    async def _read_wishes(self) -> SessionEnd:
        while True:
            message = await self._call.read()
            if message is grpc.aio.EOF:
                code, details = await self._call.code(), await self._call.details()
                raise Unavailable(f"the controller ended the session: {code.name} {details}".rstrip())
            if message.beat_ack:
                self._acknowledge(message.beat_ack, message.sent_at_ms)
            for ack in message.log_acks:
                self._supervisor.acknowledge_log(ack.attempt_id, ack.offset)
            for exec_id in message.execs:
                self._on_exec(exec_id, True)
            for exec_id in message.exec_ends:
                self._on_exec(exec_id, False)
            kind = message.WhichOneof("kind")
            if kind == "desired":
                self._supervisor.apply(wire.desired_from_wire(message.desired))
                self._revision = message.desired.revision
            elif kind == "goodbye":
                logger.info("the controller ended the session: %s", message.goodbye.reason)
                return SessionEnd.EXIT if message.goodbye.exit else SessionEnd.RECONNECT

    async def _write_news(self) -> None:
        outbox = self._supervisor.outbox
        outbox.delivered()
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_s * _BEAT_SHARE):
                    await outbox.wait()
                heartbeat = False
            except TimeoutError:
                heartbeat = True
            batch = outbox.take()
            if batch or heartbeat or outbox.leaving is not self._said_leaving:
                self._said_leaving = outbox.leaving
                await self._call.write(self._message(batch))
            outbox.delivered()

    def _acknowledge(self, beat: int, controller_at_ms: int) -> None:
        """Process the controller's acknowledgement of a heartbeat, with its current time."""
        sent_ms = self._beats.get(beat)
        if sent_ms is not None:
            self._supervisor.contact(sent_ms)
            self._skew.add(sent_ms, self._clock(), self._supervisor.now_ms(), controller_at_ms)
            self._beats = {later: at for later, at in self._beats.items() if later > beat}

    def _next_beat(self) -> int:
        """Return the number of the heartbeat to send now; 0 if the last one was just sent."""
        now = self._clock()
        if now - self._last_beat_ms < self._heartbeat_s * _BEAT_SHARE * 1000:
            return 0
        self._last_beat_ms = now
        self._beat += 1
        self._beats[self._beat] = now
        return self._beat

    def _new_trouble(self) -> str | None:
        """Return why no attempt can start at present, "" if attempts can start again, None if unchanged."""
        trouble = self._supervisor.trouble()
        if trouble == self._said_trouble:
            return None
        self._said_trouble = trouble
        logger.warning("%s", trouble or "tasks can be started again")
        return trouble

    def _message(self, batch: ReportBatch) -> pb.WorkerMessage:
        beat = self._next_beat()
        # With the news of a full disk comes what is left of it: else the same attempt comes back at once.
        is_full = any(item.failure is FailureKind.DISK for item in batch.observations)
        renewed = (beat or is_full) and self._offer.renew(self._supervisor.reserved_disk)
        skew = self._skew.best if beat else None
        return pb.WorkerMessage(
            clock_skew_ms=None if skew is None else skew.skew_ms,
            clock_error_ms=0 if skew is None else skew.error_ms,
            beat=beat,
            capacity=resources_to_wire(self._offer.capacity) if renewed else None,
            trouble=self._new_trouble() if beat else None,
            observations=wire.observations_to_wire(batch.observations),
            logs=[pb.LogAppend(attempt_id=log.attempt_id, offset=log.offset, data=log.data) for log in batch.logs],
            usage=[usage_to_wire(name, usage) for name, usage in batch.usage.items()],
            applied_revision=self._revision,
            leaving=self._said_leaving,
            host_ends=self._said_leaving and bool(self._supervisor.outbox.ending),
            ending=self._supervisor.outbox.ending if self._said_leaving else "",
            sent_at_ms=self._supervisor.now_ms() if batch.observations or batch.usage else 0,
        )
