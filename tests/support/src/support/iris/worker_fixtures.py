"""Fixtures for tests of the worker: a fake controller over real gRPC, and a worker in this process."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from iris.domain.resources import Resources
from iris.domain.states import TaskState
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import exec_pb2_grpc, iris_pb2_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import Record, decode_all
from iris.rpc.protocol import PROTOCOL_VERSION, SERVER_OPTIONS
from iris.worker.attempts.rooms import Rooms, furnish
from iris.worker.attempts.supervisor import Supervisor
from iris.worker.connection.agent import Agent, AgentEnd, cancel_and_wait
from iris.worker.connection.exec_call import serve_exec
from iris.worker.connection.session import WorkerIdentity
from iris.worker.containers.engine import Engine
from iris.worker.containers.removal import Containers
from iris.worker.devices.allotment import NO_CHIPS, Allotment, Chips
from iris.worker.exec.commands import AttemptCommands
from iris.worker.guardian.client import GuardianClient, attach
from iris.worker.guardian.launch import GuardianPaths
from iris.worker.isolation.plan import IsolationMode, variables_of
from iris.worker.paths import WorkPaths
from iris.worker.prepare.preparer import BundlePreparer
from iris.worker.prepare.task_env import TaskEnvironment, base_variables
from rigging.errors import Unavailable
from support.iris.callers import Caller, CallerService


class FakeController(iris_pb2_grpc.WorkerServiceServicer, iris_pb2_grpc.BlobServiceServicer):
    """A fake of the controller's side of the session. It records messages, and can disconnect.

    It stores logs like the real controller: it drops overlaps, and answers a gap with its own offset.
    """

    def __init__(self) -> None:
        self.hellos: list[pb.Hello] = []
        self.observations: dict[str, pb.Observation] = {}
        self.states: dict[str, list[TaskState]] = {}
        self.logs: dict[str, bytearray] = {}
        self.log_bytes_received = 0
        self.heartbeats = 0
        self.messages = 0
        self.applied_revision = 0
        self.blobs: dict[str, bytes] = {}
        self.blob_requests: list[list[str]] = []
        self.serve_blobs = asyncio.Event()
        self.serve_blobs.set()
        self.port = 0
        self.protocol_version = PROTOCOL_VERSION
        self.heartbeat_ms = 100
        self.ack_logs = True
        self.log_must_come_first = True
        self.on_message: Callable[[pb.WorkerMessage], None] | None = None
        self._changed = asyncio.Condition()
        self._down: asyncio.Queue[pb.ControllerMessage | None] | None = None
        self._server: grpc.aio.Server | None = None
        self._revision = 0
        self._callers = CallerService()

    async def start(self) -> None:
        """Listen on any port; later calls use the same port."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        iris_pb2_grpc.add_WorkerServiceServicer_to_server(self, self._server)
        iris_pb2_grpc.add_BlobServiceServicer_to_server(self, self._server)
        exec_pb2_grpc.add_ExecServiceServicer_to_server(self._callers, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Disconnect immediately."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def connection(self) -> ControllerAddress:
        if self._server is None:
            raise Unavailable("the controller is down")
        return ControllerAddress(f"127.0.0.1:{self.port}", "w:test:token")

    def add_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def add_bundle(self, files: dict[str, str | bytes], *, part_bytes: int = 4 << 20) -> str:
        """Store a bundle of these files: contents by path; "name*" is executable."""
        manifest = pb.BundleManifest(format=1)
        for name, content in sorted(files.items()):
            data = content.encode() if isinstance(content, str) else content
            parts = [self.add_blob(data[start : start + part_bytes]) for start in range(0, len(data), part_bytes)]
            manifest.files.add(
                path=name.rstrip("*"), size_bytes=len(data), executable=name.endswith("*"), part_digests=parts
            )
        return self.add_blob(manifest.SerializeToString(deterministic=True))

    def send(
        self, *, run: Iterable[pb.RunAttempts] = (), stop: Iterable[pb.StopAttempt] = (), forget: Iterable[str] = ()
    ) -> None:
        """Change the desired set in the open session."""
        self._revision += 1
        desired = pb.Desired(revision=self._revision, run=run, stop=stop, forget=forget)
        self.send_message(pb.ControllerMessage(desired=desired))

    def call(self, attempt_id: str, *argv: str, window: tuple[int, int] | None = None, term: str = "") -> Caller:
        """Call a command in an attempt of the connected worker."""
        name, caller = self._callers.call(attempt_id, argv, window, term)
        self.send_message(pb.ControllerMessage(execs=[name]))
        caller.hang_up = lambda: self.send_message(pb.ControllerMessage(exec_ends=[name]))
        return caller

    def send_message(self, message: pb.ControllerMessage | None) -> None:
        """Send a message; None ends the session."""
        assert self._down is not None, "no worker is connected"
        self._down.put_nowait(message)

    async def until(self, condition: Callable[[], Any], timeout_s: float = 20.0) -> None:
        """Wait until `condition` holds, checked after every message of the worker."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def until_ended(self, *attempt_ids: str, timeout_s: float = 20.0) -> list[pb.Observation]:
        """Wait for the terminal observations of these attempts, and return them."""
        await self.until(lambda: all(map(self.has_ended, attempt_ids)), timeout_s)
        return [self.observations[attempt_id] for attempt_id in attempt_ids]

    def has_ended(self, attempt_id: str) -> bool:
        observation = self.observations.get(attempt_id)
        return observation is not None and TaskState(observation.state).is_terminal

    def records(self, attempt_id: str) -> list[Record]:
        return list(decode_all(bytes(self.logs.get(attempt_id, b""))))

    def output(self, attempt_id: str, *, stderr: bool = False) -> bytes:
        """Return the attempt's output from its log."""
        records = [record for record in self.records(attempt_id) if record.is_stderr == stderr]
        return b"".join(record.data + (b"" if record.partial else b"\n") for record in records)

    async def Session(
        self, request_iterator: AsyncIterator[pb.WorkerMessage], context: Any
    ) -> AsyncIterator[pb.ControllerMessage]:
        del context
        hello = (await anext(request_iterator)).hello
        self.hellos.append(hello)
        await self._take(pb.WorkerMessage(observations=hello.inventory))
        down: asyncio.Queue[pb.ControllerMessage | None] = asyncio.Queue()
        self._down = down
        acks = [pb.LogAck(attempt_id=o.attempt_id, offset=self._log_size(o.attempt_id)) for o in hello.inventory]
        yield pb.ControllerMessage(
            welcome=pb.Welcome(
                heartbeat_interval_ms=self.heartbeat_ms, protocol_version=self.protocol_version, log_offsets=acks
            )
        )
        reader = asyncio.create_task(self._read(request_iterator, down))
        try:
            while (message := await down.get()) is not None:
                yield message
        finally:
            reader.cancel()

    async def FetchBlobs(self, request: pb.FetchBlobsRequest, context: Any) -> AsyncIterator[pb.FetchBlobsResponse]:
        self.blob_requests.append(list(request.digests))
        await self.serve_blobs.wait()
        for digest in request.digests:
            data = self.blobs.get(digest)
            if data is None:
                await context.abort(grpc.StatusCode.NOT_FOUND, f"no blob {digest}")
                return
            for start in range(0, max(1, len(data)), 1 << 20):
                piece = data[start : start + (1 << 20)]
                last = start + (1 << 20) >= len(data)
                chunk = pb.BlobChunk(digest=digest, offset=start, data=piece, last=last)
                yield pb.FetchBlobsResponse(chunks=[chunk])

    async def UploadBlobs(
        self, request_iterator: AsyncIterator[pb.UploadBlobsRequest], context: Any
    ) -> pb.UploadBlobsResponse:
        sent: dict[str, bytes] = {}
        async for request in request_iterator:
            for chunk in request.chunks:
                sent[chunk.digest] = sent.get(chunk.digest, b"") + chunk.data
        self.blobs |= sent
        return pb.UploadBlobsResponse(stored=len(sent))

    async def _read(
        self, requests: AsyncIterator[pb.WorkerMessage], down: asyncio.Queue[pb.ControllerMessage | None]
    ) -> None:
        async for message in requests:
            await self._take(message)
            if message.logs and self.ack_logs:
                acks = [
                    pb.LogAck(attempt_id=log.attempt_id, offset=self._log_size(log.attempt_id)) for log in message.logs
                ]
                down.put_nowait(pb.ControllerMessage(log_acks=acks))
        down.put_nowait(None)

    async def _take(self, message: pb.WorkerMessage) -> None:
        self.messages += 1
        self.applied_revision = max(self.applied_revision, message.applied_revision)
        if not message.observations and not message.logs:
            self.heartbeats += 1
        for log in message.logs:
            self.log_bytes_received += len(log.data)
            have = self.logs.setdefault(log.attempt_id, bytearray())
            if log.offset <= len(have):
                have += log.data[len(have) - log.offset :]
        for observation in message.observations:
            self.observations[observation.attempt_id] = observation
            states = self.states.setdefault(observation.attempt_id, [])
            states.append(TaskState(observation.state))
            if states[-1].is_terminal:
                size = self._log_size(observation.attempt_id)
                assert not self.log_must_come_first or size == observation.log_size, "an end was told before its log"
        if self.on_message is not None:
            self.on_message(message)
        async with self._changed:
            self._changed.notify_all()

    def _log_size(self, attempt_id: str) -> int:
        return len(self.logs.get(attempt_id, b""))


def run_command(
    *argv: str,
    job_id: str = "/user/job",
    indexes: Iterable[int] = (0,),
    attempt: int = 0,
    bundle: str = "",
    payload: str = "",
    environment: pb.Environment | None = None,
    ports: Iterable[str] = (),
    resources: pb.Resources | None = None,
    enforced: str = "",
    runtime: pb.Runtime | None = None,
) -> pb.RunAttempts:
    """Return the message with which a controller starts attempts of one job. An empty digest means no bundle."""
    entrypoint = pb.Entrypoint(command=pb.Command(argv=argv))
    if payload:
        entrypoint = pb.Entrypoint(callable=pb.Callable(payload_digest=payload))
    refs = [pb.AttemptRef(task_index=index, attempt=attempt) for index in indexes]
    launch = pb.Launch(
        job_id=job_id, entrypoint=entrypoint, environment=environment, bundle_digest=bundle, ports=ports,
        replicas=len(refs), resources=resources, enforced=enforced, job_token=f"j:{job_id}:token",
        runtime=runtime,
    )  # fmt: skip
    return pb.RunAttempts(launch=launch, attempts=refs)


class InProcessWorker:
    """A real worker on this loop, in the test's process, which adopts the guardian's tasks."""

    def __init__(
        self,
        paths: WorkPaths,
        guardian: GuardianClient,
        controller: FakeController,
        environ: dict[str, str],
        engine: Engine | None = None,
        chips: Chips = NO_CHIPS,
    ) -> None:
        allotment = Allotment(chips)
        self.paths = paths
        self.guardian = guardian
        identity = WorkerIdentity("w1", guardian.guardian_id, Resources(2000, 1 << 30, 1 << 30), {"os": "linux"})
        self.agent = Agent(identity, controller.connection)
        base = base_variables(environ)
        self._containers = containers = None if engine is None else Containers(engine, paths.root)
        self.supervisor = Supervisor(
            self.paths,
            guardian,
            Rooms(
                lambda identity, user, refusal: furnish(
                    self.paths,
                    guardian.isolation,
                    BundlePreparer.over(self.paths, self.agent, guardian, base),
                    TaskEnvironment(self.paths, "w1", base | variables_of(guardian.isolation)),
                    self.agent.address,
                    engine=engine,
                    allotment=allotment,
                ),
                containers=containers,
            ),
            send_blob=self.agent.upload,
        )
        self.supervisor.take_up_held()
        self.commands = AttemptCommands(guardian.join, self.supervisor.exec_place, paths.tokens)
        if containers is not None:
            self.commands.end_leftovers()
            containers.keep_only(lambda: self.supervisor.live_attempts)
        self.agent.on_exec = partial(serve_exec, self.commands)
        self.serving: asyncio.Task[AgentEnd] = asyncio.create_task(self.agent.run(self.supervisor))

    @classmethod
    async def start(
        cls,
        work_dir: Path,
        controller: FakeController,
        environ: dict[str, str],
        isolation: IsolationMode = IsolationMode.OVERLAY,
        engine: Engine | None = None,
        chips: Chips = NO_CHIPS,
    ) -> "InProcessWorker":
        """Start serving with the guardian of `work_dir`, which is started if needed."""
        paths = WorkPaths(work_dir)
        paths.make()
        guardian = await attach(GuardianPaths(work_dir), linger_s=1.0, isolation=isolation)
        return cls(paths, guardian, controller, environ, engine, chips)

    async def abandon(self) -> None:
        """Disappear silently, like after kill -9. The guardian continues."""
        self.guardian.close()
        await self.commands.close()
        await cancel_and_wait(self.serving)
        await self.agent.close()

    async def close(self) -> None:
        await self.supervisor.stop_all("test is over", 0)
        await self.commands.close()
        await self.guardian.finish()
        if self._containers is not None:
            await self._containers.close()
        await cancel_and_wait(self.serving)
        await self.agent.close()
        self.guardian.close()
