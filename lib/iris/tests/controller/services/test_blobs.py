"""Blobs over real gRPC: in both directions, in chunks, and what is refused."""

import hashlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import RunningController


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def chunks(data: bytes, size: int = 2**20) -> Iterator[pb.BlobChunk]:
    for offset in range(0, max(len(data), 1), size):
        piece = data[offset : offset + size]
        yield pb.BlobChunk(digest=digest_of(data), offset=offset, data=piece, last=offset + size >= len(data))


def test_blobs_cross_the_wire_in_both_directions(user: Any, admin: Any) -> None:
    blobs = [b"", b"small", b"large" * 500_000]
    digests = [digest_of(blob) for blob in blobs]
    missing = user.blobs.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=[*digests, *digests]))
    assert list(missing.digests) == digests
    requests = (pb.UploadBlobsRequest(chunks=[chunk]) for blob in blobs for chunk in chunks(blob))
    assert user.blobs.UploadBlobs(requests).stored == 3
    assert not user.blobs.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=digests)).digests
    fetched = dict.fromkeys(digests, b"")
    for response in admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=digests)):
        for chunk in response.chunks:
            assert chunk.offset == len(fetched[chunk.digest])
            assert len(chunk.data) <= 2**20
            fetched[chunk.digest] += chunk.data
    assert list(fetched.values()) == blobs


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (pb.BlobChunk(digest=digest_of(b"a"), data=b"b", last=True), f"have the digest {digest_of(b'b')}"),
        (pb.BlobChunk(digest=digest_of(b"a"), data=b"a"), "its last chunk is missing"),
        (pb.BlobChunk(digest=digest_of(b"a"), data=b"a" * (2**20 + 1), last=True), "at most 1048576"),
    ],
)
def test_a_bad_upload_leaves_nothing(controller: RunningController, user: Any, sent: pb.BlobChunk, reason: str) -> None:
    with pytest.raises(grpc.RpcError, match=reason) as refused:
        user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=[sent])]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [path for path in controller.config.state_dir.glob("blobs/**/*") if path.is_file()] == []


def test_damaged_and_unknown_blobs_are_asked_for_alone(controller: RunningController, user: Any, admin: Any) -> None:
    blobs = [b"good", b"bad", b"never sent"]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    chunks = [pb.BlobChunk(digest=digests[n], data=blobs[n], last=True) for n in range(2)]
    assert user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=chunks)])).stored == 2
    missing = pb.FindMissingBlobsRequest(digests=[digests[2], digests[0], digests[2]])
    assert list(user.blobs.FindMissingBlobs(missing).digests) == [digests[2]]
    [path] = controller.config.state_dir.glob(f"blobs/*/{digests[1]}")
    path.write_bytes(b"rot")
    with pytest.raises(grpc.RpcError) as refused:
        list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=[digests[1]])))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert list(user.blobs.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=digests)).digests) == digests[1:]


def test_many_small_blobs_share_a_message(user: Any, admin: Any) -> None:
    blobs = [b"%d" % number * 300_000 for number in range(5)]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    for blob, digest in zip(blobs, digests, strict=True):
        chunk = pb.BlobChunk(digest=digest, data=blob, last=True)
        user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=[chunk])]))
    messages = list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=digests)))
    assert [len(message.chunks) for message in messages] == [4, 1]
    assert b"".join(chunk.data for message in messages for chunk in message.chunks) == b"".join(blobs)
