"""A small controller: a real gRPC server whose answers a test can set, stop and start again on the same port."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from iris.client import IrisClient
from iris.client.connection.connection import Connection
from iris.rpc import iris_pb2 as pb
from iris.rpc import iris_pb2_grpc
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.protocol import SERVER_OPTIONS


@dataclass
class FakeController(iris_pb2_grpc.JobServiceServicer, iris_pb2_grpc.BlobServiceServicer):
    """Keeps jobs and blobs in memory. `on_call` may answer or abort any call in place of it."""

    jobs: dict[str, pb.JobStatus] = field(default_factory=dict)
    specs: dict[str, pb.JobSpec] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    log: list[pb.LogEntry] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    on_call: Callable[[str, Any, grpc.ServicerContext], Any] | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    port: int = 0
    server: grpc.Server | None = None

    def start(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(8), options=SERVER_OPTIONS)
        iris_pb2_grpc.add_JobServiceServicer_to_server(self, self.server)
        iris_pb2_grpc.add_BlobServiceServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            with self.changed:
                self.changed.notify_all()
            self.server.stop(None).wait()
            self.server = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def end(self, job_id: str, state: int = pb.JOB_STATE_SUCCEEDED, **fields: Any) -> None:
        with self.changed:
            self.jobs[job_id].MergeFrom(pb.JobStatus(state=state, **fields))
            self.changed.notify_all()

    def _seen(self, name: str, request: Any, context: grpc.ServicerContext) -> Any:
        with self.changed:
            self.calls.append((name, request))
            self.changed.notify_all()
        self.metadata.append(dict(context.invocation_metadata()))
        return self.on_call(name, request, context) if self.on_call else None

    def _find(self, job_id: str, context: grpc.ServicerContext) -> pb.JobStatus:
        if job_id not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no job {job_id}")
        return self.jobs[job_id]

    def SubmitJob(self, request, context):
        job_id = request.spec.job_id
        if request.idempotency_key in self.keys:
            return pb.SubmitJobResponse(job_id=self.keys[request.idempotency_key], adopted=True)
        live = self.jobs.get(job_id)
        if live is not None and live.state < pb.JOB_STATE_SUCCEEDED:
            if request.existing != pb.EXISTING_JOB_POLICY_ADOPT:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, f"job {job_id} exists and is pending")
            return pb.SubmitJobResponse(job_id=job_id, adopted=True)
        for data in request.inline_blobs:
            import hashlib

            self.blobs[hashlib.sha256(data).hexdigest()] = data
        self.specs[job_id] = request.spec
        self.keys[request.idempotency_key] = job_id
        self.jobs[job_id] = pb.JobStatus(job_id=job_id, state=pb.JOB_STATE_RUNNING, replicas=request.spec.replicas)
        # Answered last, so that a test can lose the answer of a submission that was stored.
        return self._seen("SubmitJob", request, context) or pb.SubmitJobResponse(job_id=job_id)

    def GetJob(self, request, context):
        return self._seen("GetJob", request, context) or self._find(request.job_id, context)

    def WaitJobs(self, request, context):
        self._seen("WaitJobs", request, context)
        wanted = [self._find(job_id, context) for job_id in request.job_ids]

        def done() -> bool:
            ended = [job.state >= pb.JOB_STATE_SUCCEEDED for job in wanted]
            return any(ended) if request.any else all(ended)

        with self.changed:
            self.changed.wait_for(lambda: done() or self.server is None, request.timeout_ms / 1000)
            return pb.WaitJobsResponse(jobs=wanted, done=done())

    def ListJobs(self, request, context):
        self._seen("ListJobs", request, context)
        return pb.ListJobsResponse(jobs=[job for name, job in self.jobs.items() if name.startswith(request.prefix)])

    def StopJob(self, request, context):
        self._seen("StopJob", request, context)
        self._find(request.job_id, context)
        self.end(request.job_id, pb.JOB_STATE_KILLED, error=request.reason)
        return pb.StopJobResponse(stopped_job_ids=[request.job_id])

    def FetchLogs(self, request, context):
        self._seen("FetchLogs", request, context)
        entries = [entry for entry in self.log if entry.at_ms >= request.since_ms]
        if request.max_lines:
            entries = entries[: request.max_lines] if request.from_start else entries[-request.max_lines :]
        for entry in entries:
            yield pb.LogBatch(entries=[entry])

    def FindMissingBlobs(self, request, context):
        self._seen("FindMissingBlobs", request, context)
        return pb.FindMissingBlobsResponse(digests=[d for d in request.digests if d not in self.blobs])

    def UploadBlobs(self, request_iterator, context):
        import hashlib

        partial: dict[str, bytes] = {}
        stored = 0
        for message in request_iterator:
            self._seen("UploadBlobs", message, context)
            for chunk in message.chunks:
                assert chunk.offset == len(partial.get(chunk.digest, b""))
                partial[chunk.digest] = partial.get(chunk.digest, b"") + chunk.data
                if chunk.last:
                    data = partial.pop(chunk.digest)
                    assert hashlib.sha256(data).hexdigest() == chunk.digest
                    self.blobs[chunk.digest] = data
                    stored += 1
        assert not partial
        return pb.UploadBlobsResponse(stored=stored)

    def called(self, name: str) -> list[Any]:
        return [request for called, request in self.calls if called == name]


@pytest.fixture
def controller() -> Iterator[FakeController]:
    fake = FakeController()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def connection(controller: FakeController) -> Iterator[Connection]:
    made = Connection(lambda answered: ControllerAddress(controller.address, "u:ann:x"), reconnect_timeout=20)
    yield made
    made.close()


@pytest.fixture
def client(connection: Connection) -> IrisClient:
    return IrisClient(connection, user="ann")
