"""A job whose bundle or callable cannot be used is refused, and does no harm to hosts and clusters."""

import hashlib
from typing import Any

import grpc
import pytest

from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker

CONTENT = b"print('hello')"
PART = hashlib.sha256(CONTENT).hexdigest()


def manifest(*files: pb.BundleFile, format: int = 1) -> bytes:
    return pb.BundleManifest(format=format, files=files).SerializeToString()


def part_file(path: str = "a.py", **fields: Any) -> pb.BundleFile:
    return pb.BundleFile(**{"path": path, "size_bytes": len(CONTENT), "part_digests": [PART], **fields})


def upload(user: Any, *blobs: bytes) -> str:
    """Upload blobs; the digest of the last."""
    chunks = [pb.BlobChunk(digest=hashlib.sha256(blob).hexdigest(), data=blob, last=True) for blob in blobs]
    user.blobs.UploadBlobs(iter([pb.UploadBlobsRequest(chunks=chunks)]))
    return chunks[-1].digest


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        (b"\xff\xff garbage", "it is not a bundle manifest"),
        (manifest(format=7), "its manifest has format 7"),
        (manifest(part_file("../evil")), r"path '../evil' is not a plain relative path"),
        (manifest(part_file(part_digests=["ab" * 32])), "part abababababab of file 'a.py' is not uploaded"),
        (manifest(part_file(size_bytes=99)), "file 'a.py' should have 99 bytes, but its parts have 14"),
    ],
)
def test_a_bundle_that_is_unusable_is_refused(user: Any, worker: ScriptedWorker, bundle: bytes, reason: str) -> None:
    digest = upload(user, CONTENT, bundle)
    with pytest.raises(grpc.RpcError, match=f"its bundle {digest[:12]} cannot be used: .*{reason}") as refused:
        user.submit("/ann/a", bundle_digest=digest)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not user.jobs.ListJobs(pb.ListJobsRequest()).jobs


def test_a_known_bundle_is_not_read_again(controller: RunningController, user: Any, worker: ScriptedWorker) -> None:
    digest = upload(user, CONTENT, manifest(part_file()))
    user.submit("/ann/a", bundle_digest=digest)
    # A check would see this; it is the worker's fetch that does.
    blob_path(controller, digest).write_bytes(b"garbage")
    user.submit("/ann/b", bundle_digest=digest)
    assert {job.job_id for job in user.jobs.ListJobs(pb.ListJobsRequest()).jobs} == {"/ann/a", "/ann/b"}


def test_a_lost_part_is_noticed(controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker) -> None:
    digest = upload(user, CONTENT, manifest(part_file()))
    user.submit("/ann/a", bundle_digest=digest)
    blob_path(controller, PART).write_bytes(b"garbage")
    with pytest.raises(grpc.RpcError, match="was damaged on the controller's disk and is removed: submit again"):
        list(admin.blobs.FetchBlobs(pb.FetchBlobsRequest(digests=[PART])))
    with pytest.raises(grpc.RpcError, match=r"of file 'a\.py' is not uploaded"):
        user.submit("/ann/b", bundle_digest=digest)
    assert list(user.blobs.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=[PART, digest])).digests) == [PART]
    upload(user, CONTENT)
    user.submit("/ann/b", bundle_digest=digest)


def blob_path(controller: RunningController, digest: str) -> Any:
    return controller.config.state_dir / "blobs" / digest[:2] / digest
