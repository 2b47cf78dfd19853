"""What the controller does with calls before any service sees them, through real connections."""

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.rpc.protocol import MAX_REQUEST_BYTES, call_metadata
from iris.testing.controller import running_controller
from iris.testing.controller_process import ControllerProcess

SUBMIT = "/iris.v1.JobService/SubmitJob"
UPLOAD = "/iris.v1.BlobService/UploadBlobs"
UNDECODABLE = b"\x0a\xff\xff\xff"
MIB = 1 << 20


def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code(), refused.value.details()


def test_messages_that_cannot_be_decoded_are_refused_and_told_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_controller(tmp_path) as controller, grpc.insecure_channel(str(controller.address)) as channel:
        metadata = call_metadata(controller.user_token)
        with caplog.at_level(logging.INFO):
            for _ in range(20):
                code, text = refusal(lambda: channel.unary_unary(SUBMIT)(UNDECODABLE, metadata=metadata))
                assert code is grpc.StatusCode.INVALID_ARGUMENT
                assert text.startswith(f"a message of {SUBMIT} cannot be decoded")
            code, text = refusal(lambda: channel.stream_unary(UPLOAD)(iter([UNDECODABLE]), metadata=metadata))
            assert (code, text[:30]) == (grpc.StatusCode.INVALID_ARGUMENT, f"a message of {UPLOAD}"[:30])
    said = [record for record in caplog.records if "decoded" in record.getMessage() or record.exc_info]
    assert [record.getMessage() for record in said] == [f"user ann sent a message of {SUBMIT} that cannot be decoded"]
    assert controller.user_token.rpartition(":")[2] not in caplog.text


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


def test_what_a_known_caller_may_send_is_limited(tmp_path: Path) -> None:
    with running_controller(tmp_path) as controller:
        options = [("grpc.max_send_message_length", -1)]
        with grpc.insecure_channel(str(controller.address), options=options) as channel:
            large = pb.SubmitJobRequest(inline_blobs=[bytes(MAX_REQUEST_BYTES)]).SerializeToString()
            metadata = call_metadata(controller.user_token)
            code, _ = refusal(lambda: channel.unary_unary(SUBMIT)(large, metadata=metadata))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_kind_of_caller_that_never_may_is_refused_unheard(tmp_path: Path) -> None:
    """Its message is not decoded, so what is wrong with that is not told."""
    with running_controller(tmp_path) as controller, grpc.insecure_channel(str(controller.address)) as channel:
        metadata = call_metadata(controller.token(PrincipalKind.WORKER, "w1"))
        code, text = refusal(lambda: channel.unary_unary(SUBMIT)(UNDECODABLE, metadata=metadata))
        assert (code, text) == (
            grpc.StatusCode.PERMISSION_DENIED, "worker w1 may not submit jobs: only admins, users and jobs may",
        )  # fmt: skip
