"""WorkerService: one session of one worker, as a stream in each direction."""

# every method takes grpc's context and a request, needed or not

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final

from iris.controller.access.authority import RULES, authorize
from iris.controller.access.interceptor import address_of, current_principal
from iris.controller.context import Controller
from iris.controller.services.convert_worker import (
    clock_shift,
    ending_of,
    gang_to_wire,
    launch_to_wire,
    observation_from_wire,
    outgoing_to_wire,
    relaunch,
    run_attempts_to_wire,
    shifted_usage,
)
from iris.controller.workers.connected import ConnectedWorker, Greeting, Report, WorkerHost
from iris.controller.workers.orders import Outgoing
from iris.domain.constraints import WORKER_NAME_ATTRIBUTE
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import JobSpec, is_alike
from iris.domain.states import TaskState
from iris.rpc.auth import PrincipalKind, make_token
from iris.rpc.convert_job import resources_from_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated import iris_pb2_grpc
from iris.rpc.key_proof import NONCE_BYTES, check_proof
from iris.rpc.protocol import version_mismatch
from rigging.errors import Conflict, Denied, InvalidRequest
from rigging.text.printable import is_printable_line

_FAREWELL_S: Final = 10.0
_LAUNCHES_KEPT: Final = 64
_USAGES_AT_ONCE: Final = 32

Context = Any  # grpc's own, which is untyped here


_LONGEST_WORKER_ID: Final = 256
_LONGEST_VERSION: Final = 64


def check_worker_id(worker_id: str) -> None:
    """Raise InvalidRequest for an invalid worker id.

    The id is part of the worker's token, which is sent in ASCII headers.
    """
    ascii_line = worker_id.isascii() and is_printable_line(worker_id)
    if not worker_id or not ascii_line or len(worker_id) > _LONGEST_WORKER_ID:
        raise InvalidRequest(
            f"{worker_id[:_LONGEST_WORKER_ID]!r} is not a worker id: no control characters, and "
            f"1 to {_LONGEST_WORKER_ID} characters of ASCII, are allowed"
        )


class WorkerService(iris_pb2_grpc.WorkerServiceServicer):
    """Serves workers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._launches: dict[JobId, tuple[JobSpec, pb.Launch]] = {}
        self._last: tuple[JobSpec, pb.Launch] | None = None

    async def Session(
        self, request_iterator: AsyncIterator[pb.WorkerMessage], context: Context
    ) -> AsyncGenerator[pb.ControllerMessage, None]:
        first = await anext(aiter(request_iterator), pb.WorkerMessage())
        greeting = self._greeting(first, address_of(context.peer()))
        if self._controller.credentials.check_key(greeting.worker_id, first.hello.public_key):
            nonce = secrets.token_bytes(NONCE_BYTES)
            yield pb.ControllerMessage(challenge=nonce)
            answer = await anext(aiter(request_iterator), pb.WorkerMessage())
            self._bind_key(greeting.worker_id, first.hello.public_key, nonce, answer.proof)
        sessions = self._controller.sessions
        session = await sessions.open(greeting)
        reader = asyncio.create_task(self._read(session, request_iterator))
        # Nothing is left to say when the worker has closed its half.
        reader.add_done_callback(lambda _: session.orders.close())
        try:
            yield self._welcome(greeting)
            while True:
                outgoing = await session.orders.take(self._controller.config.heartbeat_interval_s)
                if outgoing is not None:
                    yield self._message(session, outgoing)
                    if outgoing.goodbye is not None:
                        await asyncio.wait([reader], timeout=_FAREWELL_S if outgoing.goodbye.exit else 0)
                        return
                elif session.orders.closed:
                    break
                else:
                    yield pb.ControllerMessage()
            if reader.done():
                reader.result()
        finally:
            if reader.done() and not reader.cancelled():
                reader.exception()  # seen; raised above where it matters
            reader.cancel()
            sessions.close(session)

    def _bind_key(self, worker_id: WorkerId, public_key: bytes, nonce: bytes, proof: bytes) -> None:
        """Bind the worker's credential to its proved key. Raise Denied."""
        check_proof(public_key, worker_id, nonce, proof)
        # Once more: another session may have bound another key meanwhile, or the credential was revoked.
        if not self._controller.credentials.check_key(worker_id, public_key):
            raise Denied(f"the credential of worker {worker_id!r} was revoked")
        self._controller.credentials.bind_key(worker_id, public_key)

    def _greeting(self, first: pb.WorkerMessage, address: str) -> Greeting:
        if first.WhichOneof("kind") != "hello":
            raise InvalidRequest("a session begins with hello")
        hello = first.hello
        mismatch = version_mismatch(
            f"worker {hello.worker_id}", hello.protocol_version, self._controller.config.protocol_version
        )
        if mismatch:
            raise Conflict(mismatch)
        authorize(current_principal(), RULES["WorkerService/Session"], hello.worker_id)
        check_worker_id(hello.worker_id)
        if not hello.instance_id:
            raise InvalidRequest(f"worker {hello.worker_id} gives no instance_id")
        worker_id = WorkerId(hello.worker_id)
        shift_ms = clock_shift(first.sent_at_ms, self._controller.clock_ms())
        return Greeting(
            worker_id=worker_id,
            instance_id=hello.instance_id,
            capacity=resources_from_wire(hello.capacity),
            attributes={**hello.attributes, WORKER_NAME_ATTRIBUTE: worker_id},
            inventory=tuple(self._report(observation, worker_id, shift_ms) for observation in hello.inventory),
            leaving=first.leaving,
            host=WorkerHost(address, hello.version[:_LONGEST_VERSION], hello.protocol_version),
            place=hello.place,
        )

    async def _read(self, session: ConnectedWorker, messages: AsyncIterator[pb.WorkerMessage]) -> None:
        sessions = self._controller.sessions
        async for message in messages:
            sessions.heard(session, message.beat)
            if message.HasField("clock_skew_ms"):
                sessions.note_skew(session, message.clock_skew_ms, message.clock_error_ms)
            if message.HasField("capacity"):
                sessions.resize(session, resources_from_wire(message.capacity))
            if message.HasField("trouble"):
                sessions.note_trouble(session, message.trouble)
            for log in message.logs:
                sessions.append_log(session, AttemptId(log.attempt_id), log.offset, log.data)
            has_times = bool(message.observations or message.usage)
            shift_ms = clock_shift(message.sent_at_ms, self._controller.clock_ms()) if has_times else 0
            for number, item in enumerate(message.usage, 1):
                if number % _USAGES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                usage = shifted_usage(item, shift_ms)
                self._controller.live_usage.note(AttemptId(item.attempt_id), session.worker_id, usage)
            for observation in message.observations:
                sessions.report(session, self._report(observation, session.worker_id, shift_ms))
            if message.leaving:
                sessions.begin_leaving(session, ending_of(message))

    def _report(self, message: pb.Observation, worker_id: WorkerId, shift_ms: int) -> Report:
        event = self._controller.live_usage.finish(observation_from_wire(message, worker_id, shift_ms))
        self._controller.attempt_waits.note(event.attempt_id, message.waits_for)
        if message.exception and event.state is TaskState.FAILED:
            # Before the end itself, which is what clients wait for.
            self._controller.hub.keep_exception(event.attempt_id, worker_id, message.exception)
        if event.state is TaskState.SUCCEEDED:
            self._keep_result(message, event.attempt_id, worker_id)
        return Report(event, message.log_size)

    def _keep_result(self, message: pb.Observation, attempt_id: AttemptId, worker_id: WorkerId) -> None:
        """Store a result before the end of its attempt is processed. A None result stores nothing."""
        data: bytes | Path = message.result
        if message.result_digest:
            data = self._controller.blobs.path(message.result_digest)
        if data:
            self._controller.hub.keep_result(attempt_id, worker_id, data)

    def _welcome(self, greeting: Greeting) -> pb.ControllerMessage:
        hub = self._controller.hub
        attempts = [report.event.attempt_id for report in greeting.inventory]
        return pb.ControllerMessage(
            welcome=pb.Welcome(
                heartbeat_interval_ms=round(self._controller.config.heartbeat_interval_s * 1000),
                protocol_version=self._controller.config.protocol_version,
                log_offsets=[pb.LogAck(attempt_id=name, offset=hub.attempt_size(name)) for name in attempts],
            )
        )

    def _message(self, session: ConnectedWorker, outgoing: Outgoing) -> pb.ControllerMessage:
        run = []
        for job_id, attempts in outgoing.start.items():
            launch = self._launch(self._controller.view.jobs[job_id].spec)
            run.append(run_attempts_to_wire(launch, attempts, gang_to_wire(self._controller.view, job_id)))
        session.revision += 1
        now_ms = self._controller.clock_ms() if outgoing.beat_ack else 0
        grace_ms = round(self._controller.config.stop_grace_s * 1000)
        return outgoing_to_wire(outgoing, run, session.revision, grace_ms, now_ms)

    def _launch(self, spec: JobSpec) -> pb.Launch:
        """Return the launch of a job's attempts, cached for attempts that start in a row."""
        known = self._launches.get(spec.job_id)
        if known is not None and known[0] is spec:
            return known[1]
        token = make_token(self._controller.secret, PrincipalKind.JOB, spec.job_id)
        last = self._last
        if last is not None and is_alike(spec, last[0]):
            launch = relaunch(last[1], spec.job_id, token)
        else:
            launch = launch_to_wire(spec, token)
        self._last = (spec, launch)
        if len(self._launches) >= _LAUNCHES_KEPT:
            self._launches.clear()
        if spec.replicas > 1:
            self._launches[spec.job_id] = (spec, launch)
        return launch
