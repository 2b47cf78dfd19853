"""What the controller does with calls before any service sees them: who is let in, counted, and cut off."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from iris.controller.access import interceptor as module
from iris.controller.access.interceptor import ServerInterceptor, current_principal
from iris.rpc.auth import Principal, PrincipalKind, attempt_token, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import MAX_REQUEST_BYTES, call_metadata
from rigging.errors import Denied, NotFound
from support.iris.controller import running_controller
from support.iris.controller_process import ControllerProcess

SECRET = b"s" * 32
ANN = make_token(SECRET, PrincipalKind.USER, "ann")
JOB = make_token(SECRET, PrincipalKind.JOB, "/ann/a")
WORKER = make_token(SECRET, PrincipalKind.WORKER, "w1")
SUBMIT, UPLOAD = "/iris.v1.JobService/SubmitJob", "/iris.v1.BlobService/UploadBlobs"
UNDECODABLE = b"\x0a\xff\xff\xff"
MIB = 1 << 20
GET, WAIT = "/iris.v1.JobService/GetJob", "/iris.v1.JobService/FetchLogs"


class Aborted(Exception):
    pass


class Context:
    def __init__(self) -> None:
        self.written: list[Any] = []

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        raise Aborted(code, message)

    async def write(self, message: Any) -> None:
        self.written.append(message)


class Server:
    """What the interceptor is told of, and what it asks."""

    def __init__(self) -> None:
        self.open_calls: list[bool] = []
        self.over = False
        self.looked_up: list[str] = []
        self.now = 0.0
        self.interceptor = ServerInterceptor(
            SECRET, self.open_calls.append, self._check_live, lambda: self.now, max_known_tokens=2
        )

    def _check_live(self, principal: Principal) -> None:
        if self.over:
            raise Denied(f"{principal} has ended")

    async def call(self, method: str, handler: Any, message: Any, metadata: Any) -> Context:
        """One call; raises Aborted. Returns what was written to a stream."""

        async def find(details: Any) -> Any:
            self.looked_up.append(details.method)
            return handler

        details = SimpleNamespace(method=method, invocation_metadata=metadata)
        found = await self.interceptor.intercept_service(find, details)
        context = Context()
        if found is None:
            raise Aborted("unimplemented")
        serve = found.unary_unary or found.unary_stream or found.stream_unary or found.stream_stream
        answer = await serve(message, context)
        if answer is not None:
            context.written.append(answer)
        return context


async def get(request: pb.GetJobRequest, context: Any) -> pb.JobStatus:
    if request.job_id.endswith("x"):
        raise NotFound("no such job")
    return pb.JobStatus(job_id=request.job_id, error=str(current_principal()))


GET_HANDLER = grpc.unary_unary_rpc_method_handler(
    get, request_deserializer=pb.GetJobRequest.FromString, response_serializer=pb.JobStatus.SerializeToString
)


def message(job_id: str = "/ann/a") -> bytes:
    return pb.GetJobRequest(job_id=job_id).SerializeToString()


def run(server: Server, data: bytes = message(), metadata: Any = call_metadata(ANN), method: str = GET) -> Context:  # noqa: B008
    return asyncio.run(server.call(method, GET_HANDLER, data, metadata))


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_caller_is_known_while_its_call_is_served_and_its_call_counted(server: Server) -> None:
    assert run(server).written == [pb.JobStatus(job_id="/ann/a", error="user ann")]
    assert server.open_calls == [True, False]
    assert run(server, metadata=(("authorization", f"bearer {ANN}"),)).written, "in any case, and without a version"
    assert server.looked_up == [GET], "a method is looked up once"


@pytest.mark.parametrize(
    ("metadata", "code", "words"),
    [
        ((), grpc.StatusCode.UNAUTHENTICATED, "no token: send metadata"),
        ((("authorization", "Basic x"),), grpc.StatusCode.UNAUTHENTICATED, "must read 'Bearer <token>'"),
        ((("authorization", "Bearer "),), grpc.StatusCode.UNAUTHENTICATED, "--token-file or IRIS_TOKEN_FILE"),
        ((("authorization", "Bearer u:ann:00"),), grpc.StatusCode.UNAUTHENTICATED, "not made by this cluster"),
        (call_metadata(WORKER), grpc.StatusCode.PERMISSION_DENIED, ""),
        (
            (("authorization", f"Bearer {ANN}"), ("iris-protocol-version", "1")),
            grpc.StatusCode.FAILED_PRECONDITION,
            "the caller speaks protocol version 1, this controller",
        ),
    ],
)
def test_who_is_not_let_in(server: Server, metadata: Any, code: grpc.StatusCode, words: str) -> None:
    with pytest.raises(Aborted) as aborted:
        run(server, b"\xff not even looked at", metadata)
    assert aborted.value.args[0] is code
    assert words in aborted.value.args[1]
    assert server.open_calls == []


def test_what_may_not_be_read_or_is_not_there_is_refused_as_the_family_says(server: Server) -> None:
    for name, code in (("/bob/a", grpc.StatusCode.PERMISSION_DENIED), ("/ann/x", grpc.StatusCode.NOT_FOUND)):
        with pytest.raises(Aborted) as aborted:
            run(server, message(name))
        assert aborted.value.args[0] is code
    assert server.open_calls == [True, False], "what is not allowed does not count as use"


def test_an_unknown_method_is_grpcs_to_refuse(server: Server) -> None:
    with pytest.raises(Aborted, match="unimplemented"):
        asyncio.run(server.call("/iris.v1.JobService/Nothing", None, b"", call_metadata(ANN)))


def test_a_job_acts_for_the_attempt_that_it_names(server: Server) -> None:
    for token, name in ((attempt_token(JOB, "/ann/a/0:1"), "job /ann/a"), (JOB, "job /ann/a")):
        assert run(server, metadata=call_metadata(token, "/ann/a/0:1")).written[0].error == name
    with pytest.raises(Aborted):
        run(server, metadata=call_metadata(JOB, "/bob/a/0:1"))


def test_a_token_that_has_ended_opens_nothing(server: Server) -> None:
    server.over = True
    with pytest.raises(Aborted, match="has ended"):
        run(server)
    with pytest.raises(Denied, match="has ended"):
        server.interceptor.admit_stream("/iris.v1.ClientService/Session", call_metadata(ANN), lines(1), bytes)


def test_a_message_that_cannot_be_read_is_told_now_and_then(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for now in (0.0, 1.0, 59.9, 60.0, 61.0, 121.0):
            server.now = now
            with pytest.raises(Aborted, match="cannot be decoded"):
                run(server, b"\x0a\xff")
    said = f"user ann sent a message of {GET} that cannot be decoded"
    assert [record.getMessage() for record in caplog.records] == [
        said, f"{said} (and 2 more such calls before)", f"{said} (and 1 more such calls before)",
    ]  # fmt: skip
    assert server.open_calls == []


def lines(count: int) -> Any:
    async def stream(request: Any, context: Any) -> AsyncIterator[pb.LogBatch]:
        for number in range(count):
            yield pb.LogBatch(parts=[pb.LogPart(attempt=number)])

    return stream


def streaming(behaviour: Any) -> Any:
    return grpc.unary_stream_rpc_method_handler(
        behaviour, request_deserializer=pb.FetchLogsRequest.FromString,
        response_serializer=pb.LogBatch.SerializeToString,
    )  # fmt: skip


@pytest.mark.parametrize(("token", "sent"), [(JOB, 1), (ANN, 3)])
async def test_a_stream_to_a_job_ends_with_its_token(server: Server, token: str, sent: int) -> None:
    closed: list[bool] = []
    context = Context()

    async def stream(request: Any, given: Any) -> AsyncIterator[pb.LogBatch]:
        try:
            for number in range(3):
                yield pb.LogBatch(parts=[pb.LogPart(attempt=number)])
                server.over = True
        finally:
            closed.append(True)

    async def find(details: Any) -> Any:
        return streaming(stream)

    details = SimpleNamespace(method=WAIT, invocation_metadata=call_metadata(token, "/ann/a/0:0"))
    handler = await server.interceptor.intercept_service(find, details)
    data = pb.FetchLogsRequest(id="/ann/a").SerializeToString()
    ends = pytest.raises(Aborted, match="PERMISSION_DENIED") if sent == 1 else contextlib.nullcontext()
    with ends:
        await handler.unary_stream(data, context)
    assert len(context.written) == sent
    assert closed == [True]
    assert server.open_calls == [True, False]


def test_streams_that_are_open_all_the_time_do_not_count_as_use(server: Server) -> None:
    handler = grpc.stream_stream_rpc_method_handler(
        lines(2), request_deserializer=pb.ClientMessage.FromString, response_serializer=pb.LogBatch.SerializeToString
    )
    context = asyncio.run(server.call("/iris.v1.ClientService/Session", handler, iter(()), call_metadata(ANN)))
    assert len(context.written) == 2
    assert server.open_calls == []


def test_many_tokens_are_remembered_and_not_all(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    verify = module.verify_token
    monkeypatch.setattr(
        module, "verify_token", lambda secret, token: (verified.append(token), verify(secret, token))[1]
    )
    tokens = [make_token(SECRET, PrincipalKind.ADMIN, name) for name in "abc"]
    for token in (tokens[0], tokens[1], tokens[0], tokens[1], tokens[2], tokens[2], tokens[0]):
        run(server, metadata=call_metadata(token))
    assert verified == [*tokens, tokens[0]]


@pytest.mark.process
@pytest.mark.parametrize("metadata", [(), (("authorization", "Bearer u:ann:00"),)], ids=["none", "wrong"])
def test_without_the_right_token_no_message_is_kept_however_large(tmp_path: Path, metadata: Any) -> None:
    controller = ControllerProcess(tmp_path)
    try:
        status = Path(f"/proc/{controller.pid}/status")

        def peak_mib() -> int:
            return next(int(line.split()[1]) >> 10 for line in status.read_text().splitlines() if "VmHWM" in line)

        def send(size: int) -> None:
            options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(str(controller.address), options=options) as channel:
                calls = [channel.unary_unary(SUBMIT).future(bytes(size), metadata=metadata) for _ in range(4)]
                assert [call.code() for call in calls] == [grpc.StatusCode.UNAUTHENTICATED] * 4

        send(1)
        before = peak_mib()
        send(48 * MIB)
        assert peak_mib() - before <= 8
    finally:
        controller.kill()


def test_what_a_known_caller_may_send_is_limited_and_must_be_of_its_kind(tmp_path: Path) -> None:
    with running_controller(tmp_path) as controller:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(str(controller.address), options=options) as channel:
            large = pb.SubmitJobRequest(inline_blobs=[bytes(MAX_REQUEST_BYTES)]).SerializeToString()
            metadata = call_metadata(controller.user_token)
            too_large = channel.unary_unary(SUBMIT).future(large, metadata=metadata)
            other = channel.stream_unary(UPLOAD).future(iter([UNDECODABLE]), metadata=metadata)
            assert too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert other.code() is grpc.StatusCode.INVALID_ARGUMENT
