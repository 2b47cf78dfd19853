import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from iris.controller.storage.blobs import BlobStore, Upload
from iris.rpc import iris_pb2 as pb
from rigging.errors import InvalidRequest, NotFound


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
        ([pb.BlobChunk(digest=digest_of(b"a"), data=b"b", last=True)], f"have the digest {digest_of(b'b')}"),
        ([pb.BlobChunk(digest=digest_of(b"a"), data=b"a")], "its last chunk is missing"),
        ([pb.BlobChunk(digest=digest_of(b"a"), offset=1, data=b"a", last=True)], "offset 1, expected 0"),
        ([pb.BlobChunk(digest="../../x", data=b"a", last=True)], "'../../x' is not a blob digest"),
        ([pb.BlobChunk(digest=digest_of(b"a"), data=b"a" * (2**20 + 1), last=True)], "at most 1048576"),
    ],
)
def test_a_bad_upload_is_refused_and_leaves_nothing(
    controller: Any, user: Any, sent: list[pb.BlobChunk], reason: str
) -> None:
    with pytest.raises(grpc.RpcError, match=reason) as refused:
        user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=sent)]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [path for path in controller.config.state_dir.glob("blobs/**/*") if path.is_file()] == []


def test_a_blob_that_is_not_here_is_named(admin: Any) -> None:
    with pytest.raises(grpc.RpcError, match=f"no blob {'ab' * 32}") as refused:
        list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=["ab" * 32])))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_damaged_blob_is_noticed_removed_and_asked_for_again(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    digest = store.put(b"good")
    store.path(digest).write_bytes(b"bad!")
    with pytest.raises(NotFound, match="damaged on the controller's disk and is removed"):
        list(store.read(digest))
    assert store.missing([digest]) == [digest]
    store.put(b"good")
    assert [data for _, data, _ in store.read(digest)] == [b"good"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    upload = Upload(store)
    upload.add(digest_of(b"abc"), 0, b"ab", last=False)
    assert len(list(tmp_path.iterdir())) == 1
    BlobStore(tmp_path).remove_leftovers()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidRequest, match="expected 2"):
        upload.add(digest_of(b"abc"), 1, b"c", last=True)
